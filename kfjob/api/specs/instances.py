"""The catalogue of instance types, and its comparison with EC2."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kfjob.api.settings import INSTANCES_FILE, read_saved_instances
from kfjob.backends import folder
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Forbidden, KfjobError, Unreachable
from kfjob.spec.instances import Instance, add_instances, load_catalogue

COMPARED = ("gpus", "gpu_memory", "neuron", "efa", "vcpus", "memory")
FILTER_VALUES = 100  # EC2 allows at most 200 values in a filter
MIB_PER_GIB = 1024
EC2 = "EC2"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A number that differs between the catalogue and EC2."""

    name: str
    field: str
    catalogue: int
    ec2: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between the catalogue and a region of EC2."""

    region: str
    compared: tuple[str, ...]
    missing: tuple[str, ...]  # types that the region does not offer
    differences: tuple[Difference, ...]
    added: tuple[Instance, ...] = ()  # types with GPUs or Neuron devices that only EC2 knows

    def describe(self) -> JsonObject:
        """Return the comparison as data for JSON."""
        return asdict(self)


def compare_with_ec2(*, region: str | None = None, client: Any = None) -> Comparison:
    """Compare the catalogue with EC2. Needs the permission `ec2:DescribeInstanceTypes`; `client` is boto3's for EC2.

    Raises:
        Forbidden: EC2 refuses the credentials, or there are no credentials.
        Unreachable: no region is configured, or EC2 does not answer.
    """
    client = client or _client(region)
    catalogue = load_catalogue()
    names = list(catalogue)
    ec2: dict[str, dict[str, int]] = {}
    for start in range(0, len(names), FILTER_VALUES):
        for row in _describe_types(client, names[start : start + FILTER_VALUES]):
            ec2[row["InstanceType"]] = read_numbers(row)
    differences = [
        Difference(name=name, field=field, catalogue=getattr(catalogue[name], field), ec2=numbers[field])
        for name, numbers in ec2.items()
        for field in COMPARED
        if getattr(catalogue[name], field) != numbers[field]
    ]
    new_rows = [row for row in _describe_accelerated(client) if row["InstanceType"] not in catalogue]
    return Comparison(
        added=tuple(read_instance(row) for row in new_rows if _is_usable(row)),
        region=client.meta.region_name,
        compared=tuple(name for name in names if name in ec2),
        missing=tuple(name for name in names if name not in ec2),
        differences=tuple(differences),
    )


def save_instances(added: Sequence[Instance], state: Path) -> Path:
    """Write instance types, with those that were saved before, to the state folder, and use them from now on."""
    file = state / INSTANCES_FILE
    rows = {instance.name: instance for instance in (*read_saved_instances(state), *added)}
    folder.make_private(folder.check_state_folder(state))
    folder.replace_file(file, json.dumps([asdict(instance) for instance in rows.values()], indent=1) + "\n")
    add_instances(rows.values())
    return file


def read_instance(row: JsonMapping) -> Instance:
    """Return the instance type of an entry of EC2's DescribeInstanceTypes."""
    devices = (row.get("GpuInfo") or {}).get("Gpus") or (row.get("NeuronInfo") or {}).get("NeuronDevices") or [{}]
    cores = (devices[0].get("CoreInfo") or {}).get("Count", 0)
    return Instance(
        name=row["InstanceType"],
        accelerator=devices[0].get("Name") or "unknown",
        **read_numbers(row),
        neuron_cores=cores,
        capability="",
        source=EC2,
    )


def _is_usable(row: JsonMapping) -> bool:
    numbers = read_numbers(row)
    return bool(numbers["gpus"] or numbers["neuron"])


def read_numbers(row: JsonMapping) -> dict[str, int]:
    """Return the catalogue's numbers from an entry of EC2's DescribeInstanceTypes; memory in GiB."""
    gpus = [gpu for gpu in (row.get("GpuInfo") or {}).get("Gpus", []) if gpu.get("Manufacturer") == "NVIDIA"]
    neuron = (row.get("NeuronInfo") or {}).get("NeuronDevices", [])
    return {
        "gpus": sum(gpu["Count"] for gpu in gpus),
        "gpu_memory": round(gpus[0]["MemoryInfo"]["SizeInMiB"] / MIB_PER_GIB) if gpus else _neuron_memory(neuron),
        "neuron": sum(device["Count"] for device in neuron),
        "efa": row.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "vcpus": row["VCpuInfo"]["DefaultVCpus"],
        "memory": round(row["MemoryInfo"]["SizeInMiB"] / MIB_PER_GIB),
    }


def _neuron_memory(devices: Sequence[JsonMapping]) -> int:
    return round(devices[0].get("MemoryInfo", {}).get("SizeInMiB", 0) / MIB_PER_GIB) if devices else 0


def _describe_accelerated(client: Any) -> Iterator[JsonMapping]:
    """Yield the types of the families with accelerators."""
    return _describe_types(client, ["p*", "g*", "trn*", "inf*"])


def _client(region: str | None) -> Any:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.client("ec2", region_name=region)
    except BotoCoreError as err:
        raise _make_error(err) from err


def _describe_types(client: Any, names: list[str]) -> Iterator[JsonMapping]:
    """Yield the types of these names, which may have wildcards."""
    from botocore.exceptions import BotoCoreError, ClientError

    pages = client.get_paginator("describe_instance_types")
    try:  # a filter, because `InstanceTypes` fails for a type that the region does not offer
        for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": names}]):
            yield from page["InstanceTypes"]
    except (BotoCoreError, ClientError) as err:
        raise _make_error(err) from err


def _make_error(err: Exception) -> KfjobError:
    from botocore.exceptions import ClientError, CredentialRetrievalError, NoCredentialsError, NoRegionError

    if isinstance(err, NoRegionError):
        return Unreachable("no AWS region is configured", hint="`--region REGION`, or `aws configure set region REGION`")
    if isinstance(err, NoCredentialsError | CredentialRetrievalError | ClientError):
        hint = "`ec2:DescribeInstanceTypes` must be allowed; `aws sts get-caller-identity` shows the identity"
        return Forbidden("EC2 did not return its instance types", cause=str(err), hint=hint)
    return Unreachable("EC2 does not answer", cause=str(err))
