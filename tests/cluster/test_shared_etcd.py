"""Rendezvous on the real cluster in a shared etcd with TLS and client certificates."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kfjob.cluster import requests
from kfjob.cluster.backend import KubernetesBackend
from kfjob.joblog.events import JobChanged, JobPhase
from tests.cluster.facts import Space, submit

HOST = "shared-etcd"
CERTIFICATES = "/certificates"
FILES = {part: f"{CERTIFICATES}/{part}" for part in ("ca.crt", "tls.crt", "tls.key")}
FORK = ("--start-method=fork", "--run-path")  # the agent forks its rank, so torch is imported once
KEY = ("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out")


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a certificate authority, and one certificate for the server and its clients."""
    folder = tmp_path_factory.mktemp("certificates")
    openssl(folder, *KEY, "ca.key")
    openssl(folder, "req", "-x509", "-new", "-key", "ca.key", "-days", "2", "-subj", "/CN=test authority", "-out", "ca.crt")
    openssl(folder, *KEY, "tls.key")
    openssl(folder, "req", "-new", "-key", "tls.key", "-subj", f"/CN={HOST}", "-out", "tls.csr")
    (folder / "names").write_text(f"subjectAltName=DNS:{HOST}\nextendedKeyUsage=serverAuth,clientAuth\n")
    signed = ("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl(folder, *signed, "-extfile", "names", "-out", "tls.crt")
    return folder


@pytest.fixture(scope="module")
def etcd(space: Space, certificates: Path) -> str:
    """Create an etcd that requires client certificates, and return its endpoint."""
    secret = {part: base64.b64encode((certificates / part).read_bytes()).decode() for part in FILES}
    metadata = {"name": "etcd-client", "namespace": space.name}
    secret_manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": secret}
    for manifest in (secret_manifest, server(space), service(space)):
        space.client.call(requests.create(manifest))
    return f"{HOST}:2379"


def server(space: Space) -> dict[str, Any]:
    mount = [{"name": "certificates", "mountPath": CERTIFICATES}]
    command = [
        "etcd",
        "--enable-v2=true",
        "--data-dir=/data/etcd",
        "--listen-client-urls=https://0.0.0.0:2379",
        f"--advertise-client-urls=https://{HOST}:2379",
        f"--cert-file={FILES['tls.crt']}",
        f"--key-file={FILES['tls.key']}",
        f"--trusted-ca-file={FILES['ca.crt']}",
        "--client-cert-auth",
    ]
    data = [*mount, {"name": "data", "mountPath": "/data"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": HOST, "namespace": space.name, "labels": {"app": HOST}},
        "spec": {
            "containers": [{"name": "etcd", "image": space.facts.etcd_image, "command": command, "volumeMounts": data}],
            "volumes": [{"name": "certificates", "secret": {"secretName": "etcd-client"}}, {"name": "data", "emptyDir": {}}],
        },
    }


def service(space: Space) -> dict[str, Any]:
    ports = [{"port": 2379}]
    metadata = {"name": HOST, "namespace": space.name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {"app": HOST}, "ports": ports}}


@pytest.mark.parametrize("kind", ["etcd-v2", pytest.param("etcd", marks=pytest.mark.long)])  # tests/local has both, without TLS
def test_rendezvous_over_tls(space: Space, backend: KubernetesBackend, name: str, etcd: str, kind: str):
    rendezvous = {"backend": kind, "endpoint": etcd, "tls": {"secret": "etcd-client", "client_certificate": True}}
    plan = space.plan(name, ["torchrun", *FORK, "/programs/reduce.py"], nodes=2, rendezvous=rendezvous)
    ref = submit(backend, plan)
    (end,) = [event for event in backend.watch(ref) if isinstance(event, JobChanged) and event.phase.ended]
    assert end.phase is JobPhase.SUCCEEDED, end.message
    backend.stop(ref, timeout=60)
