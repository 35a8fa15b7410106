"""Image checks against a real registry."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.api.images.check import ImageInspector, check_job_images
from kfjob.api.planning import make_prepared
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.base.errors import Forbidden, NotFound, Refused, UsageError
from kfjob.local.machine import free_port
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from tests.image.images import FORMS, push_image
from tests.image.registries import PASSWORD, USER, RealRegistry, real_registry, store_login
from tests.pytorchjobs import KIND


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "none"))


@dataclass
class Cluster:
    """A cluster with nodes and secrets; reading a secret that is None is forbidden."""

    architectures: frozenset[str]
    secrets: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)

    def node_architectures(self) -> frozenset[str]:
        return self.architectures

    def inventory(self, namespace: str) -> Cluster:
        assert namespace == "default"
        return self

    def get_object(self, api_version: str, resource: str, name: str) -> dict[str, Any] | None:
        assert (api_version, resource) == ("v1", "secrets")
        if name in self.secrets and self.secrets[name] is None:
            raise Forbidden("not allowed to get secrets")
        return self.secrets.get(name)


def target(
    tmp_path: Path, *nodes: str, check: bool = True, secrets: Mapping[str, dict[str, Any] | None] | None = None
) -> Target:
    cluster_target = Target(Settings(state=tmp_path, image_check=check), "kubernetes", "default")
    cluster_target.__dict__["cluster"] = Cluster(frozenset(nodes), secrets or {})
    return cluster_target


def pull_secret(host: str, password: str) -> dict[str, Any]:
    auth = b64encode(f"{USER}:{password}".encode()).decode()
    config = {"auths": {host: {"auth": auth}}, "credsStore": "must-not-be-started"}
    return {"data": {".dockerconfigjson": b64encode(json.dumps(config).encode()).decode()}}


@pytest.fixture
def private(tmp_path: Path) -> Iterator[RealRegistry]:
    """Yield a registry with TLS, a user and an image."""
    (tmp_path / "private").mkdir()
    with real_registry(tmp_path / "private", tls=True) as registry:
        certs = tmp_path / "none" / registry.host
        certs.mkdir(parents=True)
        assert registry.ca
        (certs / "ca.crt").write_bytes(registry.ca.read_bytes())
        with registry.open() as opened:
            push_image(opened, "train", "1", "oci")
        yield registry


def plan(image: str, **spec: Any) -> JobPlan:
    job_spec = JobSpec.model_validate({"name": "a", "image": image, "command": "c", **spec})
    return resolve(job_spec, Context(backend="kubernetes", launch="1"))


def check_plan(target: Target, job_plan: JobPlan, **options: Any) -> None:
    """Check the images of a plan's objects."""
    job = make_prepared(job_plan.spec, job_plan, KIND.compile(job_plan), target)
    check_job_images(job, **options)


@pytest.mark.parametrize("form", FORMS)
def test_metadata_of_every_image_form(plain: RealRegistry, form: str):
    with plain.open() as opened:
        top = push_image(opened, "facts", form, form)
    metadata = ImageInspector().inspect(f"{plain.host}/facts:{form}").metadata
    assert metadata.digest == top.digest
    assert metadata.platforms == (("linux/amd64", "linux/arm64/v8") if form.endswith("index") else ("linux/amd64",))
    assert metadata.labels == {"who": "the base"}
    assert metadata.size > 100
    assert metadata.runs_on("amd64")
    assert metadata.runs_on("arm64") == form.endswith("index")
    assert not metadata.runs_on("arm")
    assert ImageInspector().inspect(f"{plain.host}/facts@{top.digest}").metadata == metadata


def test_missing_image_is_an_error_with_a_similar_tag(plain: RealRegistry, tmp_path: Path):
    with plain.open() as opened:
        push_image(opened, "near", "v1.2", "oci")
    with pytest.raises(NotFound) as caught:
        check_plan(target(tmp_path), plan(f"{plain.host}/near:v1.3"), notify=pytest.fail)
    assert caught.value.title == f"image `{plain.host}/near:v1.3` does not exist"
    assert caught.value.hint == f"did you mean `{plain.host}/near:v1.2`?"
    with pytest.raises(NotFound):
        check_plan(target(tmp_path), plan(f"{plain.host}/nothing:v1@sha256:{'0' * 64}"), notify=pytest.fail)


@pytest.mark.parametrize(
    ("nodes", "spec", "taken"),
    [
        (["amd64"], {}, True),
        (["amd64", "arm64"], {}, True),
        ([], {}, True),  # nodes may not be listed: nobody knows
        (["arm64"], {}, False),
        (["arm64"], {"instance": "p4d.24xlarge"}, True),  # what the spec asks for counts, not what happens to be there
        (["amd64"], {"scheduling": {"node_selector": {"kubernetes.io/arch": "arm64"}}}, False),
    ],
)
def test_image_must_have_a_variant_for_the_nodes(plain: RealRegistry, tmp_path: Path, nodes, spec, taken):
    with plain.open() as opened:
        push_image(opened, "one", "v1", "oci")
        push_image(opened, "both", "v1", "oci-index")
    cluster_target = target(tmp_path, *nodes)
    check_plan(cluster_target, plan(f"{plain.host}/both:v1", **spec), notify=pytest.fail)
    if taken:
        check_plan(cluster_target, plan(f"{plain.host}/one:v1", **spec), notify=pytest.fail)
        return
    with pytest.raises(Refused, match="architecture of the nodes") as caught:
        check_plan(cluster_target, plan(f"{plain.host}/one:v1", **spec), notify=pytest.fail)
    assert caught.value.cause == "it has variants for linux/amd64, and the nodes are arm64"


def test_unreachable_registry_is_only_a_notice(tmp_path: Path):
    notices: list[str] = []
    image = f"127.0.0.1:{free_port()}/a:1"
    check_plan(target(tmp_path), plan(image), notify=notices.append)
    assert len(notices) == 1
    assert notices[0].startswith(f"image `{image}` was not checked: ")


def test_check_uses_the_pods_pull_secrets(private: RealRegistry, tmp_path: Path):
    image = f"{private.host}/train"
    cluster_target = target(
        tmp_path, secrets={"mine": pull_secret(private.host, PASSWORD), "other": pull_secret("a.example", "x")}
    )
    names = ["other", "mine"]
    check_plan(cluster_target, plan(f"{image}:1", image_pull_secrets=names), notify=pytest.fail)
    with pytest.raises(NotFound) as caught:
        check_plan(cluster_target, plan(f"{image}:11", image_pull_secrets=names), notify=pytest.fail)
    assert caught.value.hint == f"did you mean `{image}:1`?"


def test_credential_helper_of_a_secret_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "docker-credential-must-not-be-started"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    image = f"127.0.0.1:{free_port()}/a:1"
    cluster_target = target(tmp_path, secrets={"mine": pull_secret("other.example", "x")})
    check_plan(cluster_target, plan(image, image_pull_secrets=["mine"]), notify=lambda _text: None)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("secret", ["unreadable", "damaged", "wrong", "absent", "other"])
def test_useless_pull_secret_falls_back_to_own_login(private: RealRegistry, tmp_path: Path, secret: str):
    secrets = {
        "unreadable": None,
        "damaged": {"data": {".dockerconfigjson": "?"}},
        "wrong": pull_secret(private.host, "wrong"),
        "other": pull_secret("a.example", PASSWORD),
    }
    cluster_target, notices = target(tmp_path, secrets=secrets), list[str]()
    job_plan = plan(f"{private.host}/train:1", image_pull_secrets=[secret])
    check_plan(cluster_target, job_plan, notify=notices.append)
    assert len(notices) == 1  # nobody is logged in here
    assert "authentication required" in notices[0]
    store_login(tmp_path, private.host)
    notices.clear()
    check_plan(cluster_target, job_plan, notify=notices.append)
    warnings = [text.partition(" does not give access")[0] for text in notices]
    assert warnings == {"wrong": ["warning: pull secret `wrong`"]}.get(secret, [])


def test_images_of_init_containers_and_sidecars_are_checked(plain: RealRegistry, tmp_path: Path):
    with plain.open() as opened:
        push_image(opened, "whole", "1", "oci")
    image, absent = f"{plain.host}/whole:1", f"{plain.host}/whole:2"
    for field_, what in (("init_containers", "init container"), ("sidecars", "sidecar")):
        container = {"name": "beside", "image": absent}
        with pytest.raises(NotFound) as caught:
            check_plan(target(tmp_path), plan(image, pod={field_: [container]}), notify=pytest.fail)
        assert caught.value.location == f"{what} `beside`"
        check_plan(target(tmp_path), plan(image, pod={field_: [{**container, "image": image}]}), notify=pytest.fail)
        never = {**container, "imagePullPolicy": "Never"}
        check_plan(target(tmp_path), plan(image, pod={field_: [never]}), notify=pytest.fail)
    with pytest.raises(Refused) as refused:
        check_plan(
            target(tmp_path, "arm64"), plan(image, pod={"sidecars": [{"name": "beside", "image": image}]}), notify=pytest.fail
        )
    assert refused.value.location is None  # the training container's, and said once


def test_unreadable_login_is_only_a_notice(private: RealRegistry, tmp_path: Path):
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text("?")
    notices: list[str] = []
    check_plan(target(tmp_path), plan(f"{private.host}/train:1"), notify=notices.append)
    assert "the stored logins cannot be read" in notices[0]


def test_invalid_reference_is_refused(tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        check_plan(
            target(tmp_path), plan("127.0.0.1:1/a:1", pod={"init_containers": [{"name": "i", "image": "A B"}]}), notify=print
        )
    assert caught.value.location == "init container `i`"


def test_disabled_check_and_pull_policy_never_send_no_request(tmp_path: Path):
    absent = f"127.0.0.1:{free_port()}/a:1"
    check_plan(target(tmp_path, check=False), plan(absent), notify=pytest.fail)
    check_plan(target(tmp_path), plan(absent, image_pull_policy="Never"), notify=pytest.fail)
    check_plan(replace(target(tmp_path), name="local"), plan(absent), notify=pytest.fail)
