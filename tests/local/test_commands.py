"""The commands on this machine, from shells of their own, with real agents."""

from __future__ import annotations

import html
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kfjob_command import KFJOB
from tests.local.machine import Machine, wait_until

pytestmark = pytest.mark.local


@pytest.fixture
def kfjob(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for job in json.loads(machine("list", "-o", "json")):
        machine("stop", job["name"])


def test_a_program_gets_dollar_signs_as_they_were_typed(kfjob):
    (kfjob.folder / "show.py").write_text("import os, sys\nprint(*sys.argv[1:], os.environ['PW'])\n")
    words = ("a$$b", "$$$", "$(RANK)", "$${X}", "${X}")
    kfjob("run", "-e", "PW=c$$d$(RANK)", "--", "python3", str(kfjob.folder / "show.py"), *words)
    assert "a$$b $$$ $(RANK) $${X} ${X} c$$d$(RANK)" in kfjob("logs", "show")


def test_follow_shows_the_end_and_every_shell_can_ask(kfjob):
    done = kfjob.run("submit", kfjob.spec("short", steps=5, pause=0.05), "--follow")
    assert done.returncode == 0
    printed = done.stdout.splitlines()
    assert "submitted `short` (launch " in done.stderr
    assert [line.partition("Batch ")[2].partition(" ")[0] for line in printed] == ["1", "2", "3", "4", "5"]
    assert "short: Succeeded" in done.stderr
    assert "7.8000 → 7.0000 in 5 steps" in done.stderr
    logs = re.search(r"logs +(\S+)", done.stderr)
    assert logs
    assert (Path(logs[1]) / "short-worker-0" / "pytorch.log").exists()
    assert json.loads(kfjob("master", "short", "-o", "json"))["pod"] == "short-worker-0"
    assert kfjob("logs", "short").count("Batch") == 5
    assert json.loads(kfjob("status", "short", "-o", "json"))["phase"] == "Succeeded"
    assert kfjob("wait", "short") == "Succeeded\n"
    again = kfjob.run("submit", kfjob.spec("short", steps=1, pause=0), "--follow")
    assert again.returncode == 0
    assert "the last launch of `short` has ended (Succeeded), and goes to the archive" in again.stderr


def test_a_report_of_a_job_that_ended_of_its_archive_and_of_saved_logs(kfjob):
    kfjob("submit", kfjob.spec("told", steps=30, pause=0.02), "--follow")
    file = kfjob.folder / "told.html"
    assert kfjob("report", "told", "-o", str(file)) == f"{file}\n"
    page = file.read_text(encoding="utf-8")
    curve = json.loads(html.unescape(re.findall(r'data-points="([^"]+)"', page)[0]))["loss"]
    assert [point[2] for point in curve] == [str(step) for step in range(1, 31)]
    for words in ("Succeeded", "told-worker-0", "No problem was found.", "name: told", "timeline"):
        assert words in page
    kfjob("stop", "told")
    archive = next((kfjob.folder / "state").rglob("archive/**/told/*"))
    for asked in (("told",), ("--from", str(archive))):
        assert 'class="line main"' in kfjob("report", *asked, "-o", "-")
    saved = kfjob.folder / "saved"
    saved.mkdir()
    (saved / "told-worker-0.log").write_text("".join(f"Batch {n} Loss: {9 - n}, Speed: 1.0 samples/sec\n" for n in range(1, 5)))
    assert 'class="line main"' in kfjob("report", "--from", str(saved), "-o", "-")
    assert "cannot write" in kfjob.run("report", "--from", str(saved), "-o", str(kfjob.folder)).stderr


def test_status_logs_master_and_stop_from_another_shell_while_it_runs(kfjob):
    kfjob("submit", kfjob.spec("long", steps=10_000, pause=0.05))
    assert json.loads(kfjob("master", "long", "--wait", "30", "-o", "json"))["pod"] == "long-worker-0"
    assert json.loads(kfjob("status", "long", "-o", "json"))["phase"] == "Running"
    for command in ("master", "status"):
        assert "which does not know the jobs of this machine" in kfjob.run(command, "long", "-o", "name").stderr
    assert "Batch 1 " in kfjob("logs", "long", "--master")
    assert kfjob.run("wait", "long", "--timeout", "0.2").returncode == 124
    assert kfjob("stop", "long") == "long\n"
    assert kfjob.run("stop", "long").returncode == 3
    assert kfjob("wait", "long", code=103) == "Stopped\n"
    assert kfjob("relaunch", "long") == "long\n"


def test_stop_without_an_archive_leaves_no_logs(kfjob):
    kfjob("submit", kfjob.spec("gone", steps=2, pause=0), "--follow")
    done = kfjob.run("stop", "gone", "--no-archive")
    assert done.returncode == 0
    assert "its logs are in" not in done.stderr
    assert kfjob.run("logs", "gone").returncode == 3


def test_a_job_that_fails_shows_why(kfjob):
    spec = kfjob.folder / "bad.yaml"
    spec.write_text("name: bad\ncommand: python3 -c 'import nothing_of_that_name'\n")
    done = kfjob.run("submit", str(spec), "--follow")
    assert done.returncode == 100
    assert "ModuleNotFoundError: No module named 'nothing_of_that_name'" in done.stderr


def test_ctrl_c_in_a_terminal_detaches_and_the_job_goes_on(kfjob):
    spec = kfjob.spec("kept", steps=10_000, pause=0.05)
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [KFJOB, "submit", spec, "--follow"],
        env=kfjob.env | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        seen = read_until(controller, "step ")
        os.killpg(process.pid, signal.SIGINT)  # what a terminal sends to all of its foreground group
        seen += read_until(controller, "stops it")
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
        process.wait()
    os.close(controller)
    assert "detached from `kept`, which continues" in seen
    before = len(kfjob("logs", "kept").splitlines())
    wait_until(lambda: len(kfjob("logs", "kept").splitlines()) > before)


def read_until(terminal: int, text: str) -> str:
    seen = b""
    deadline = time.monotonic() + 60
    while text.encode() not in seen:
        assert time.monotonic() < deadline, seen.decode(errors="replace")
        try:
            seen += os.read(terminal, 65536)
        except OSError as err:  # nobody writes to it any more
            raise AssertionError(f"it has ended without `{text}`: {seen.decode(errors='replace')}") from err
    return seen.decode(errors="replace")


OWN_WORDS = """
for step in range(1, 6):
    print(f"epoch 1 | done {step} of 5, cost {2 - step / 10:.2f} at {step * 1.5} images/s", flush=True)
"""


def test_a_trainer_that_prints_in_its_own_words_is_followed_by_the_specs_pattern(kfjob):
    program = kfjob.folder / "own.py"
    program.write_text(OWN_WORDS)
    file = kfjob.folder / "own.yaml"
    pattern = r"done (?P<step>\d+) of (?P<total>\d+), cost (?P<loss>\S+) at (?P<speed>\S+) (?P<unit>\w+/s)"
    file.write_text(f"name: own\ncommand: python3 {program}\nprogress: '{pattern}'\n")
    done = kfjob.run("submit", str(file), "--follow")
    assert done.returncode == 0, done.stderr
    assert "1.9000 → 1.5000 in 5 steps" in done.stderr
    said = json.loads(kfjob("status", "own", "-o", "json"))["progress"]
    wanted = {"format": "custom", "step": 5, "total": 5, "loss": 1.5, "speed": 7.5, "unit": "images/s"}
    assert {key: said[key] for key in wanted} == wanted
    master = json.loads(kfjob("master", "own", "-o", "json"))
    assert (master["confidence"], master["evidence"]["kind"]) == ("confirmed", "progress line")


SHOW_FOLDER = "from pathlib import Path\nprint('file of', Path(__file__).parent.name, 'in', Path.cwd().name)\n"


def make_program_folders(folder: Path) -> tuple[Path, Path]:
    folders = folder / "a", folder / "b"
    for path in folders:
        path.mkdir()
        (path / "w.py").write_text(SHOW_FOLDER)
    return folders


def test_agents_start_in_the_working_dir_of_the_spec(kfjob, monkeypatch):
    first, second = make_program_folders(kfjob.folder)
    spec = kfjob.folder / "job.yaml"
    spec.write_text(f"name: there\ncommand: python w.py\npod: {{working_dir: {first}}}\n")
    monkeypatch.chdir(second)
    kfjob("submit", str(spec), "--follow")
    assert "file of a in a" in kfjob("logs", "there")
    (first / "w.py").unlink()
    kfjob("stop", "there")
    absent = kfjob.run("submit", str(spec))
    assert absent.returncode == 1
    assert "script `w.py` does not exist" in absent.stderr
    assert f"would start in `{first}`" in absent.stderr
    spec.write_text(f"name: nowhere\ncommand: python w.py\npod: {{working_dir: {first}/absent}}\n")
    missing = kfjob.run("submit", str(spec))
    assert missing.returncode == 1
    assert f"folder `{first}/absent` is not on this machine" in missing.stderr


def test_a_relaunch_starts_where_the_job_was_submitted(kfjob, monkeypatch):
    first, second = make_program_folders(kfjob.folder)
    spec = kfjob.folder / "job.yaml"
    spec.write_text("name: again\ncommand: python w.py\n")
    monkeypatch.chdir(first)
    kfjob("submit", str(spec), "--follow")
    monkeypatch.chdir(second)
    kfjob("relaunch", "again", "--follow")
    assert "file of a in a" in kfjob("logs", "again")
    kfjob("stop", "again")  # its record is now in the archive
    kfjob("relaunch", "again", "--follow")
    assert "file of a in a" in kfjob("logs", "again")
    first.rename(kfjob.folder / "gone")
    missing = kfjob.run("relaunch", "again")
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"error: folder `{first}` does not exist\n")
