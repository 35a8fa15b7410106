"""Which Dockerfile kfjob builds, and from which context."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api.images.build import compute_content_hash, describe_choice, make_build_request
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import NotFound, Refused, SpecError
from kfjob.image.folder import read_folder
from kfjob.spec.image import ImageSpec


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (["train.Dockerfile", "notes.txt"], "use `--file {0}/train.Dockerfile`"),
        (["Dockerfile.cpu", "Dockerfile.gpu", "Dockerfile.gpu.dockerignore"], "choose one with `--file`: `{0}/Dockerfile.cpu`"),
        (["Containerfile"], "use `--file {0}/Containerfile`"),
        (["a.txt"], "set another with `kfjob push-image --file`"),
    ],
)
def test_missing_dockerfile_offers_the_others(files: list[str], hint: str, tmp_path: Path):
    for file in files:
        (tmp_path / file).touch()
    with pytest.raises(NotFound) as caught:
        make_build_request(ImageSpec(context=str(tmp_path)))
    assert hint.format(tmp_path) in str(caught.value.hint)
    assert "dockerignore" not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("files", "dockerfile", "others"),
    [
        (["Dockerfile"], None, None),
        (["Dockerfile", "Dockerfile.dockerignore", "a.txt"], None, None),
        (["Dockerfile", "gpu.Dockerfile", "Dockerfile.cpu"], None, "`{0}/Dockerfile.cpu`, `{0}/gpu.Dockerfile`"),
        (["Dockerfile", "gpu.Dockerfile"], "gpu.Dockerfile", None),
    ],
)
def test_dockerfile_among_others_is_named(files: list[str], dockerfile: str | None, others: str | None, tmp_path: Path):
    for file in files:
        (tmp_path / file).write_text("FROM a/b:1\n")
    spec = ImageSpec(context=str(tmp_path), dockerfile=dockerfile and str(tmp_path / dockerfile))
    request = make_build_request(spec)
    expected = others and f"building `{tmp_path}/Dockerfile`; `--file` chooses another: {others.format(tmp_path)}"
    assert describe_choice(spec, request) == (expected or "")


def test_builder_and_platform_are_checked():
    spec = ImageSpec(builder="/usr/bin/podman", platform="linux/arm64")
    assert (spec.builder, spec.platform) == ("/usr/bin/podman", "linux/arm64")
    with pytest.raises(SpecError, match="unknown builder `kaniko`"):
        ImageSpec(builder="kaniko")
    with pytest.raises(SpecError, match="is not a single Linux platform"):
        ImageSpec(platform="linux/amd64,linux/arm64")


def test_link_that_leads_out_is_no_error_for_a_build(tmp_path: Path):
    (tmp_path / "Dockerfile").write_text("FROM a/b:1\n")
    (tmp_path / "data").symlink_to("/nonexistent/data")
    request = make_build_request(ImageSpec(context=str(tmp_path)))
    first = compute_content_hash(request, ignore_notice)
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("/nonexistent/more")
    assert compute_content_hash(request, ignore_notice) != first
    with pytest.raises(Refused):  # code that kfjob itself adds to an image
        read_folder(tmp_path)
