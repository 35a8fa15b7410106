"""Commands, exports and error output of all engines, including those that cannot run here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from kfjob.base.errors import BackendError, Forbidden, KfjobError, NotFound, Refused, Unreachable, UsageError
from kfjob.image.build import archive, base_images, engine_process, engines
from kfjob.image.build.engines import BuildRequest, Engine
from kfjob.image.registry import documents
from kfjob.image.registry.documents import OCI_LAYER, OCI_MANIFEST

WANTED = BuildRequest(
    context=Path("src"),
    dockerfile=Path("src/Dockerfile"),
    local_name="host/a:1",
    platform="linux/arm64",
    build_args={"A": "1 2"},
    labels={"l": "m"},
    secrets={"pip": "/etc/pip.conf"},
    target="t",
    no_cache=True,
)
COMMON = [
    "--file",
    "src/Dockerfile",
    "--tag",
    "host/a:1",
    "--platform",
    "linux/arm64",
    "--build-arg",
    "A=1 2",
    "--label",
    "l=m",
]
COMMON += ["--secret", "id=pip,src=/etc/pip.conf", "--target", "t", "--no-cache", "src"]
OUT = Path("/tmp/out")


@pytest.mark.parametrize(
    ("engine", "first"),
    [
        (Engine(name="docker", program="docker"), ["docker", "build", "--iidfile", "/tmp/out"]),
        (
            Engine(name="docker", program="docker", buildkit="own"),
            ["docker", "build", "--progress=plain", "--iidfile", "/tmp/out"],
        ),
        (
            Engine(name="docker", program="docker", buildkit="buildx"),
            ["docker", "buildx", "build", "--load", "--provenance=false", "--progress=plain", "--iidfile", "/tmp/out"],
        ),
        (Engine(name="buildah", program="buildah"), ["buildah", "build", "--layers", "--format=oci", "--iidfile", "/tmp/out"]),
        (Engine(name="podman", program="podman"), ["podman", "build", "--layers", "--format=oci", "--iidfile", "/tmp/out"]),
        (
            Engine(name="nerdctl", program="nerdctl"),
            ["nerdctl", "build", "--progress=plain", "--output", "type=oci,dest=/tmp/out"],
        ),
        (Engine(name="finch", program="finch"), ["finch", "build", "--progress=plain", "--output", "type=oci,dest=/tmp/out"]),
    ],
)
def test_build_command_of_each_engine(engine: Engine, first: list[str]):
    assert engines.make_build_command(engine, WANTED, OUT) == [*first, *COMMON]


def test_environment_selects_dockers_builder():
    environments = {kind: Engine(name="docker", program="docker", buildkit=kind).environment for kind in ("", "own", "buildx")}
    assert environments == {"": {"DOCKER_BUILDKIT": "0"}, "own": {"DOCKER_BUILDKIT": "1"}, "buildx": {}}
    assert Engine(name="podman", program="podman").environment == {}


def test_export_command_of_each_engine():
    exports = {
        name: engines.make_export_command(Engine(name=name, program=name), "sha256:ab", OUT)
        for name in ("docker", "podman", "finch")
    }
    assert exports["docker"] == ["docker", "save", "--output", "/tmp/out", "sha256:ab"]
    assert exports["podman"] == ["podman", "push", "--quiet", "ab", "oci:/tmp/out:image"]
    assert exports["finch"] is None


def test_only_oci_manifests_have_annotations():
    for kind, has in ((documents.OCI_MANIFEST, True), (documents.DOCKER_MANIFEST, False)):
        built = archive.BuiltImage(
            manifest=documents.make_document(kind, {"annotations": {"a": "builder's"}}), config={}, blobs=()
        )
        manifest = archive.add_annotations(built, {"a": "ours", "b": "ours"}).manifest
        assert manifest.media_type == kind
        assert manifest.value["annotations"] == ({"a": "builder's", "b": "ours"} if has else {"a": "builder's"})


STAGES = "ARG BASE=python:3.11\nFROM golang AS tool\nFROM ${BASE} AS one\nFROM one AS two\nCOPY --from=tool /a /a\nFROM two\n"


@pytest.mark.parametrize(
    ("text", "args", "target", "base"),
    [
        (STAGES, {}, None, "docker.io/library/python:3.11"),
        (STAGES, {"BASE": "a.example/b@sha256:" + "0" * 64}, None, "a.example/b@sha256:" + "0" * 64),
        (STAGES, {}, "tool", "docker.io/library/golang"),
        (STAGES, {}, "two", "docker.io/library/python:3.11"),
        (STAGES, {}, "three", "None"),
        ("FROM scratch\n", {}, None, "None"),
        ("FROM $NOTHING\n", {}, None, "None"),
        ("", {}, None, "None"),
    ],
)
def test_final_base_of_a_dockerfile(text, args, target, base):
    assert str(base_images.find_final_base(text, args, target)) == base


def test_base_images_of_a_dockerfile():
    text = """ARG BASE=python:3
FROM --platform=linux/amd64 ${BASE} AS Wheel
FROM 123456789012.dkr.ecr.eu-west-1.amazonaws.com/base:$TAG
COPY --from=wheel /a /a
COPY --chown=1 --from=registry.example/tools:1 /b /b
COPY --from=0 /c /c
FROM scratch
"""
    result = base_images.find_base_images(f"ARG TAG=2\n{text}", {"BASE": "python:4"})
    assert result == ["python:4", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/base:2", "registry.example/tools:1"]
    assert [str(ref) for ref in base_images.select_ecr_images([*result, "public.ecr.aws/a/b", "Not A Name"])] == result[1:2]


def layer() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    return out.getvalue()


def docker_save(file: Path) -> bytes:
    """Write an archive as `docker save` does before containerd's image store: uncompressed layers, no index."""
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": []}}).encode()
    manifest = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": ["l/layer.tar", "l/layer.tar"]}]).encode()
    with tarfile.open(file, "w") as tar:
        for name, content in {"c.json": config, "l/layer.tar": layer(), "manifest.json": manifest}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return config


def test_docker_archive_is_compressed_reproducibly(tmp_path: Path):
    config = docker_save(tmp_path / "saved.tar")
    digests = set()
    for turn in ("one", "two"):
        (tmp_path / turn).mkdir()
        built = archive.read_image(tmp_path / "saved.tar", tmp_path / turn, platform="linux/amd64")
        digests.add(built.manifest.digest)
    assert len(digests) == 1
    value = built.manifest.value
    assert value["mediaType"] == OCI_MANIFEST
    assert value["config"]["digest"] == f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert [one["mediaType"] for one in value["layers"]] == [OCI_LAYER] * 2
    assert gzip.decompress(b"".join(built.blobs[0].read_pieces(0))) == layer()


def layout(root: Path, *platforms: str) -> Path:
    """Write an OCI layout with an image for each platform, and an attestation as BuildKit adds it."""
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def stored(content: bytes, **more: object) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content), **more}

    entries = []
    for platform in platforms:
        system, architecture = platform.split("/")
        config = json.dumps({"architecture": architecture, "os": system}).encode()
        value = {
            "schemaVersion": 2,
            "config": stored(config),
            "layers": [stored(gzip.compress(layer(), mtime=0), mediaType=OCI_LAYER)],
        }
        said = {"os": system, "architecture": architecture}
        entries.append(stored(json.dumps(value).encode(), mediaType=OCI_MANIFEST, platform=said))
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    return root


def test_layout_image_is_selected_by_platform(tmp_path: Path):
    root = layout(tmp_path / "layout", "unknown/unknown", "linux/arm64", "linux/amd64")
    (tmp_path / "work").mkdir()
    built = archive.read_image(root, tmp_path / "work", platform="linux/amd64")
    assert built.config["architecture"] == "amd64"
    (tmp_path / "other").mkdir()
    with pytest.raises(Refused, match="cannot read"):
        archive.read_image(root, tmp_path / "other", platform="linux/s390x")


def test_archive_with_outside_path_is_refused(tmp_path: Path):
    manifest = json.dumps([{"Config": "../secret", "Layers": []}]).encode()
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
    (tmp_path / "work").mkdir()
    with pytest.raises(Refused, match="cannot read"):
        archive.read_image(tmp_path / "bad.tar", tmp_path / "work", platform="linux/amd64")


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


OUTSIDE = {
    "parent": [member("../out")],
    "absolute": [member("/tmp/kfjob-out")],
    "symbolic link": [member("link", tarfile.SYMTYPE, "..")],
    "hard link": [member("link", tarfile.LNKTYPE, "../out")],
    "link through a link": [member("here", tarfile.SYMTYPE, "."), member("here/here/up", tarfile.SYMTYPE, "../..")],
    "device": [member("null", tarfile.CHRTYPE)],
    "loop of links": [member("a", tarfile.SYMTYPE, "b"), member("b", tarfile.SYMTYPE, "a"), member("a/c")],
    "file over a folder": [member("l")],
}


@pytest.mark.parametrize("members", OUTSIDE.values(), ids=OUTSIDE)
def test_archive_member_outside_the_folder_is_refused(members: list[tarfile.TarInfo], tmp_path: Path):
    docker_save(tmp_path / "bad.tar")
    with tarfile.open(tmp_path / "bad.tar", "a") as tar:
        for info in members:
            tar.addfile(info)
    work = tmp_path / "folder" / "work"
    work.mkdir(parents=True)
    with pytest.raises(Refused, match="cannot read"):
        archive.read_image(tmp_path / "bad.tar", work, platform="linux/amd64")
    assert list(work.parent.iterdir()) == [work]
    assert list(work.iterdir()) == [work / "unpacked"]


@pytest.mark.parametrize("digest", ["/etc:passwd", "../../../..:secret", "sha256:../secret", "sha256:", "passwd"])
def test_layout_digest_with_outside_path_is_refused(digest: str, tmp_path: Path):
    root = layout(tmp_path / "layout", "linux/amd64")
    index = json.loads((root / "index.json").read_text())
    (manifest,) = index["manifests"]
    blob = root / "blobs" / "sha256" / manifest["digest"].removeprefix("sha256:")
    value = json.loads(blob.read_text())
    value["layers"][0]["digest"] = digest
    blob.write_text(json.dumps(value))
    (tmp_path / "work").mkdir()
    with pytest.raises(Refused, match="cannot read"):
        archive.read_image(root, tmp_path / "work", platform="linux/amd64")


@pytest.mark.parametrize("index", ['{"manifests": ["a"]}', '{"manifests": [{"digest": 3}]}', "{", '{"manifests": 1}'])
def test_damaged_layout_is_refused(index: str, tmp_path: Path):
    root = layout(tmp_path / "layout", "linux/amd64")
    (root / "index.json").write_text(index)
    (tmp_path / "work").mkdir()
    with pytest.raises(Refused, match="cannot read"):
        archive.read_image(root, tmp_path / "work", platform="linux/amd64")


def test_truncated_archive_is_refused(tmp_path: Path):
    docker_save(tmp_path / "whole.tar")
    content = (tmp_path / "whole.tar").read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as tar:
        needed = tar.getmember("manifest.json").offset_data + tar.getmember("manifest.json").size
    for length in range(0, needed, 300):
        (tmp_path / "cut.tar").write_bytes(content[:length])
        (tmp_path / f"work-{length}").mkdir()
        with pytest.raises(Refused, match="cannot read"):
            archive.read_image(tmp_path / "cut.tar", tmp_path / f"work-{length}", platform="linux/amd64")


def test_layers_with_similar_paths_stay_separate(tmp_path: Path):
    config = json.dumps({"architecture": "amd64", "os": "linux"}).encode()
    manifest = json.dumps([{"Config": "c.json", "Layers": ["a/b", "a_b"]}]).encode()
    with tarfile.open(tmp_path / "saved.tar", "w") as tar:
        for name, content in {"c.json": config, "a/b": b"one", "a_b": b"two", "manifest.json": manifest}.items():
            info = member(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "work").mkdir()
    built = archive.read_image(tmp_path / "saved.tar", tmp_path / "work", platform="linux/amd64")
    assert [gzip.decompress(b"".join(blob.read_pieces(0))) for blob in built.blobs[:2]] == [b"one", b"two"]


def test_layer_may_be_a_link_to_another(tmp_path: Path):
    """Docker before version 25 saves a repeated layer once."""
    config = docker_save(tmp_path / "saved.tar")
    manifest = json.dumps([{"Config": "c.json", "Layers": ["l/layer.tar", "m/layer.tar"]}]).encode()
    with tarfile.open(tmp_path / "saved.tar", "a") as tar:
        tar.addfile(member("m", tarfile.DIRTYPE))
        tar.addfile(member("m/layer.tar", tarfile.SYMTYPE, "../l/layer.tar"))
        info = member("manifest.json")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
    (tmp_path / "work").mkdir()
    built = archive.read_image(tmp_path / "saved.tar", tmp_path / "work", platform="linux/amd64")
    assert built.manifest.value["config"]["digest"] == f"sha256:{hashlib.sha256(config).hexdigest()}"
    first, second = built.manifest.value["layers"]
    assert first == second


WORDS = {
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?": (
        Unreachable,
        "daemon",
    ),
    "permission denied while trying to connect to the Docker daemon socket": (
        Forbidden,
        "not allowed to use",
    ),
    "ERROR: failed to solve: dockerfile parse error on line 1: unknown instruction: FORM": (
        Refused,
        "the Dockerfile has an error",
    ),
    "Error response from daemon: pull access denied for a, repository does not exist": (
        Forbidden,
        "the base image does not exist",
    ),
    "manifest for python:99 not found: manifest unknown": (NotFound, "the base image does not exist"),
    "Error: reading manifest 9 in docker.io/library/python: manifest unknown": (NotFound, "the base image does not exist"),
    "Step 3/5 : RUN --mount=type=secret,id=a true\nthe --mount option requires BuildKit. Refer to …": (
        Refused,
        "classic builder cannot build this Dockerfile",
    ),
    "write /var/lib/docker/tmp: no space left on device": (BackendError, "no space is left"),
    "dial tcp: lookup registry-1.docker.io: no such host": (Unreachable, "does not answer"),
    'Head "https://a.example/v2/b": x509: certificate is valid for localhost, not a.example': (Unreachable, "does not answer"),
    "The command '/bin/sh -c pip install' returned a non-zero code: 1\nno such host": (Refused, "the build failed"),
    "The command '/bin/sh -c cp' returned a non-zero code: 1\nno space left on device": (BackendError, "no space is left"),
    "": (Refused, "the build failed"),
}


@pytest.mark.parametrize("words", WORDS)
def test_engine_output_is_classified(words: str):
    kind, title = WORDS[words]
    result: KfjobError = engine_process.explain_failure("docker", words.splitlines(), 1)
    assert type(result) is kind
    assert title in result.title
    assert result.cause


HEREDOC_FAILURES = (
    'Error: building at STEP "COPY <<EOF /etc/motd": checking on sources under "/src": no such file or directory',
    "Error: creating build container: initializing source docker://os: reading manifest: manifest unknown",
    "Error: initializing source docker://os:latest: requested access to the resource is denied, unauthorized",
    'error building at STEP "hello": Build error: Unknown instruction: "HELLO"',
)


@pytest.mark.parametrize("words", HEREDOC_FAILURES)
def test_failure_of_an_engine_without_heredocs_names_them(words: str):
    result: KfjobError = engine_process.explain_failure("buildah", [words], 1, skips_heredocs=True)
    assert result.title.startswith("the build failed, and this version of `buildah` reads no heredocs")
    assert "docker with BuildKit" in str(result.hint)
    assert "COPY it" in str(result.hint)
    assert "heredoc" not in str(engine_process.explain_failure("buildah", [words], 1))


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("write /var/lib/x: no space left on device", "no space is left"),
        ("dial tcp: lookup a.example: no such host", "does not answer"),
        ("permission denied while trying to connect to the Docker daemon socket", "not allowed to use"),
        ('Error: building at STEP "RUN make": while running runtime: exit status 2', "the build failed (`buildah`"),
    ],
)
def test_failure_with_another_cause_does_not_name_heredocs(words: str, title: str):
    assert title in engine_process.explain_failure("buildah", [words], 1, skips_heredocs=True).title


@pytest.mark.parametrize(
    ("name", "version", "reads"),
    [
        ("buildah", "buildah version 1.28.2 (image-spec 1.1.0-rc2)", False),
        ("buildah", "buildah version 1.33.0 (image-spec 1.1.0)", True),
        ("podman", "podman version 4.3.1", False),
        ("podman", "podman version 5.0.0", True),
        ("podman", "unknown", True),
        ("nerdctl", "nerdctl version 1.0.0", True),
        ("docker", "Docker version 28.0.0", False),
    ],
)
def test_version_says_whether_an_engine_reads_heredocs(name, version: str, reads, tmp_path: Path):
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    assert engine_process.reads_heredocs(Engine(name=name, program=str(program))) is reads


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n", "set it with `--base-image IMAGE`"),
        ("ARG BASE\nFROM $BASE AS a\n", "set it with `--build-arg BASE=VALUE`"),
        ("ARG TAG\nFROM python:${TAG}\n", "set it with `--build-arg TAG=VALUE`"),
        ("FROM $BASE\n", "declare it before the first FROM: `ARG BASE`"),
    ],
)
def test_base_without_a_value_names_the_option(text: str, message: str):
    with pytest.raises(UsageError, match="names no image, because the build argument") as caught:
        base_images.check_bases(text, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "ARG BASE_IMAGE=a\nFROM ${BASE_IMAGE}\n",
        "ARG GIVEN\nFROM $GIVEN\n",
        "FROM ${BASE:-a}\n",
        "ARG SUFFIX\nFROM a:1${SUFFIX}\n",
        "FROM --platform=$BUILDPLATFORM scratch AS a\nFROM a\n",
    ],
)
def test_base_with_a_value_is_accepted(text: str):
    base_images.check_bases(text, {"GIVEN": "b"})
