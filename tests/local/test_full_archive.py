"""Archiving a cluster's job to a full disk: one clear error, the job goes on, and a later stop archives everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.local

PROGRAM = """
import contextlib, io, sys
from pathlib import Path
from kfjob.api.settings import Settings
from kfjob.api.target import Target, make_target
from kfjob.api.lifecycle.stop import stop
from tests.fakes.backend import FakeBackend
from kfjob.cli.commands import run
from kfjob.joblog.events import LogLine
from tests.unit.api import script

disk, free = Path(sys.argv[1]), int(sys.argv[2])
backend = FakeBackend()
Target._open_cluster = lambda target: backend
backend.play("train", *script.TRAINING, spec=script.SPEC)
with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
    while True:
        file.write(b"x" * 4096)
with (disk / "filler").open("r+b") as file:
    file.truncate((disk / "filler").stat().st_size - free)
messages = io.StringIO()
with contextlib.redirect_stderr(messages):
    code = run(["stop", "train", "--backend", "kubernetes"])
text = messages.getvalue()
assert code == 1, (code, text)
assert text.startswith("error: job `train` cannot be archived, so it was not stopped\\n  --> "), text
assert "cause: No space left on device" in text, text
assert text.count("error: ") == 1, text
assert backend.calls == [], backend.calls
(disk / "filler").unlink()
assert run(["stop", "train", "--backend", "kubernetes"]) == 0
assert backend.calls == [("stop", "train")]
archived = "".join(log.read_text() for log in (disk / "kfjob").rglob("pytorch.log"))
texts = [event.text for event in script.TRAINING if isinstance(event, LogLine)]
assert texts, "the job has no log"
assert [text for text in texts if text not in archived] == [], archived
"""


@pytest.mark.parametrize("free", [0, 4096, 8192])
def test_a_job_is_not_stopped_if_the_disk_of_its_archive_is_full(tmp_path: Path, free: int):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=512k none {disk} && XDG_STATE_HOME={disk} exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c"]
    argv = [*words, PROGRAM, str(disk), str(free)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
