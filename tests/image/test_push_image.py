"""`push-image` with a real builder; moto stands in for ECR's API, and Debian's docker-registry for its registry."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kfjob import ImageSpec, push_image
from kfjob.api.images.build import CONTENT_LABEL, compute_content_hash, make_build_request
from kfjob.api.images.push_image import Listener, build_and_push
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import UsageError
from kfjob.cli.commands import run
from kfjob.image.registry.documents import OCI_MANIFEST
from tests.image.aws import ACCOUNT, HOST, REGION, MotoAws
from tests.image.builders import Buildah, context
from tests.image.registries import RealRegistry, manifest_of


def spec(source: Path, to: str, **more: object) -> ImageSpec:
    return ImageSpec.model_validate({"context": str(source), "to": to, "builder": "buildah"} | more)


def test_second_push_sends_nothing(building: Buildah, plain: RealRegistry, source: Path, name: str):
    image_spec, notices = spec(source, f"{plain.host}/{name}"), list[str]()
    first = build_and_push(image_spec)
    assert (first.builder, first.sent_bytes > 0) == ("buildah", True)
    assert str(first.ref) == f"{plain.host}/{name}:{first.content[:16]}@{first.ref.digest}"
    os.utime(source / "code" / "train.py", (1, 1))
    second = build_and_push(image_spec, Listener(notify=notices.append))
    assert second.ref == first.ref
    assert (second.builder, second.sent_bytes) == (None, 0)
    assert "nothing was pushed" in notices[-1]
    (source / "code" / "train.py").write_text("print('two')\n")
    assert build_and_push(image_spec).ref.tag != first.ref.tag


@pytest.mark.parametrize(
    "change", [{"build_args": {"GREETING": "bye"}}, {"platform": "linux/arm64"}, {"target": "other"}, {"base_image": "x"}]
)
def test_content_hash_depends_on_every_build_input(source: Path, change: dict[str, object]):
    first, second = spec(source, "a"), spec(source, "a", **change)
    assert compute_content_hash(make_build_request(first), ignore_notice) != compute_content_hash(
        make_build_request(second), ignore_notice
    )


def test_dockerfile_that_changes_during_the_build_is_built_as_it_was_read(
    building: Buildah, plain: RealRegistry, source: Path, name: str
):
    dockerfile = source.parent / "other" / "Dockerfile"  # a change in the context is an error
    dockerfile.parent.mkdir()
    text = (source / "Dockerfile").read_text()
    dockerfile.write_text(f"{text}LABEL edition=first\n")
    (source.parent / "other" / "Dockerfile.dockerignore").write_text("nothing\n")

    def change(_notice: str) -> None:
        dockerfile.write_text(f"{text}LABEL edition=second\n")

    image_spec = spec(source, f"{plain.host}/{name}", dockerfile=str(dockerfile))
    first = build_and_push(image_spec, Listener(notify=change))
    assert building.labels(f"{plain.host}/{name}:{first.ref.tag}")["edition"] == "first"
    second = build_and_push(image_spec)
    assert second.content != first.content
    assert building.labels(f"{plain.host}/{name}:{second.ref.tag}")["edition"] == "second"


def test_fixed_tag_is_pushed_again_only_after_a_change(building: Buildah, plain: RealRegistry, source: Path, name: str):
    image_spec = spec(source, f"{plain.host}/{name}:stable")
    first = build_and_push(image_spec)
    assert build_and_push(image_spec).builder is None
    (source / "code" / "train.py").write_text("print('two')\n")
    second = build_and_push(image_spec)
    assert second.ref.tag == first.ref.tag == "stable"
    assert second.ref.digest != first.ref.digest


def test_labels_name_the_source(building: Buildah, plain: RealRegistry, source: Path, name: str):
    for words in (["init", "-q"], ["remote", "add", "origin", "https://me:pass@example.org/a.git"]):
        subprocess.run(["git", "-C", str(source), *words], check=True)
    outcome = build_and_push(spec(source, f"{plain.host}/{name}"))
    labels = building.labels(f"{plain.host}/{name}:{outcome.ref.tag}")
    assert labels[CONTENT_LABEL] == outcome.content
    assert labels["org.opencontainers.image.source"] == "https://example.org/a.git"
    assert labels["org.opencontainers.image.created"].endswith("Z")
    onto = context(source.parent / "onto")
    (onto / "Dockerfile").write_text(f"FROM {outcome.ref.name}:{outcome.ref.tag}\nCOPY code /more\n")
    result = build_and_push(spec(onto, f"{plain.host}/{name}:onto"))
    manifest = manifest_of(plain, name, "onto")
    assert manifest["mediaType"] == OCI_MANIFEST
    annotations: Any = manifest["annotations"]
    inner = building.labels(str(result.ref.with_tag("onto")))
    assert annotations["org.opencontainers.image.created"] == inner["org.opencontainers.image.created"]
    first: Any = manifest_of(plain, name, outcome.ref.tag)["annotations"]
    assert first["org.opencontainers.image.source"] == "https://example.org/a.git"


def test_push_to_ecr_by_its_host_name(in_ecr: MotoAws, ecr_registry: RealRegistry, source: Path, name: str):
    outcome = build_and_push(spec(source, f"{name}:1"))
    assert outcome.created_repository
    assert str(outcome.ref) == f"{HOST}/{name}:1@{outcome.ref.digest}"
    assert in_ecr.client("ecr").describe_repositories(repositoryNames=[name])["repositories"]
    second = push_image(spec(source, f"{HOST}/{name}:1"))
    assert second == outcome.ref


@pytest.mark.parametrize(
    "host",
    [
        f"999999999999.dkr.ecr.{REGION}.amazonaws.com",
        f"{ACCOUNT}.dkr.ecr.us-gov-west-1.amazonaws.com",
        f"{ACCOUNT}.dkr.ecr-fips.us-gov-west-1.amazonaws.com",
        f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn",
    ],
)
def test_push_to_another_account_and_partition(  # noqa: PLR0917 - fixtures
    in_ecr: MotoAws, ecr_registry: RealRegistry, source: Path, name: str, tmp_path: Path, host: str
):
    """moto answers for all accounts and regions, so the test checks the name and region that kfjob uses."""
    (tmp_path / "certs.d" / HOST).rename(tmp_path / "certs.d" / host)
    outcome = build_and_push(spec(source, f"{host}/{name}"))
    assert outcome.created_repository
    assert str(outcome.ref).startswith(f"{host}/{name}:")
    region = host.split(".")[3]
    (repository,) = in_ecr.client("ecr", region).describe_repositories()["repositories"]
    assert (repository["repositoryName"], repository["registryId"]) == (name, host.split(".", maxsplit=1)[0])
    assert not build_and_push(spec(source, f"{host}/{name}")).created_repository
    with pytest.raises(UsageError, match=f"is in region `{region}`"):
        build_and_push(spec(source, f"{host}/{name}", region="eu-south-2"))


def test_region_outside_ecr_is_a_usage_error(source: Path):
    with pytest.raises(UsageError, match="is not ECR, and has no region"):
        build_and_push(spec(source, "ghcr.io/me/fsdp", region=REGION))


def test_push_image_command_with_profile_and_region(  # noqa: PLR0917 - fixtures
    in_ecr: MotoAws, profile: str, source: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """`--region` precedes the profile's region; `--pin` keeps the spec's comments and order."""
    (tmp_path / "job.yaml").write_text("# mine\nimage: old:1  # soon another\nname: a\ncommand: c\n")
    argv = ["push-image", str(source), "--to", name, "--builder", "buildah", "--profile", profile, "--region", REGION]
    assert run([*argv, "--pin", str(tmp_path / "job.yaml")]) == 0
    image = capsys.readouterr().out.strip()
    assert image.startswith(f"{HOST}/{name}:")
    text = f"# mine\nimage: {image}  # soon another\nname: a\ncommand: c\n"
    assert (tmp_path / "job.yaml").read_text() == text
    assert run([*argv, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    notices = json.loads(out)
    assert (notices["image"], notices["pushed"], notices["bytes_sent"]) == (image, False, 0)
    assert "exists with the same content: nothing was pushed" in err
