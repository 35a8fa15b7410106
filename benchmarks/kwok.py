"""Jobs with many simulated pods: KWOK provides the nodes, and local files are the logs of the workers.

This module creates the pods itself, because the operator creates only about 20 objects a second; the operator ignores these
jobs. The API server serves the logs as from any kubelet, with `follow` and `tailLines`; lines appended to a file are followed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kfjob.backends.base import JobRef
from kfjob.backends.log_file import format_timestamp
from kfjob.base.errors import KfjobError
from kfjob.cluster.client import Client
from kfjob.cluster.requests import Request
from kfjob.joblog.events import JobSnapshot, PodPhase
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.registry import find_kind
from kfjob.kinds.trainjob import trainer_api
from kfjob.local.machine import free_port
from tests.cluster.facts import PATIENCE, ROOT, Space

STATE = Path(os.environ.get("KFJOB_CLUSTER_STATE", "/var/lib/kfjob-cluster"))
CACHE = Path(os.environ.get("KFJOB_CLUSTER_CACHE", Path.home() / ".cache/kfjob/cluster"))
HOST_IP = "10.201.0.1"  # the machine, as in tests/cluster/harness/settings.sh
KEY = "kfjob.dev/kwok"
PODS_PER_NODE = 110
_OTHER_MANAGER = "kueue.x-k8s.io/multikueue"
"""The manager of a job that no controller of this cluster touches."""

Line = tuple[int, str]
"""The time in nanoseconds since the epoch, and the text."""


def name_pod(kind: str, job: str, index: int) -> str:
    """Return the name of a pod; in a TrainJob five characters follow the host name, which are random on a real cluster."""
    return f"{job}-worker-{index}" if kind == operator_api.KIND else f"{trainer_api.name_pod(job, index)}-{index:05}"


def training(
    name: str, workers: int, *, printer: int, seconds: int = 60, kind: str = operator_api.KIND
) -> Callable[[int], Iterator[Line]]:
    """Return the worker logs of a job that started `seconds` ago; `printer` has rank 0 and prints one step per second."""
    hosts = find_kind(kind).name_hosts(name, workers, master=False)
    lead = "I1121 06:37:49.644000 1 torch/distributed/elastic/agent/server/api.py:552]"

    def lines(index: int) -> Iterator[Line]:
        start = time.time_ns() - seconds * 10**9
        rank = (index - printer) % workers
        fields = {
            "restart_count": 0,
            "master_addr": hosts[printer],
            "master_port": 29500,
            "group_rank": rank,
            "group_world_size": workers,
            "local_ranks": [0],
            "role_ranks": [rank],
            "global_ranks": [rank],
            "role_world_sizes": [workers],
            "global_world_sizes": [workers],
        }
        yield start, f"{lead} [default] Rendezvous complete for workers. Result:"
        yield from ((start + offset, f"{lead}   {field}={value}") for offset, (field, value) in enumerate(fields.items(), 1))
        yield from (
            (start + 100 + offset, f"{hosts[index].partition('.')[0]}:1:{offset} [0] NCCL INFO Channel {offset % 32:02}/0")
            for offset in range(200)
        )
        if rank == 0:
            for step in range(1, seconds):
                text = f"Batch {step} Loss: {8 - step / 100:.5f}, Speed: 8.00 samples/sec, lr: 0.000100"
                yield start + step * 10**9, f"2026-11-21 06:37:50 I [train.py:102] {text}"

    return lines


@dataclass(frozen=True, kw_only=True)
class Kwok:
    """A KWOK process with its own nodes, for one test."""

    space: Space
    folder: Path
    mark: str

    def log(self, pod: str) -> Path:
        """Return the log file of this pod."""
        return self.folder / f"{pod}.log"

    def job(self, name: str, workers: int, lines: Callable[[int], Iterable[Line]], *, kind: str = operator_api.KIND) -> JobRef:
        """Create a running job; `lines(index)` is the log of each worker."""
        for index in range(workers):
            append(self.log(name_pod(kind, name, index)), lines(index))
        metadata = {"name": name, "namespace": self.space.name}
        running: dict[str, Any]
        if kind == operator_api.KIND:
            spec = {"runPolicy": {"managedBy": _OTHER_MANAGER}, "pytorchReplicaSpecs": {"Worker": _worker(workers)}}
            condition = {"type": "Running", "status": "True", "lastTransitionTime": _now()}
            running = {"conditions": [condition], "startTime": _now()}
        else:
            self._send("POST", trainer_api.RUNTIME_RESOURCE, "", _runtime(metadata))
            reference = {"kind": trainer_api.RUNTIME_KIND, "name": name}
            spec = {"managedBy": _OTHER_MANAGER, "runtimeRef": reference, "trainer": {"numNodes": workers}}
            counts = {"active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}
            running = {"jobsStatus": [{"name": trainer_api.NODE, **counts}]}
        job_kind = find_kind(kind)
        manifest = {"apiVersion": job_kind.api_version, "kind": kind, "metadata": metadata, "spec": spec}
        job = self._send("POST", job_kind.resource, "", manifest)
        self._send("PATCH", job_kind.resource, f"{name}/status", {"status": running})
        uid = job["metadata"]["uid"]
        ref = JobRef(backend="kubernetes", namespace=self.space.name, name=name, uid=uid, job_kind=kind)
        for index in range(workers):
            self._send("POST", "pods", "", self._pod(ref, index))
        self._wait_for(ref, workers)
        return ref

    def _pod(self, ref: JobRef, index: int) -> dict[str, Any]:
        kind = find_kind(ref.job_kind)
        labels = (
            {
                operator_api.LABEL_JOB_NAME: ref.name,
                operator_api.LABEL_REPLICA_TYPE: "worker",
                operator_api.LABEL_REPLICA_INDEX: str(index),
            }
            if kind.name == operator_api.KIND
            else {
                trainer_api.LABEL_JOBSET: ref.name,
                trainer_api.LABEL_REPLICATED_JOB: trainer_api.NODE,
                trainer_api.INDEX: str(index),
            }
        )
        return {
            "metadata": {
                "name": name_pod(kind.name, ref.name, index),
                "labels": labels,
                "ownerReferences": [kind.make_owner_reference(ref.name, ref.uid) | {"controller": True}],
            },
            "spec": {
                "nodeName": f"{self.mark}-{index // PODS_PER_NODE}",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": kind.training_container, "image": "none"}],
                "terminationGracePeriodSeconds": 0,
            },
        }

    def _wait_for(self, ref: JobRef, workers: int) -> None:
        with self.space.open() as backend:
            deadline = time.monotonic() + PATIENCE + workers / 5
            while True:
                snapshot: JobSnapshot = backend.get(ref.name, namespace=ref.namespace)
                if sum(pod.phase is PodPhase.RUNNING for pod in snapshot.pods) == workers:
                    return
                assert time.monotonic() < deadline, "KWOK did not run the pods in time"
                time.sleep(0.2)

    def _send(self, method: str, resource: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return _send(self.space.client, method, f"namespaces/{self.space.name}/{resource}", name, body)


@contextmanager
def kwok(space: Space, folder: Path, jobs: Sequence[tuple[str, int]], *, kind: str = operator_api.KIND) -> Iterator[Kwok]:
    """Run KWOK for these jobs (name and number of workers) of a kind; remove nodes, pods and the process at the end."""
    mark = f"kwok-{os.urandom(4).hex()}"
    largest = max(workers for _, workers in jobs)
    cluster, container = Kwok(space=space, folder=folder, mark=mark), find_kind(kind).training_container
    logs = [
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Logs",
            "metadata": {"name": name_pod(kind, name, index), "namespace": space.name},
            "spec": {
                "logs": [{"containers": [container], "logsFile": str(cluster.log(name_pod(kind, name, index))), "follow": True}]
            },
        }
        for name, workers in jobs
        for index in range(workers)
    ]
    (folder / "kwok.yaml").write_text(yaml.safe_dump_all(logs))
    port = free_port()
    _certificate(folder)
    program = _program()
    command = [
        str(program),
        f"--kubeconfig={space.facts.kubeconfig}",
        f"--config={folder / 'kwok.yaml'}",
        f"--node-ip={HOST_IP}",
        f"--node-port={port}",
        f"--server-address={HOST_IP}:{port}",
        f"--manage-nodes-with-annotation-selector={KEY}={mark}",
        "--node-lease-duration-seconds=40",
        f"--tls-cert-file={folder / 'kwok.crt'}",
        f"--tls-private-key-file={folder / 'kwok.key'}",
    ]
    nodes = [f"{mark}-{number}" for number in range(-(-largest // PODS_PER_NODE))]
    with (folder / "kwok.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for node in nodes:
                _send(space.client, "POST", "nodes", "", _node(node, mark))
            yield cluster
        finally:
            with suppress(KfjobError):
                _send(space.client, "DELETE", f"namespaces/{space.name}/pods", "", {"gracePeriodSeconds": 0})
            for node in nodes:
                with suppress(KfjobError):
                    _send(space.client, "DELETE", "nodes", node, None)
            process.terminate()
            process.wait(20)


def append(file: Path, lines: Iterable[Line]) -> None:
    """Append lines to a log in the format of a container runtime."""
    with file.open("ab") as out:
        out.write(b"".join(format_timestamp(time_ns) + b"stdout F " + text.encode() + b"\n" for time_ns, text in lines))


def _runtime(metadata: Mapping[str, Any]) -> dict[str, Any]:
    node = {"spec": {"template": {"spec": {"containers": [{"name": trainer_api.NODE, "image": "none"}]}}}}
    return {
        "apiVersion": trainer_api.API_VERSION,
        "kind": trainer_api.RUNTIME_KIND,
        "metadata": metadata,
        "spec": {"template": {"spec": {"replicatedJobs": [{"name": trainer_api.NODE, "template": node}]}}},
    }


def _worker(replicas: int) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}}


def _node(name: str, mark: str) -> dict[str, Any]:
    resources = {"cpu": "192", "memory": "2Ti", "pods": str(PODS_PER_NODE)}
    return {
        "metadata": {"name": name, "annotations": {KEY: mark}, "labels": {KEY: mark, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": KEY, "value": mark, "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _certificate(folder: Path) -> None:
    """Create a certificate that the cluster's authority signs; the API server accepts no other."""
    authority = STATE / "pki" / "ca"
    (folder / "names").write_text(f"subjectAltName=IP:{HOST_IP}\n")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=kwok"]
    files = ["-keyout", str(folder / "kwok.key"), "-out", str(folder / "kwok.csr")]
    subprocess.run(["openssl", "req", *new, *files], check=True, capture_output=True)
    signer = ["-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial", "-CAserial", str(folder / "serial")]
    request = ["-req", "-in", str(folder / "kwok.csr"), "-days", "2", "-extfile", str(folder / "names")]
    subprocess.run(["openssl", "x509", *request, *signer, "-out", str(folder / "kwok.crt")], check=True, capture_output=True)


def _program() -> Path:
    """Return the path of KWOK; build it into the cluster's cache if it is missing (two minutes, once)."""
    parts = "for part in settings machine build process; do . tests/cluster/harness/$part.sh; done"
    build = f"set -Eeuo pipefail; ROOT=$PWD; {parts}; built kwok"
    result = subprocess.run(["bash", "-c", build], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"the build of KWOK failed: {result.stderr}"
    return CACHE / "bin" / "kwok"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _send(client: Client, method: str, path: str, name: str, body: dict[str, Any] | None) -> dict[str, Any]:
    resource = path.rpartition("/")[2]
    groups = {
        operator_api.RESOURCE: f"/apis/{operator_api.API_VERSION}",
        **dict.fromkeys((trainer_api.RESOURCE, trainer_api.RUNTIME_RESOURCE), f"/apis/{trainer_api.API_VERSION}"),
    }
    group = groups.get(resource, "/api/v1")
    verb = {"POST": "create", "DELETE": "delete", "PATCH": "patch"}[method]
    return client.call(
        Request(
            method=method,
            path=f"{group}/{path}" + (f"/{name}" if name else ""),
            verb=verb,
            resource=resource,
            namespace="",
            body=body,
            content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
        )
    )
