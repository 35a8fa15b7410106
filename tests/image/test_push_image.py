"""`push-image` with a real builder and real registries; ECR's API is moto's, its registry Debian's under its own name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kfjob import ImageSpec, push_image
from kfjob.api.push_image import LABEL_CONTENT, Listener, build_and_push
from kfjob.image.registry.documents import OCI_MANIFEST
from tests.image.aws import HOST, MotoAws
from tests.image.builders import Buildah
from tests.image.registries import RealRegistry, manifest_of


def spec(source: Path, to: str, **more: object) -> ImageSpec:
    return ImageSpec.model_validate({"context": str(source), "to": to, "builder": "buildah"} | more)


def test_a_plain_registry_by_its_name(building: Buildah, plain: RealRegistry, source: Path, name: str):
    outcome = build_and_push(spec(source, f"{plain.host}/{name}"))
    assert outcome.builder == "buildah"
    assert outcome.sent > 0
    assert str(outcome.ref) == f"{plain.host}/{name}:{outcome.content[:16]}@{outcome.ref.digest}"
    manifest = manifest_of(plain, name, outcome.ref.digest)
    assert manifest["mediaType"] == OCI_MANIFEST


def test_the_second_run_pushes_nothing_and_says_so(building: Buildah, plain: RealRegistry, source: Path, name: str):
    wanted, said = spec(source, f"{plain.host}/{name}"), list[str]()
    first = build_and_push(wanted)
    os.utime(source / "code" / "train.py", (1, 1))
    again = build_and_push(wanted, Listener(notice=said.append))
    assert again.ref == first.ref
    assert (again.builder, again.sent) == (None, 0)
    assert "nothing was pushed" in said[-1]
    (source / "code" / "train.py").write_text("print('two')\n")
    assert build_and_push(wanted).ref.tag != first.ref.tag


@pytest.mark.parametrize(
    "change", [{"build_args": {"GREETING": "bye"}}, {"platform": "linux/arm64"}, {"target": "other"}, {"base_image": "x"}]
)
def test_a_tag_of_its_own_for_all_that_is_built(source: Path, change: dict[str, object]):
    from kfjob.api.push_image import _content, _quiet, _wanted

    one, other = spec(source, "a"), spec(source, "a", **change)
    assert _content(_wanted(one), _quiet) != _content(_wanted(other), _quiet)


def test_a_fixed_tag_is_pushed_again_only_if_the_content_changed(
    building: Buildah, plain: RealRegistry, source: Path, name: str
):
    wanted = spec(source, f"{plain.host}/{name}:stable")
    first = build_and_push(wanted)
    assert build_and_push(wanted).builder is None
    (source / "code" / "train.py").write_text("print('two')\n")
    other = build_and_push(wanted)
    assert other.ref.tag == first.ref.tag == "stable"
    assert other.ref.digest != first.ref.digest


def test_labels_say_where_the_image_comes_from(building: Buildah, plain: RealRegistry, source: Path, name: str):
    for words in (["init", "-q"], ["remote", "add", "origin", "https://me:pass@example.org/a.git"]):
        subprocess.run(["git", "-C", str(source), *words], check=True)
    outcome = build_and_push(spec(source, f"{plain.host}/{name}"))
    labels = building.labels(f"{plain.host}/{name}:{outcome.ref.tag}")
    assert labels[LABEL_CONTENT] == outcome.content
    assert labels["org.opencontainers.image.source"] == "https://example.org/a.git"
    assert labels["org.opencontainers.image.created"].endswith("Z")


def test_into_ecr_by_the_very_name(in_ecr: MotoAws, ecr_registry: RealRegistry, source: Path, name: str):
    outcome = build_and_push(spec(source, f"{name}:1", repository={"scan_on_push": True}))
    assert outcome.created_repository
    assert str(outcome.ref) == f"{HOST}/{name}:1@{outcome.ref.digest}"
    (made,) = in_ecr.client("ecr").describe_repositories(repositoryNames=[name])["repositories"]
    assert made["imageScanningConfiguration"]["scanOnPush"]
    again = push_image(spec(source, f"{HOST}/{name}:1"))
    assert again == outcome.ref
