"""From the project's Dockerfile to a job, by the very names that a person on AWS has.

ECR's API is moto's. Its registry is Debian's, under TLS, with user AWS and moto's token; ECR's host name leads to it for
kfjob, for the builder and for the node's containerd, each by what it reads for that (`hosts.toml`, a hosts file of its own).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
import yaml

from kfjob.errors import Forbidden
from tests.cluster.facts import ROOT, Space, needs_own_cluster
from tests.image.aws import HOST, MotoAws, free_port, moto_aws
from tests.image.builders import buildah
from tests.image.conftest import MOTO_TOKEN, MOTO_TOKEN_HASHED
from tests.image.front import front, named
from tests.image.registries import RealRegistry, real_registry

KFJOB = str(Path(sys.executable).with_name("kfjob"))
# as tests/cluster/harness/settings.sh has them
CLUSTER_REGISTRY, MACHINE = "127.0.0.1:26500", "10.201.0.1"
STATE = Path(os.environ.get("KFJOB_CLUSTER_STATE", "/var/lib/kfjob-cluster"))
SECRET = f"kfjob-pull-{HOST}"


@dataclass(frozen=True)
class Person:
    """Somebody with an AWS account, a builder and a checkout."""

    folder: Path
    env: dict[str, str]
    aws: MotoAws

    def __call__(self, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([KFJOB, *argv], env=self.env, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == code, f"kfjob {' '.join(argv)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


def base_image() -> str:
    answer = urllib3.request("GET", f"http://{CLUSTER_REGISTRY}/v2/kfjob-test/base/tags/list", timeout=20)
    return f"{CLUSTER_REGISTRY}/kfjob-test/base:{min(answer.json()['tags'])}"


def pip_secrets() -> Iterator[str]:
    """The machine's way to its package index, as tests/cluster/harness/images.sh finds it."""
    home = Path(os.environ.get("HOME", "/root"))
    for file in (os.environ.get("PIP_CONFIG_FILE", ""), home / ".config/pip/pip.conf", home / ".pip/pip.conf", "/etc/pip.conf"):
        if file and Path(file).is_file():
            yield from ("--secret", f"id=pip,src={file}")
            break
    authority = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    yield from ("--secret", f"id=ca,src={authority}")


def certs(folder: Path, registry: RealRegistry, address: str) -> Path:
    """ECR's name leads to the registry: for kfjob here, and for the node as long as the test lasts."""
    ours, nodes = folder / "certs.d" / HOST, STATE / "certs.d" / HOST
    ours.mkdir(parents=True)
    nodes.mkdir()
    (ours / "hosts.toml").write_text(f'[host."https://{registry.host}"]\nca = "{registry.ca}"\n')
    (nodes / "hosts.toml").write_text(f'[host."https://{address}"]\ncapabilities = ["pull", "resolve"]\nskip_verify = true\n')
    return nodes


@pytest.fixture
def person(space: Space, tmp_path: Path) -> Iterator[Person]:
    needs_own_cluster("gives the node's containerd a registry of its own")
    for name in ("registry", "home"):
        (tmp_path / name).mkdir()
    with ExitStack() as stack:
        aws = stack.enter_context(moto_aws())
        registry = stack.enter_context(real_registry(tmp_path / "registry", tls=True))
        (registry.folder / "htpasswd").write_text(f"AWS:{MOTO_TOKEN_HASHED}\n")
        port = free_port()
        stack.enter_context(front(registry.port, MACHINE, port))
        name = stack.enter_context(front(registry.port))
        stack.callback(shutil.rmtree, certs(tmp_path, registry, f"{MACHINE}:{port}"))
        builder = named(buildah(tmp_path / "buildah"), tmp_path / "named", HOST, name, CLUSTER_REGISTRY)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("KFJOB_", "AWS_"))}
        env |= aws.environment() | builder.environment
        env |= {"KUBECONFIG": space.facts.kubeconfig, "KFJOB_NAMESPACE": space.name, "HOME": str(tmp_path / "home")}
        env |= {"KFJOB_STATE": str(tmp_path / "state"), "KFJOB_REGISTRY_CERTS": str(tmp_path / "certs.d")}
        env["PATH"] = f"{builder.program.parent}:{env['PATH']}"
        yield Person(tmp_path, env, aws)


def kubectl(space: Space, *argv: str) -> dict[str, object]:
    done = subprocess.run(
        ["scripts/cluster", "kubectl", "-n", space.name, *argv, "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def version_of(space: Space) -> tuple[str, str]:
    """(uid, when it was made) of the secret that kfjob keeps."""
    metadata = kubectl(space, "get", "secret", SECRET)["metadata"]
    assert isinstance(metadata, dict)
    return metadata["uid"], metadata["annotations"]["kfjob.dev/made"]


def test_from_the_dockerfile_to_a_job(space: Space, person: Person):
    spec = person.folder / "job.yaml"
    command = ["python3", "-m", "kfjob.image.components", "--require", "kfjob"]
    text = f"# mine\nname: pinned\nmake_pull_secret: true # twelve hours\ncommand: {json.dumps(command)}\n"
    spec.write_text(text)
    build = [str(ROOT), "--to", "team/fsdp", "--build-arg", "DEPENDENCIES=none", "--build-arg", "TORCH=none"]
    build += ["--base-image", base_image(), "--builder", "buildah", *pip_secrets()]
    done = person("push-image", *build, "--pin", str(spec))
    image = done.stdout.strip()
    assert image.startswith(f"{HOST}/team/fsdp:")
    assert spec.read_text() == text.replace("name: pinned\n", f"name: pinned\nimage: {image}\n")
    again = person("push-image", *build)
    assert again.stdout.strip() == image
    assert "nothing was pushed" in again.stderr

    person("submit", str(spec))
    person("wait", "pinned", "--timeout", "240")
    log = person("logs", "pinned", "--pod", "pinned-worker-0").stdout
    assert "ok  kfjob" in log
    assert "--  torch" in log  # TORCH=none
    status = kubectl(space, "get", "pod", "pinned-worker-0")["status"]
    assert isinstance(status, dict)
    assert status["containerStatuses"][0]["imageID"] == f"{HOST}/team/fsdp@{image.rpartition('@')[2]}"

    first = kubectl(space, "get", "secret", SECRET)
    assert isinstance(first["data"], dict)
    assert isinstance(first["metadata"], dict)
    auths = json.loads(base64.b64decode(first["data"][".dockerconfigjson"]))["auths"]
    assert base64.b64decode(auths[HOST]["auth"]).decode() == f"AWS:{MOTO_TOKEN}"
    subprocess.run(["scripts/cluster", "kubectl", "-n", space.name, "delete", "secret", SECRET], cwd=ROOT, check=True)
    person("relaunch", "pinned")  # makes it anew
    second = version_of(space)
    assert second[0] != first["metadata"]["uid"]

    onto = person.folder / "onto"
    onto.mkdir()
    (onto / "Dockerfile").write_text(
        f"FROM {image}\nCOPY hello.py /hello.py\n"
    )  # a base in private ECR: the builder is lent a login
    (onto / "hello.py").write_text("print('hello from a build')\n")
    spec.write_text(spec.read_text().replace("name: pinned", "name: built").replace(json.dumps(command), "python3 /hello.py"))
    person("submit", str(spec), "--build", str(onto), "--builder", "buildah")
    third = version_of(space)  # another job's submit has renewed it in its place
    assert (third[0], third[1] != second[1]) == (second[0], True)
    person("wait", "built", "--timeout", "240")
    assert "hello from a build" in person("logs", "built", "--pod", "built-worker-0").stdout
    recorded = kubectl(space, "get", "pytorchjob", "built")["metadata"]
    assert isinstance(recorded, dict)
    assert yaml.safe_load(recorded["annotations"]["kfjob.dev/spec"])["image"] != image
    for job in ("pinned", "built"):
        person("stop", job)


def test_the_rights_that_a_kept_secret_needs(space: Space):
    needs_own_cluster("asks as users that `scripts/cluster` makes")
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": space.name},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(b'{"auths": {}}').decode()},
    }
    with space.facts.user("submitter", space.name) as backend:
        with pytest.raises(Forbidden, match="not allowed to patch secrets"):
            backend.keep(manifest)
        argv = ["scripts/cluster", "kubectl", "-n", space.name, "apply", "-f", "manifests/rbac/pull-secret.yaml"]
        subprocess.run(argv, cwd=ROOT, check=True)
        deadline = time.monotonic() + 30  # the API server's authoriser learns of it in a moment
        while True:
            try:
                backend.keep(manifest)
                break
            except Forbidden:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        backend.keep(manifest)
        other = manifest | {"metadata": {"name": "other", "namespace": space.name}}
        with pytest.raises(Forbidden):
            backend.keep(other)
