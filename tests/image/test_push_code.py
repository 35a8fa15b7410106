"""Code layers on images of every form, in real registries; the results are read with code other than kfjob's."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.images.push_code import CodePushResult, push_code
from kfjob.base.errors import Forbidden, KfjobError, NotFound, Refused, Unreachable, UsageError
from kfjob.cli.commands import run
from kfjob.image.mutate import BASE_DIGEST, BASE_NAME, CODE_LABEL
from kfjob.image.push import CopyResult
from kfjob.image.registry import documents as docs
from tests.image.images import FORMS, push_image
from tests.image.proxy import Cut, proxy_before
from tests.image.registries import HURRIED, PASSWORD, USER, RealRegistry, is_absent, manifest_of, store_login


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a home folder without logins."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "certs.d"))
    return tmp_path


def log_in(home: Path, registry: RealRegistry, password: str = PASSWORD) -> None:
    store_login(home, registry.host, password=password)
    place = home / "certs.d" / registry.host
    place.mkdir(parents=True, exist_ok=True)
    assert registry.ca
    (place / "ca.crt").write_bytes(registry.ca.read_bytes())


@pytest.fixture
def src(tmp_path: Path) -> Path:
    (tmp_path / "src" / "lib").mkdir(parents=True)
    (tmp_path / "src" / "train.py").write_text("print('one')")
    (tmp_path / "src" / "lib" / "old.py").write_text("old")
    return tmp_path / "src"


@pytest.fixture
def repository() -> str:
    return f"team/{os.urandom(4).hex()}"


def pushed_images(
    registry: RealRegistry, result: CodePushResult
) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Return (manifest, config, files of the last layer) of each platform, with all digests verified."""
    top = manifest_of(registry, result.ref.repository, result.ref.digest)
    assert top == manifest_of(registry, result.ref.repository, result.ref.tag)
    raw = registry.get(f"{result.ref.repository}/manifests/{result.ref.digest}", docs.ACCEPTED_TYPES)
    assert f"sha256:{hashlib.sha256(raw).hexdigest()}" == result.ref.digest
    entries: Any = top.get("manifests")
    manifests: list[Any] = (
        [manifest_of(registry, result.ref.repository, first["digest"]) for first in entries] if entries else [top]
    )
    out = []
    for manifest in manifests:
        config = json.loads(registry.checked_blob(result.ref.repository, manifest["config"]["digest"]))
        assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"])
        assert len([first for first in config["history"] if not first.get("empty_layer")]) == len(manifest["layers"])
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            body = gzip.decompress(registry.checked_blob(result.ref.repository, layer["digest"]))
            assert f"sha256:{hashlib.sha256(body).hexdigest()}" == diff_id
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            files = {first.name: tar.extractfile(first).read().decode("latin-1") for first in tar if first.isfile()}  # type: ignore[union-attr]
        out.append((manifest, config, files))
    return out


@pytest.mark.parametrize("form", FORMS)
def test_code_layer_keeps_the_image_form(plain: RealRegistry, person: Path, src: Path, repository: str, form: str):
    with plain.open() as registry:
        base = push_image(registry, repository, "base", form)
    name = f"{plain.host}/{repository}:base"
    result = push_code(src, name, labels={"org.opencontainers.image.revision": "abc"})
    assert str(result.ref) == f"{plain.host}/{repository}:code-{result.ref.digest[7:19]}@{result.ref.digest}"
    assert manifest_of(plain, repository, result.ref.digest)["mediaType"] == base.media_type
    images = pushed_images(plain, result)
    assert result.platforms == (("linux/amd64", "linux/arm64") if form.endswith("index") else ("linux/amd64",))
    assert [config["architecture"] for _, config, _ in images] == [name.split("/")[1] for name in result.platforms]
    for manifest, config, files in images:
        assert files == {"workspace/train.py": "print('one')", "workspace/lib/old.py": "old"}
        labels = config["config"]["Labels"]
        assert labels["who"] == "the base"
        assert labels[BASE_NAME] == name
        assert labels[BASE_DIGEST] == base.digest
        assert labels[CODE_LABEL] == config["rootfs"]["diff_ids"][-1]
        assert config["config"]["WorkingDir"] == "/workspace"
        assert {layer["mediaType"] for layer in manifest["layers"]} == {docs.LAYER_TYPES[manifest["mediaType"]]}
        assert manifest.get("annotations", {}) == (
            {}
            if form.startswith("docker")
            else {
                "of": "the base",
                BASE_NAME: name,
                BASE_DIGEST: base.digest,
                "org.opencontainers.image.revision": "abc",
            }
        )


def test_second_push_of_code_sends_nothing(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry, proxy_before(plain.port) as proxy:
        push_image(registry, repository, "base", "oci")
        through = f"127.0.0.1:{proxy.port}/{repository}:base"
        first = push_code(src, through, new_image=f"127.0.0.1:{proxy.port}/{repository}:new")
        assert first.is_new
        proxy.requests.clear()
        second = push_code(src, through, new_image=f"127.0.0.1:{proxy.port}/{repository}:new")
        assert (second.is_new, second.ref, second.copy) == (False, first.ref, CopyResult())
        assert {request.method for request in proxy.requests} == {"GET", "HEAD"}


def test_new_code_replaces_earlier_code(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        base = push_image(registry, repository, "base", "oci-index")
    base_name = f"{plain.host}/{repository}:base"
    first = push_code(src, base_name)
    (src / "lib" / "old.py").unlink()
    (src / "train.py").write_text("print('two')")
    second = push_code(src, str(first.ref))
    assert second.ref.digest != first.ref.digest
    for manifest, config, files in pushed_images(plain, second):
        assert len(manifest["layers"]) == 3
        assert files == {"workspace/train.py": "print('two')"}
        assert config["config"]["Labels"][BASE_NAME] == base_name  # the base's, not that of the code before
        assert config["config"]["Labels"][BASE_DIGEST] == base.digest
    assert push_code(src, base_name).ref.digest == second.ref.digest  # as if the first had never been


def test_layers_are_mounted_between_repositories(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci")
    result = push_code(src, f"{plain.host}/{repository}:base", new_image=f"{plain.host}/{repository}-other:v1")
    assert result.ref.tag == "v1"
    assert result.copy.mounted > 0
    assert result.copy.copied == 0
    pushed_images(plain, result)


def test_layers_are_copied_between_registries(
    plain: RealRegistry, private: RealRegistry, person: Path, src: Path, repository: str
):
    log_in(person, private)
    with plain.open() as registry:
        push_image(registry, repository, "base", "docker-index")
    target = f"{private.host}/{repository}"
    result = push_code(src, f"{plain.host}/{repository}:base", new_image=f"{target}:v1")
    assert result.copy.copied > 0
    pushed_images(private, result)
    second = push_code(src, f"{plain.host}/{repository}:base", new_image=f"{target}:v2")
    assert second.copy.copied == second.copy.uploaded == second.copy.mounted == 0
    assert second.copy.reused > 0


def test_platform_selects_images_of_an_index(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci-index")
    base = f"{plain.host}/{repository}:base"
    result = push_code(src, base, platforms=["linux/arm64"])
    ((_, config, _),) = pushed_images(plain, result)
    assert config["architecture"] == "arm64"
    with pytest.raises(UsageError) as caught:
        push_code(src, base, platforms=["linux/amd64", "linux/riscv64"])
    assert caught.value.cause == "it has variants for linux/amd64, linux/arm64/v8"


def test_workdir_of_the_code(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci", WorkingDir="/")
    base = f"{plain.host}/{repository}:base"
    with pytest.raises(UsageError, match="no working directory"):
        push_code(src, base)
    for wrong in ("code", "/a/../b"):
        with pytest.raises(UsageError, match="absolute"):
            push_code(src, base, workdir=wrong)
    ((_, config, files),) = pushed_images(plain, push_code(src, base, workdir="/opt/code"))
    assert config["config"]["WorkingDir"] == "/opt/code"
    assert "opt/code/train.py" in files


def test_registry_that_stops_during_a_push_has_no_tag(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci")
    with proxy_before(plain.port) as proxy:
        proxy.rule = lambda request: Cut("buffered") if request.method == "PUT" and "/blobs/" in request.path else None
        base = f"127.0.0.1:{proxy.port}/{repository}:base"
        with pytest.raises(Unreachable):
            push_code(src, base, new_image=f"127.0.0.1:{proxy.port}/{repository}:new", limits=HURRIED)
        assert is_absent(plain, f"{repository}/manifests/new")


def test_failed_code_push_leaves_no_tag(plain: RealRegistry, private: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci")
    base = f"{plain.host}/{repository}:base"
    cases: list[tuple[type[KfjobError], str, str | None]] = [
        (UsageError, "Not/An/Image", None),
        (UsageError, base, f"{plain.host}/{repository}@sha256:{'0' * 64}"),
        (NotFound, f"{plain.host}/{repository}:absent", None),
        (NotFound, f"{plain.host}/nowhere/at-all:1", None),
        (Refused, base, f"{private.host}/{repository}:new"),  # it has TLS, and nobody said so
    ]
    for kind, onto, to in cases:
        with pytest.raises(kind):
            push_code(src, onto, new_image=to, limits=HURRIED)
    log_in(person, private, "wrong-but-secret-too")
    with pytest.raises(Forbidden) as caught:
        push_code(src, base, new_image=f"{private.host}/{repository}:new")
    assert "wrong-but-secret-too" not in str(caught.value)
    assert is_absent(private, f"{repository}/manifests/new")
    (src / "out").symlink_to("/etc")
    with pytest.raises(Refused, match="leads out"):
        push_code(src, base)


def test_push_code_command(plain: RealRegistry, person: Path, src: Path, repository: str, capsys):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci")
    base, spec = f"{plain.host}/{repository}:base", person / "job.yaml"
    spec.write_text("name: a\nimage: old  # soon another\ncommand: c\n")
    assert run(["push-image", "--code", str(src), "--onto", base, "--to", f"{repository}-b", "--pin", str(spec)]) == 0
    out, err = capsys.readouterr()
    result = push_code(src, base, new_image=f"{plain.host}/{repository}-b")
    assert out == f"{result.ref}\n"
    assert "added 2 files" in err
    assert spec.read_text() == f"name: a\nimage: {result.ref}  # soon another\ncommand: c\n"
    argv = ["push-image", "--code", str(src), "--onto", base, "--to", f"{repository}-b", "-o", "json"]
    assert run(argv) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["image"], output["pushed"], output["files"], output["bytes_sent"]) == (str(result.ref), False, 2, 0)
    assert run(["push-image", "--code", str(src), "--onto", base, "--tag", "v7"]) == 0
    assert capsys.readouterr().out == f"{plain.host}/{repository}:v7@{result.ref.digest}\n"
    for wrong in (["--code", str(src)], ["--onto", base], [*argv[1:5], "--target", "x"], ["--workdir", "/a"]):
        assert run(["push-image", *wrong]) == 2


def test_progress_bar_shows_the_upload(plain: RealRegistry, person: Path, src: Path, repository: str):
    """The bar is on stderr if that is a terminal; stdout has only the name."""
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci")
    (src / "large").write_bytes(os.urandom(20 << 20))
    kfjob = str(Path(sys.executable).with_name("kfjob"))
    argv = [kfjob, "push-image", "--code", str(src), "--onto", f"{plain.host}/{repository}:base"]
    ours, theirs = os.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as child:
        os.close(theirs)
        request = b""
        with contextlib.suppress(OSError):  # as a terminal ends
            while piece := os.read(ours, 65536):
                request += piece
        os.close(ours)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0, request
    manifest: Any = manifest_of(plain, repository, out.decode().strip().partition("@")[2])
    assert manifest["layers"][-1]["digest"].partition(":")[2][:12] in request.decode()
    assert re.search(r"\d+\.\d/21\.\d MB", request.decode())
    assert out.decode().startswith(f"{plain.host}/{repository}:code-")


def test_secret_files_in_code_are_refused(plain: RealRegistry, person: Path, src: Path, repository: str):
    with plain.open() as registry:
        push_image(registry, repository, "base", "oci")
    (src / ".env").write_text("TOKEN=x")
    with pytest.raises(Refused, match=r"looks? like secrets: `\.env`"):
        push_code(src, f"{plain.host}/{repository}:base")
    result = push_code(src, f"{plain.host}/{repository}:base", include=[".env"])
    ((_, _, files),) = pushed_images(plain, result)
    assert any(name.endswith("/.env") for name in files)


def test_password_is_not_written_anywhere(  # noqa: PLR0917 - fixtures
    private: RealRegistry, person: Path, src: Path, repository: str, capfd, caplog
):
    """It is neither in the output, nor in the image, nor in any file except that of `docker login`."""
    caplog.set_level(0)
    log_in(person, private)
    with private.open() as registry:
        push_image(registry, repository, "base", "oci")
    result = push_code(src, f"{private.host}/{repository}:base")
    pushed_images(private, result)
    out, err = capfd.readouterr()
    for text in (out, err, caplog.text, repr(result), json.dumps(pushed_images(private, result)[0][:2])):
        assert PASSWORD not in text
    request = [path.name for path in person.rglob("*") if path.is_file() and _tells(path.read_bytes())]
    assert request == ["config.json"]


def _tells(content: bytes) -> bool:
    return PASSWORD.encode() in content or b64encode(f"{USER}:{PASSWORD}".encode()) in content
