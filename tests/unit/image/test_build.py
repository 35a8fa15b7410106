"""Commands, exports and error output of all engines, including those that cannot run here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from kfjob.base.errors import Refused, UsageError
from kfjob.image.build import archive, engine_process, engines
from kfjob.image.build.dockerfile import check_bases, find_ecr_registries
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
            manifest=documents.make_document(kind, {"annotations": {"a": "builder's", "base": ""}}), config={}, blobs=()
        )
        manifest = archive.add_annotations(built, {"a": "ours", "b": "ours"}).manifest
        assert manifest.media_type == kind
        assert manifest.value["annotations"] == ({"a": "builder's", "b": "ours"} if has else {"a": "builder's", "base": ""})


def read(image: Path, work: Path, platform: str = "linux/amd64") -> archive.BuiltImage:
    work.mkdir(parents=True)
    return archive.read_image(image, work, platform=platform)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


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
            add(tar, name, content)
    return config


def test_docker_archive_is_compressed_reproducibly(tmp_path: Path):
    config = docker_save(tmp_path / "saved.tar")
    built, again = (read(tmp_path / "saved.tar", tmp_path / turn) for turn in ("one", "two"))
    assert built.manifest.digest == again.manifest.digest
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
    built = read(root, tmp_path / "work")
    assert built.config["architecture"] == "amd64"
    with pytest.raises(Refused, match="cannot read"):
        read(root, tmp_path / "other", "linux/s390x")


def test_archive_with_outside_path_is_refused(tmp_path: Path):
    manifest = json.dumps([{"Config": "../secret", "Layers": []}]).encode()
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        add(tar, "manifest.json", manifest)
    with pytest.raises(Refused, match="cannot read"):
        read(tmp_path / "bad.tar", tmp_path / "work")


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
    with pytest.raises(Refused, match="cannot read"):
        read(tmp_path / "bad.tar", work)
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
    with pytest.raises(Refused, match="cannot read"):
        read(root, tmp_path / "work")


@pytest.mark.parametrize("index", ['{"manifests": ["a"]}', '{"manifests": [{"digest": 3}]}', "{", '{"manifests": 1}'])
def test_damaged_layout_is_refused(index: str, tmp_path: Path):
    root = layout(tmp_path / "layout", "linux/amd64")
    (root / "index.json").write_text(index)
    with pytest.raises(Refused, match="cannot read"):
        read(root, tmp_path / "work")


def test_truncated_archive_is_refused(tmp_path: Path):
    docker_save(tmp_path / "whole.tar")
    content = (tmp_path / "whole.tar").read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as tar:
        needed = tar.getmember("manifest.json").offset_data + tar.getmember("manifest.json").size
    for length in range(0, needed, 300):
        (tmp_path / "cut.tar").write_bytes(content[:length])
        with pytest.raises(Refused, match="cannot read"):
            read(tmp_path / "cut.tar", tmp_path / f"work-{length}")


def test_layers_with_similar_paths_stay_separate(tmp_path: Path):
    config = json.dumps({"architecture": "amd64", "os": "linux"}).encode()
    manifest = json.dumps([{"Config": "c.json", "Layers": ["a/b", "a_b"]}]).encode()
    with tarfile.open(tmp_path / "saved.tar", "w") as tar:
        for name, content in {"c.json": config, "a/b": b"one", "a_b": b"two", "manifest.json": manifest}.items():
            add(tar, name, content)
    built = read(tmp_path / "saved.tar", tmp_path / "work")
    assert [gzip.decompress(b"".join(blob.read_pieces(0))) for blob in built.blobs[:2]] == [b"one", b"two"]


def test_layer_may_be_a_link_to_another(tmp_path: Path):
    """Docker before version 25 saves a repeated layer once."""
    config = docker_save(tmp_path / "saved.tar")
    manifest = json.dumps([{"Config": "c.json", "Layers": ["l/layer.tar", "m/layer.tar"]}]).encode()
    with tarfile.open(tmp_path / "saved.tar", "a") as tar:
        tar.addfile(member("m", tarfile.DIRTYPE))
        tar.addfile(member("m/layer.tar", tarfile.SYMTYPE, "../l/layer.tar"))
        add(tar, "manifest.json", manifest)
    built = read(tmp_path / "saved.tar", tmp_path / "work")
    assert built.manifest.value["config"]["digest"] == f"sha256:{hashlib.sha256(config).hexdigest()}"
    first, second = built.manifest.value["layers"]
    assert first == second


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("Cannot connect to the Docker daemon. Is the docker daemon running?", "start the daemon of `docker`"),
        ("permission denied while trying to connect to the Docker daemon socket", "join the group `docker`"),
        ("the --mount option requires BuildKit. Refer to …", "install docker's buildx plugin"),
        ("pull access denied for a, repository does not exist", "`docker login`"),
        ("write /var/lib/docker/tmp: no space left on device", "TMPDIR"),
        ("unknown instruction: FORM", "nothing was pushed"),
        ("", "nothing was pushed"),
    ],
)
def test_failure_of_an_engine_has_its_words_and_a_hint(words: str, hint: str):
    error = engine_process.explain_failure("docker", words.splitlines(), 1)
    assert error.title == "the build failed (`docker` exited with code 1)"
    assert (error.cause or "") == words
    assert hint in (error.hint or "")


ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (f"FROM {ECR}/base:1\nFROM {ECR}/other\n", [ECR]),
        (
            "ARG ACCOUNT=123456789012\nFROM ${ACCOUNT}.dkr.ecr.${REGION:-eu-west-1}.amazonaws.com/a\n",
            [ECR],
        ),
        (f"FROM a\nCOPY --from={ECR}/tools:1 /b /b\n", [ECR]),
        (f"ARG GIVEN\nFROM \\\n  $GIVEN AS a\n# FROM {ECR.replace('1', '2')}/x\n", [ECR]),
        ("FROM public.ecr.aws/a/b\nFROM python:3\n", []),
        ("ARG A='\n", []),
    ],
)
def test_ecr_registries_of_a_dockerfile(text: str, hosts: list[str]):
    assert find_ecr_registries(text, {"GIVEN": f"{ECR}/given:1"}) == hosts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n", "set it with `--build-arg BASE_IMAGE=VALUE`"),
        ("ARG BASE\nFROM $BASE AS a\n", "set it with `--build-arg BASE=VALUE`"),
        ("ARG TAG\nFROM python:${TAG}\n", "set it with `--build-arg TAG=VALUE`"),
        ("FROM $BASE\n", "declare it before the first FROM: `ARG BASE`"),
    ],
)
def test_base_without_a_value_names_the_option(text: str, message: str):
    with pytest.raises(UsageError, match="names no image, because the build argument") as caught:
        check_bases(text, {})
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
    check_bases(text, {"GIVEN": "b"})
