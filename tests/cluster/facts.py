"""Properties of the cluster under test, and a namespace for each test.

`KFJOB_TEST_KUBECONFIG` selects a cluster (with `KFJOB_TEST_IMAGE`, a job image with torch). The default is the cluster of
`scripts/cluster up`. Without a cluster the tests fail with a message. They never skip.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from kfjob.backends.base import ClusterBackend, JobRef
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import KfjobError
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.cluster.connect import connect
from kfjob.cluster.requests import Request
from kfjob.kinds.registry import find_kind
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from tests.cluster.outage import Proxy

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "contract" / "programs"
IN_POD = "/programs"  # their folder in a pod
PATIENCE = 120.0  # seconds: an image pull and two Python starts on a busy machine

# as in tests/cluster/harness/settings.sh
TORCH = {"name": "torch", "host_path": "/run/kfjob/site-packages", "mount_path": "/opt/host-site-packages", "read_only": True}
ETCD_IMAGE = "registry.kfjob.test/etcd:3.4"


@dataclass(frozen=True, kw_only=True)
class Facts:
    kubeconfig: str
    image: str
    volumes: tuple[Mapping[str, Any], ...]  # volumes with torch for the pods
    etcd_image: str

    def kubeconfig_of(self, user: str, namespace: str) -> str:
        """Return the kubeconfig of a `submitter` or `reader` (the roles in manifests/rbac), or of `nobody`."""
        return script("kubeconfig", "--user", user, "--namespace", namespace)

    def user(self, name: str, namespace: str) -> KubernetesBackend:
        """Return a backend with the rights of this user."""
        kubeconfig = self.kubeconfig_of(name, namespace)
        return KubernetesBackend.from_kubeconfig(kubeconfig=kubeconfig, namespace=namespace)


@cache
def facts() -> Facts:
    if own := os.environ.get("KFJOB_TEST_KUBECONFIG"):
        image, etcd = os.environ.get("KFJOB_TEST_IMAGE"), os.environ.get("KFJOB_TEST_ETCD_IMAGE", "quay.io/coreos/etcd:v3.4.37")
        assert image, "KFJOB_TEST_KUBECONFIG is set: set KFJOB_TEST_IMAGE too, to a job image that this cluster can pull"
        return Facts(kubeconfig=own, image=image, volumes=(), etcd_image=etcd)
    image = os.environ.get("KFJOB_TEST_IMAGE") or script("image")
    return Facts(kubeconfig=script("kubeconfig"), image=image, volumes=(TORCH,), etcd_image=ETCD_IMAGE)


def until(condition: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "timeout: the condition is still false"
        pause.wait(0.1)


def needs_own_cluster(reason: str) -> None:
    """Fail with a hint if the tests run on the cluster of `KFJOB_TEST_KUBECONFIG`."""
    assert not os.environ.get("KFJOB_TEST_KUBECONFIG"), (
        f"this test needs the cluster of `scripts/cluster up`, because it {reason}\n"
        "hint: unset KFJOB_TEST_KUBECONFIG, or skip the test with `--deselect`"
    )


@dataclass(frozen=True, kw_only=True)
class Space:
    """A namespace that belongs to one test."""

    name: str
    facts: Facts
    client: Client  # with all rights

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """Send a request for any object, with all rights."""
        verb = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        where: dict[str, Any] = {"path": path, "resource": "things", "namespace": self.name}
        return self.client.call(Request(method=method, verb=verb, body=body, content_type=kind, **where))

    def open(self) -> KubernetesBackend:
        return KubernetesBackend.from_kubeconfig(kubeconfig=self.facts.kubeconfig, namespace=self.name)

    @contextmanager
    def through_a_proxy(self, folder: Path) -> Iterator[tuple[KubernetesBackend, Proxy]]:
        """Open a backend behind a proxy whose connections the test can cut."""
        config = yaml.safe_load(Path(self.facts.kubeconfig).read_text())
        for cluster in config["clusters"]:
            address = urlsplit(cluster["cluster"]["server"])
            proxy = Proxy((address.hostname or "", address.port or 443))
            cluster["cluster"] |= {"server": f"https://127.0.0.1:{proxy.port}", "tls-server-name": address.hostname}
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        with closing(proxy), KubernetesBackend.from_kubeconfig(kubeconfig=path, namespace=self.name) as backend:
            yield backend, proxy

    def plan(self, name: str, command: list[str], *, launch: str = "1", kind: str = "", **spec: Any) -> JobPlan:
        """Plan a job that runs `command` in this namespace, with the volumes of this cluster."""
        volumes = (*self.facts.volumes, {"name": "programs", "config_map": "programs", "mount_path": IN_POD})
        job = JobSpec.model_validate({"name": name, "command": command, "image": self.facts.image, "volumes": volumes, **spec})
        context = Context(
            backend="kubernetes",
            launch=launch,
            namespace=self.name,
            etcd_image=self.facts.etcd_image,
            kind=kind,
            name_pods=find_kind(kind).name_hosts,
        )
        return resolve(job, context)


def submit(backend: ClusterBackend, plan: JobPlan, *, kind: str = "") -> JobRef:
    """Submit the objects of a plan."""
    return backend.submit(find_kind(kind).compile(plan))[0]


def apply(backend: ClusterBackend, plan: JobPlan, *, kind: str = "") -> JobRef:
    """Change the live job to the objects of a plan."""
    return backend.apply(find_kind(kind).compile(plan))[0]


@contextmanager
def space() -> Iterator[Space]:
    """Create a namespace with the programs of the contract suite; delete it at the end."""
    cluster = facts()
    client = connect(kubeconfig=cluster.kubeconfig).client
    own = Space(name=f"kfjob-test-{os.urandom(4).hex()}", facts=cluster, client=client)
    own.send("POST", "/api/v1/namespaces", {"metadata": {"name": own.name}})
    try:
        programs = {program.name: program.read_text() for program in PROGRAMS.iterdir() if program.is_file()}
        config = {"metadata": {"name": "programs"}, "data": programs}
        own.send("POST", f"/api/v1/namespaces/{own.name}/configmaps", config)
        yield own
    finally:
        with suppress(KfjobError):  # the test itself reports a lost cluster
            own.send("DELETE", f"/api/v1/namespaces/{own.name}")


def script(*arguments: str) -> str:
    """Run `scripts/cluster` and return its stdout."""
    result = subprocess.run([str(ROOT / "scripts" / "cluster"), *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, (
        f"`scripts/cluster {arguments[0]}` failed: {result.stderr.strip()}\n"
        "hint: `scripts/cluster up` starts a test cluster; or set KFJOB_TEST_KUBECONFIG and KFJOB_TEST_IMAGE"
    )
    return result.stdout.strip()
