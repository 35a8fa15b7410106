"""ECR's token: in no argv, environment, output, file or image, while a base image is pulled with it and the result pushed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from kfjob.api.push_image import build_and_push
from tests.image.aws import HOST, MotoAws
from tests.image.builders import Buildah
from tests.image.conftest import MOTO_TOKEN
from tests.image.front import front, named
from tests.image.registries import RealRegistry
from tests.image.test_push_image import spec

KFJOB = str(Path(sys.executable).with_name("kfjob"))
NEEDLES = [MOTO_TOKEN.encode(), b64encode(f"AWS:{MOTO_TOKEN}".encode()), b64encode(MOTO_TOKEN.encode()).rstrip(b"=")]


class Watcher:
    """Looks at every descendant of a process, and at the files that builders are lent, again and again."""

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
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    waiting += map(int, task.read_text().split())
                except OSError:
                    continue


def tells(content: bytes) -> bool:
    return any(needle in content for needle in NEEDLES)


def files_that_tell(*folders: Path) -> list[Path]:
    found = [file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [file for file in found if tells(file.read_bytes())]


@pytest.fixture
def based(in_ecr: MotoAws, building: Buildah, ecr_registry: RealRegistry, source: Path, tmp_path: Path) -> Iterator[Buildah]:
    """A Dockerfile on a base in ECR, and a builder that finds it there."""
    base = build_and_push(spec(source, "team/base"))
    (source / "Dockerfile").write_text(f"FROM {base.ref}\nCOPY code /again\n")
    with front(ecr_registry.port) as address:
        yield named(building, tmp_path / "named", HOST, address)


def test_the_token_is_nowhere(based: Buildah, source: Path, tmp_path: Path, ecr_registry: RealRegistry):
    assert all(tells(one) for one in NEEDLES)
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    env = os.environ | based.environment | {"HOME": str(home), "TMPDIR": str(temporary)}
    argv = [KFJOB, "push-image", str(source), "--to", "team/train", "--builder", str(based.program), "-o", "json"]
    with (
        subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child,
        Watcher(child.pid) as watcher,
    ):
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0, out.decode()
    assert b"team/train" in out
    assert not tells(out)
    assert any(b"--authfile" in one for one in watcher.seen)  # the builders were looked at
    assert not [one for one in watcher.seen if tells(one)]
    assert {(mode, holds) for _, mode, holds in watcher.lent if holds} == {(0o600, True)}
    assert not [file for file, _, _ in watcher.lent if file.exists()]
    storage = Path(based.environment["CONTAINERS_STORAGE_CONF"]).parent
    assert files_that_tell(home, temporary, source, storage, ecr_registry.folder / "data") == []
    assert not tells((ecr_registry.folder / "log").read_bytes())


def test_a_build_that_fails_leaves_no_login(based: Buildah, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
    assert b"the build misses a file" in done.stderr  # and with --debug, the traceback
    assert b"Traceback" in done.stderr
    assert not tells(done.stdout + done.stderr)
    assert set(Path("/dev/shm").glob("kfjob-*")) <= before
