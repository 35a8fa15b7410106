"""The catalogue of instance types, and what EC2 says of them today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kfjob.errors import Forbidden, KfjobError, Unreachable
from kfjob.spec.instances import Instance, load_catalogue

COMPARED = ("gpus", "gpu_memory", "neuron", "efa", "vcpus", "memory")
AT_ONCE = 100  # EC2 takes at most 200 values in a filter
MEBIBYTES = 1024  # of a GiB


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of the catalogue that EC2 says otherwise."""

    name: str
    field: str
    here: int
    ec2: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The catalogue against one region of EC2."""

    region: str
    compared: tuple[str, ...]
    not_there: tuple[str, ...]  # types that the region does not have
    differences: tuple[Difference, ...]

    def describe(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def instances() -> tuple[Instance, ...]:
    """All instance types of the catalogue."""
    return tuple(load_catalogue().values())


def compare(*, region: str | None = None, client: Any = None) -> Comparison:
    """Read EC2, with the right `ec2:DescribeInstanceTypes`, and say what differs. `client` is boto3's for EC2.

    Raises:
        Forbidden: EC2 knows no such user, or the user may not read.
        Unreachable: no region is configured, or EC2 does not answer.
    """
    client = client or _client(region)
    found: dict[str, dict[str, int]] = {}
    known = load_catalogue()
    names = list(known)
    for start in range(0, len(names), AT_ONCE):
        for row in _described(client, names[start : start + AT_ONCE]):
            found[row["InstanceType"]] = figures(row)
    differences = [
        Difference(name=name, field=field, here=getattr(known[name], field), ec2=ec2[field])
        for name, ec2 in found.items()
        for field in COMPARED
        if getattr(known[name], field) != ec2[field]
    ]
    return Comparison(
        region=client.meta.region_name,
        compared=tuple(name for name in names if name in found),
        not_there=tuple(name for name in names if name not in found),
        differences=tuple(differences),
    )


def figures(row: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of the catalogue, out of one entry of EC2's DescribeInstanceTypes."""
    gpus = [gpu for gpu in row.get("GpuInfo", {}).get("Gpus", []) if gpu.get("Manufacturer") == "NVIDIA"]
    neuron = row.get("NeuronInfo", {}).get("NeuronDevices", [])
    return {
        "gpus": sum(gpu["Count"] for gpu in gpus),
        "gpu_memory": round(gpus[0]["MemoryInfo"]["SizeInMiB"] / MEBIBYTES) if gpus else _neuron_memory(neuron),
        "neuron": sum(device["Count"] for device in neuron),
        "efa": row.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "vcpus": row["VCpuInfo"]["DefaultVCpus"],
        "memory": round(row["MemoryInfo"]["SizeInMiB"] / MEBIBYTES),
    }


def _neuron_memory(devices: list[Mapping[str, Any]]) -> int:
    return round(devices[0].get("MemoryInfo", {}).get("SizeInMiB", 0) / MEBIBYTES) if devices else 0


def _client(region: str | None) -> Any:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.client("ec2", region_name=region)
    except BotoCoreError as err:
        raise _error(err) from err


def _described(client: Any, names: list[str]) -> Iterator[Mapping[str, Any]]:
    from botocore.exceptions import BotoCoreError, ClientError

    pages = client.get_paginator("describe_instance_types")
    try:  # a filter, since a type that the region does not have is an error in `InstanceTypes`
        for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": names}]):
            yield from page["InstanceTypes"]
    except (BotoCoreError, ClientError) as err:
        raise _error(err) from err


def _error(err: Exception) -> KfjobError:
    from botocore.exceptions import ClientError, CredentialRetrievalError, NoCredentialsError, NoRegionError

    if isinstance(err, NoRegionError):
        return Unreachable("no AWS region is configured", hint="`--region REGION`, or `aws configure set region REGION`")
    if isinstance(err, NoCredentialsError | CredentialRetrievalError | ClientError):
        hint = "it takes the right `ec2:DescribeInstanceTypes`; `aws sts get-caller-identity` shows who you are"
        return Forbidden("EC2 does not say what its instance types have", cause=str(err), hint=hint)
    return Unreachable("EC2 does not answer", cause=str(err))
