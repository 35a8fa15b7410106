"""How kfjob reads Dockerfiles, and which one it builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api.images.build import compute_content_hash, describe_choice, make_build_request
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import NotFound, Refused
from kfjob.image.build.base_images import find_base_images, find_final_base
from kfjob.image.build.dockerfile import list_instructions
from kfjob.image.folder import read_folder
from kfjob.spec.image import ImageSpec

HEREDOCS = """\
FROM a/b:1
RUN python3 - <<EOF
from os import path
EOF
COPY <<-"ONE" <<'TWO' /etc/
FROM one/image
\t\tONE
FROM two/image
TWO
RUN cat <<<"from three/image" && echo "<<EOF" '<<EOF' a<<EOF
RUN pip install a \\
    # from four/image

    from five
"""


def test_heredocs_are_no_instructions():
    assert find_base_images(HEREDOCS, {}) == ["a/b:1"]
    assert str(find_final_base(HEREDOCS, {})) == "docker.io/a/b:1"


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("ARG NAME=a/b TAG=1\nFROM $NAME:$TAG\n", ["a/b:1"]),
        ("ARG A='a/b' B=\"1\" \\\n C=${A}:${B}\nFROM ${C}\n", ["a/b:1"]),
        ("ARG GIVEN TAG=1\nFROM $GIVEN:$TAG\n", ["given:1"]),
        ("ARG TAG=1\nFROM a:$TAG\nARG TAG\nFROM b:$TAG\n", ["a:1", "b:1"]),
        ("FROM a\nRUN --mount=type=bind,from=tools/one:1,target=/t --mount=from=two:2 make\n", ["a", "tools/one:1", "two:2"]),
        ("FROM a AS s\nRUN --mount=type=bind,source=/x,from=s make\nRUN echo --mount=from=three\n", ["a"]),
        ("FROM a\nRUN --network=none --mount=type=cache,target=/c,from=four make --mount=from=five\n", ["a", "four"]),
    ],
)
def test_images_that_a_build_needs(text: str, images: list[str]):
    assert find_base_images(text, {"GIVEN": "given"}) == images


def test_only_a_heredoc_with_a_dash_ends_at_an_indented_line():
    assert find_base_images("FROM a\nRUN <<EOF\n\tEOF\nFROM b\nEOF\n", {}) == ["a"]
    assert find_base_images("FROM a\nRUN <<-EOF\n\tEOF\nFROM b\n", {}) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        ("# FROM x\nFROM \\\n  a/b:1 \\ \n  AS one\n", ["FROM   a/b:1   AS one"]),
        (
            "# syntax=docker/dockerfile:1\n# escape=`\nFROM a `\nAS b\nRUN dir c:\\\nRUN x",
            ["FROM a AS b", "RUN dir c:\\", "RUN x"],
        ),
        ("FROM a\n# escape=`\nRUN b \\\n c", ["FROM a", "RUN b  c"]),
        ("RUN a <<EOF\nFROM b", ["RUN a <<EOF"]),
        ("LABEL a=<<EOF\nFROM b\r\nRUN c \\", ["LABEL a=<<EOF", "FROM b", "RUN c "]),
        ("\ufeffFROM a\n\n", ["FROM a"]),
    ],
)
def test_instructions_of_a_dockerfile(text: str, instructions: list[str]):
    assert list(list_instructions(text)) == instructions


def test_instruction_of_many_lines_is_read_in_linear_time():
    lines = 100_000
    text = "RUN a \\\n" + "b \\\n" * lines + "c\n"
    assert list(list_instructions(text)) == ["RUN a " + "b " * lines + "c"]


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
