"""A file that a person or a stranger wrote is read up to a limit, and one that never ends is an error or left out."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfjob import submit
from kfjob.api.images.build import compute_content_hash, make_build_request
from kfjob.api.settings import load_settings
from kfjob.base.errors import KfjobError
from kfjob.base.parsing import ParseError, read_document
from kfjob.image.components import _inspect_aws_ofi_nccl, _inspect_efa
from kfjob.image.folder import IGNORE_FILE, read_folder
from kfjob.image.registry.client import Registry
from kfjob.image.registry.endpoints import Endpoint, find_endpoint
from kfjob.spec.image import ImageSpec
from tests.hostile_server import wait_until
from tests.unit.api.conftest import Shell
from tests.unit.cli.test_interruption import start

HOST = "registry.example"
SPEC = "name: train\nimage: a:1\nnodes: 1\ncommand: python a.py\n"


def make_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of 1 TiB


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


MAKERS: list[Callable[[Path], None]] = [make_hole, make_fifo, make_device]
KINDS = pytest.mark.parametrize("make", MAKERS)


def build(folder: Path) -> str:
    return compute_content_hash(make_build_request(ImageSpec(context=str(folder))), print)


READERS: dict[str, Callable[[Path], object]] = {
    "kfjob.toml": lambda folder: load_settings(environ={"XDG_CONFIG_HOME": "/nowhere"}, folder=folder),
    "pyproject.toml": lambda folder: load_settings(environ={"XDG_CONFIG_HOME": "/nowhere"}, folder=folder),
    "kfjob/kfjob.toml": lambda folder: load_settings(environ={"XDG_CONFIG_HOME": str(folder)}, folder=Path("/nowhere")),
    f"{HOST}/hosts.toml": lambda folder: find_endpoint(HOST, "pull", folders=[folder]),
    "Dockerfile": build,
    IGNORE_FILE: read_folder,
    "usr/local/lib/libnccl-net.so": _inspect_aws_ofi_nccl,
    "opt/amazon/efa_installed_packages": _inspect_efa,
}


@KINDS
@pytest.mark.parametrize("name", READERS)
def test_endless_file_is_an_error_or_left_out(tmp_path: Path, name: str, make: Callable[[Path], None]):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    make(tmp_path / name)
    errors: list[KfjobError] = []
    try:
        READERS[name](tmp_path)
    except KfjobError as err:
        errors.append(err)
    assert all(name.rpartition("/")[2] in f"{err} {err.cause} {err.location}" for err in errors)


@KINDS
@pytest.mark.parametrize("field", ["authorities", "certificate"])
def test_endless_certificate_is_an_error(tmp_path: Path, field: str, make: Callable[[Path], None]):
    file = tmp_path / "file.crt"
    make(file)
    files: Any = {"authorities": (file,)} if field == "authorities" else {"certificate": (file, file)}
    with pytest.raises(KfjobError, match="a certificate for `h` cannot be read"):
        Registry(Endpoint(url="https://h", **files))


def test_file_that_becomes_a_fifo_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(tmp_path / "a")
    (tmp_path / "b").write_text("x")
    status = (tmp_path / "b").stat()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    with pytest.raises(ParseError, match="not a regular file"):
        read_document(tmp_path / "a")


@pytest.mark.parametrize("make", [make_hole, make_device])
def test_endless_spec_is_an_error_in_python(here: Path, make: Callable[[Path], None]):
    make(here / "job.yaml")
    with pytest.raises(KfjobError) as caught:
        submit(here / "job.yaml", backend="local")
    assert caught.value.cause == "it is larger than 4 MiB"


@pytest.mark.parametrize("amount", ["small", "large"])
def test_spec_comes_from_a_pipe(kfjob: Shell, here: Path, amount: str):
    reading, writing = os.pipe()
    text = SPEC if amount == "small" else SPEC + "# " + "x" * (5 << 20)

    def write() -> None:
        with os.fdopen(writing, "w") as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(text)

    writer = threading.Thread(target=write)
    writer.start()
    code = kfjob("validate", f"/dev/fd/{reading}")
    os.close(reading)
    writer.join()
    assert code == (0 if amount == "small" else 2), kfjob.err
    assert ("larger than 4 MiB" in kfjob.err) == (amount == "large")


def test_ctrl_c_ends_the_wait_for_a_fifo(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    with start("validate", "fifo", folder=tmp_path) as command:
        writer: list[int] = []

        def has_reader() -> bool:
            try:
                writer.append(os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        wait_until(has_reader)
        code, errors = command.interrupt(signal.SIGINT)
        os.close(writer[0])
    assert (code, errors.count("Traceback")) == (130, 0)
