"""From the project's Dockerfile to a job, with the names that a user has on AWS.

moto provides the ECR API. The registry is Debian's, with TLS, user AWS and moto's token. kfjob, the builder and the node's
containerd resolve ECR's host name to it, each with its own configuration (`hosts.toml`, a separate hosts file).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
import yaml

from kfjob.base.errors import Forbidden
from kfjob.local.machine import free_port
from tests.cluster.facts import ROOT, Space, needs_own_cluster, script
from tests.image.aws import HOST, MotoAws, moto_aws
from tests.image.builders import buildah
from tests.image.conftest import MOTO_TOKEN, MOTO_TOKEN_HASHED
from tests.image.front import front, named
from tests.image.registries import RealRegistry, real_registry
from tests.image.tunnel import tunnel
from tests.kfjob_command import run_kfjob

# as in tests/cluster/harness/settings.sh
CLUSTER_REGISTRY, MACHINE = "127.0.0.1:26500", "10.201.0.1"
STATE = Path(os.environ.get("KFJOB_CLUSTER_STATE", "/var/lib/kfjob-cluster"))
SECRET = f"kfjob-pull-{HOST}"


@dataclass(frozen=True)
class User:
    """A user with an AWS account, a builder and a checkout."""

    folder: Path
    env: dict[str, str]
    aws: MotoAws

    def __call__(self, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = run_kfjob(argv, env=self.env, cwd=None, timeout=500)
        assert result.returncode == code, f"kfjob {' '.join(argv)} -> {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result


def base_image() -> str:
    response = urllib3.request("GET", f"http://{CLUSTER_REGISTRY}/v2/kfjob-test/base/tags/list", timeout=20)
    return f"{CLUSTER_REGISTRY}/kfjob-test/base:{min(response.json()['tags'])}"


def pip_secrets() -> Iterator[str]:
    """Yield build options for the machine's pip configuration, as tests/cluster/harness/images.sh finds it."""
    home = Path(os.environ.get("HOME", "/root"))
    for file in (os.environ.get("PIP_CONFIG_FILE", ""), home / ".config/pip/pip.conf", home / ".pip/pip.conf", "/etc/pip.conf"):
        if file and Path(file).is_file():
            yield from ("--secret", f"id=pip,src={file}")
            break
    authority = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    yield from ("--secret", f"id=ca,src={authority}")


def certs(folder: Path, registry: RealRegistry, address: str) -> Path:
    """Map ECR's host name to the registry, for kfjob on this machine and for the node during the test."""
    local, node = folder / "certs.d" / HOST, STATE / "certs.d" / HOST
    local.mkdir(parents=True)
    node.mkdir()
    (local / "hosts.toml").write_text(f'server = "https://{HOST}"\nca = "{registry.ca}"\n')
    (node / "hosts.toml").write_text(f'[host."https://{address}"]\ncapabilities = ["pull", "resolve"]\nskip_verify = true\n')
    return node


@pytest.fixture(scope="module")
def user(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    tmp_path = tmp_path_factory.mktemp("user")
    needs_own_cluster("changes the registries of the node's containerd")
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
        env |= stack.enter_context(tunnel({HOST: registry.port}))
        env |= dict.fromkeys(("NO_PROXY", "no_proxy"), f"127.0.0.1,{api_server(space)}")
        env["PATH"] = f"{builder.program.parent}:{env['PATH']}"
        yield User(tmp_path, env, aws)


def api_server(space: Space) -> str:
    """Return the host of the API server."""
    kubeconfig = yaml.safe_load(Path(space.facts.kubeconfig).read_text())
    return str(urllib3.util.parse_url(kubeconfig["clusters"][0]["cluster"]["server"]).host)


def kubectl(space: Space, *argv: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads(script("kubectl", "-n", space.name, *argv, "-o", "json"))
    return answer


def version_of(space: Space) -> tuple[str, str]:
    """Return the uid and the creation time of kfjob's pull secret."""
    metadata = kubectl(space, "get", "secret", SECRET)["metadata"]
    assert isinstance(metadata, dict)
    return metadata["uid"], metadata["annotations"]["kfjob.dev/made"]


@pytest.mark.long  # in CI test_llama2_eks builds, pushes and runs an image
def test_from_the_dockerfile_to_a_job(space: Space, user: User):
    spec = user.folder / "job.yaml"
    command = ["python3", "-m", "kfjob.image.components", "--require", "kfjob"]
    text = f"# mine\nname: pinned\nmake_pull_secret: true # twelve hours\ncommand: {json.dumps(command)}\n"
    spec.write_text(text)
    build = [str(ROOT), "--to", "team/fsdp", "--build-arg", "DEPENDENCIES=none", "--build-arg", "TORCH=none"]
    build += ["--base-image", base_image(), "--builder", "buildah", *pip_secrets()]
    result = user("push-image", *build, "--pin", str(spec))
    image = result.stdout.strip()
    assert image.startswith(f"{HOST}/team/fsdp:")
    assert spec.read_text() == text.replace("name: pinned\n", f"name: pinned\nimage: {image}\n")
    again = user("push-image", *build)
    assert again.stdout.strip() == image
    assert "nothing was pushed" in again.stderr

    user("submit", str(spec))
    user("wait", "pinned", "--timeout", "240")
    log = user("logs", "pinned", "--pod", "pinned-worker-0").stdout
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
    script("kubectl", "-n", space.name, "delete", "secret", SECRET)
    user("relaunch", "pinned")  # this creates the secret again
    second = version_of(space)
    assert second[0] != first["metadata"]["uid"]

    onto = user.folder / "onto"
    onto.mkdir()
    # a base in private ECR: the builder gets a login
    (onto / "Dockerfile").write_text(f"FROM {image}\nCOPY hello.py /hello.py\n")
    (onto / "hello.py").write_text("print('hello from a build')\n")
    spec.write_text(spec.read_text().replace("name: pinned", "name: built").replace(json.dumps(command), "python3 /hello.py"))
    user("submit", str(spec), "--build", str(onto), "--builder", "buildah")
    third = version_of(space)  # the submit of another job renews the secret in place
    assert (third[0], third[1] != second[1]) == (second[0], True)
    user("wait", "built", "--timeout", "240")
    assert "hello from a build" in user("logs", "built", "--pod", "built-worker-0").stdout
    recorded = kubectl(space, "get", "pytorchjob", "built")["metadata"]
    assert isinstance(recorded, dict)
    assert yaml.safe_load(recorded["annotations"]["kfjob.dev/spec"])["image"] != image
    for job in ("pinned", "built"):
        user("stop", job)


def test_rights_for_the_pull_secret(space: Space):
    needs_own_cluster("uses users that `scripts/cluster` creates")
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": space.name},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(b'{"auths": {}}').decode()},
    }
    with space.facts.user("submitter", space.name) as backend:
        with pytest.raises(Forbidden, match="not allowed to patch secrets"):
            backend.apply_object(manifest)
        script("kubectl", "-n", space.name, "apply", "-f", str(ROOT / "manifests/rbac/pull-secret.yaml"))
        deadline = time.monotonic() + 30  # the API server's authoriser sees the new role after a moment
        while True:
            try:
                backend.apply_object(manifest)
                break
            except Forbidden:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        backend.apply_object(manifest)
        other_secret = manifest | {"metadata": {"name": "other", "namespace": space.name}}
        with pytest.raises(Forbidden):
            backend.apply_object(other_secret)
