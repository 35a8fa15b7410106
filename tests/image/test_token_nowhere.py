"""ECR's token is in no argv, environment, output, file or image during a pull and a push."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from kfjob.api.images.push_image import build_and_push
from tests.image.aws import HOST, MotoAws
from tests.image.builders import CLASSIC, Buildah, dockerd
from tests.image.conftest import MOTO_TOKEN
from tests.image.front import front, named
from tests.image.registries import RealRegistry
from tests.image.test_push_image import spec
from tests.kfjob_command import KFJOB

NEEDLES = [MOTO_TOKEN.encode(), b64encode(f"AWS:{MOTO_TOKEN}".encode()), b64encode(MOTO_TOKEN.encode()).rstrip(b"=")]


class Watcher:
    """Searches every descendant of a process, and the authfiles of builders, in a loop."""

    def __init__(self, root: int) -> None:
        self.root, self.seen, self.lent = root, set[bytes](), set[tuple[Path, int, bool]]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for pid in self._descendants():
                for part in ("cmdline", "environ"):
                    self._note(Path(f"/proc/{pid}/{part}"))
            for file in Path("/dev/shm").glob("kfjob-*/config.json"):
                try:
                    self.lent.add((file, file.stat().st_mode & 0o7777, NEEDLES[1] in file.read_bytes()))
                except OSError:
                    continue

    def _note(self, file: Path) -> None:
        try:
            self.seen.add(file.read_bytes())
        except OSError:
            return

    def _descendants(self) -> Iterator[int]:
        waiting = [self.root]
        while waiting:
            pid = waiting.pop()
            yield pid
            with contextlib.suppress(OSError):  # it has ended
                for task in Path(f"/proc/{pid}/task").glob("*/children"):
                    waiting += map(int, task.read_text().split())


def tells(content: bytes) -> bool:
    return any(needle in content for needle in NEEDLES)


def files_that_tell(*folders: Path) -> list[Path]:
    found = [file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [file for file in found if tells(file.read_bytes())]


@dataclass(frozen=True)
class Based:
    """Return a builder that resolves ECR's name."""

    program: Path
    environment: dict[str, str]
    kept: tuple[Path, ...]  # all that it writes
    marks: bytes  # stands in its arguments or environment


@pytest.fixture
def on_ecr(in_ecr: MotoAws, building: Buildah, source: Path) -> None:
    """Write a Dockerfile with a base in ECR."""
    base = build_and_push(spec(source, "team/base"))
    (source / "Dockerfile").write_text(f"FROM {base.ref}\nCOPY code /again\n")


@pytest.fixture(params=["buildah", "docker, classic", "docker, BuildKit"])
def based(
    request: pytest.FixtureRequest,
    on_ecr: None,
    building: Buildah,
    ecr_registry: RealRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Based]:
    folder = tmp_path_factory.mktemp("d")  # short, as paths of sockets must be
    with front(ecr_registry.port) as address:
        if request.param == "buildah":
            made = named(building, folder / "named", HOST, address)
            storage = Path(made.environment["CONTAINERS_STORAGE_CONF"]).parent
            yield Based(made.program, made.environment, (storage,), b"--authfile")
            return
        with dockerd(folder, f"{address} {HOST}", authority=ecr_registry.ca) as daemon:
            program = daemon.client("client", CLASSIC if "classic" in request.param else "")
            yield Based(program, daemon.environment, (folder,), b"DOCKER_CONFIG=/dev/shm/kfjob-")


def test_token_is_not_written_anywhere(based: Based, source: Path, tmp_path: Path, ecr_registry: RealRegistry, name: str):
    assert all(tells(one) for one in NEEDLES)
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    env = os.environ | based.environment | {"HOME": str(home), "TMPDIR": str(temporary)}
    argv = [KFJOB, "push-image", str(source), "--to", name, "--builder", str(based.program), "-o", "json"]
    with (
        subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child,
        Watcher(child.pid) as watcher,
    ):
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0, out.decode()
    assert name.encode() in out
    assert not tells(out)
    assert any(based.marks in one for one in watcher.seen)  # the builders were looked at
    assert not [one for one in watcher.seen if tells(one)]
    assert {(mode, holds) for _, mode, holds in watcher.lent if holds} == {(0o600, True)}
    assert not [file for file, _, _ in watcher.lent if file.exists()]
    assert files_that_tell(home, temporary, source, *based.kept, ecr_registry.folder / "data") == []
    assert not tells((ecr_registry.folder / "log").read_bytes())


def test_failed_build_leaves_no_login(based: Based, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (source / "Dockerfile").write_text((source / "Dockerfile").read_text() + "COPY nothing /\n")
    before = set(Path("/dev/shm").glob("kfjob-*"))
    done = subprocess.run(
        [KFJOB, "push-image", str(source), "--to", "team/train", "--builder", str(based.program), "--debug"],
        env=os.environ | based.environment,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert b"the build failed" in done.stderr  # and with --debug, the traceback
    assert b"Traceback" in done.stderr
    assert not tells(done.stdout + done.stderr)
    assert set(Path("/dev/shm").glob("kfjob-*")) <= before


@pytest.mark.usefixtures("on_ecr")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupted_build_leaves_no_login(source: Path, tmp_path: Path, number: int, code: int):
    engine = tmp_path / "slow" / "buildah"
    engine.parent.mkdir()
    engine.write_text("#!/bin/sh\nexec sleep 300\n")
    engine.chmod(0o755)
    before = set(Path("/dev/shm").glob("kfjob-*"))
    argv = [KFJOB, "push-image", str(source), "--to", "team/slow", "--builder", str(engine)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child, Watcher(child.pid) as watcher:
        deadline = time.monotonic() + 60
        while not any(b"sleep\x00300" in one for one in list(watcher.seen)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(set(Path("/dev/shm").glob("kfjob-*")) - before) == 1
        child.send_signal(number)
        out, _ = child.communicate(timeout=30)
    assert child.returncode == code, out.decode()
    assert b"Traceback" not in out
    assert set(Path("/dev/shm").glob("kfjob-*")) <= before
