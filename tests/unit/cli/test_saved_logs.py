"""Saved logs in all forms: files with any ending, compressed files, standard input, and files that are no logs."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfjob.backends import saved_logs
from kfjob.backends.base import JobRef
from kfjob.cli import summary
from kfjob.cli.main import main

ERROR = "Traceback (most recent call last):\n  File \"train.py\", line 3, in f\nModuleNotFoundError: No module named 'x'\n"
KILLED = "E1123 00:33:14.503000 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0"
STEPS = "".join(f"epoch 1 step {step} loss {9 - step / 100}\n" for step in (10, 20, 30))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as end:
            main(list(words))
        return int(end.value.code or 0), *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", ["my.log", "slurm-123.out", "rank0.txt", "output", "my.log.gz", "my.out.gz"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_text_of_any_ending_is_a_log(run, tmp_path, name, in_folder):
    (tmp_path / "s1").mkdir()
    file = tmp_path / "s1" / name
    file.write_bytes(gzip.compress(ERROR.encode()) if name.endswith(".gz") else ERROR.encode())
    _, out, err = run("diagnose", "--from", "s1" if in_folder else f"s1/{name}")
    assert "[module-not-found]" in out
    assert f"pod `{name.split('.')[0]}`" in out
    assert err == ""


@pytest.mark.parametrize("content", [ERROR.encode(), gzip.compress(ERROR.encode())], ids=["text", "gzip"])
def test_standard_input_is_a_log(run, content):
    assert "[module-not-found]" in run("diagnose", "--from", "-", stdin=content)[1]


def test_binary_files_are_left_out_and_named(run, tmp_path):
    (tmp_path / "rank0.txt").write_text(ERROR)
    (tmp_path / "model.pt").write_bytes(b"PK\3\4\0\0")
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(ERROR.encode())[:20])
    (tmp_path / "train.py").write_text("raise MemoryError")
    _, out, err = run("diagnose", "--from", ".")
    assert "[module-not-found]" in out
    assert "of 1 pod)" in out
    assert all(name in err for name in ("`model.pt` (not text)", "`cut.log.gz` (", "`train.py` (not a log)"))
    code, _, err = run("diagnose", "--from", "model.pt")
    assert code == 2
    assert err.startswith("error: `model.pt` is not a log\n")


def test_unpacked_log_has_a_limit(run, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_logs, "MAX_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "big.log.gz").write_bytes(gzip.compress(ERROR.encode() + b"\n".join([b"x" * 4000] * 500)))
    _, out, err = run("diagnose", "--from", "big.log.gz")
    assert "[module-not-found]" in out
    assert "left out: the end of `big.log.gz` (all logs are longer than 1 MiB)" in err


def test_unpacked_logs_of_a_folder_have_one_limit(run, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_logs, "MAX_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "logs").mkdir()
    for number in range(4):
        (tmp_path / "logs" / f"w-{number}.out.gz").write_bytes(gzip.compress(b"\n".join([b"x" * 4000] * 100)))
    found = saved_logs.find_saved_logs(tmp_path / "logs")
    assert sum(path.stat().st_size for path in found.logs.values()) == 1 << 20
    assert found.left_out == [f"the end of `w-{number}.out.gz` (all logs are longer than 1 MiB)" for number in (2, 3)]


@pytest.mark.parametrize("name", ["my.log", "slurm.out", "my.log.gz"])
def test_progress_reads_files_and_standard_input(run, tmp_path, name):
    content = gzip.compress(STEPS.encode()) if name.endswith(".gz") else STEPS.encode()
    (tmp_path / name).write_bytes(content)
    for word in (name, "-"):
        assert "step 30 · loss 8.7000" in run("progress", word, stdin=content)[1]


def test_missing_files_are_named_as_files(run):
    for words in (("progress", "absent.log"), ("progress", "logs/absent"), ("diagnose", "--from", "absent")):
        code, _, err = run(*words)
        assert code == 3
        assert err.startswith(f"error: `{words[-1]}` does not exist\n")


def test_file_as_a_job_hints_at_from(run, tmp_path):
    (tmp_path / "my.log").write_text(ERROR)
    code, _, err = run("diagnose", "my.log", "--backend", "local")
    assert code != 0
    assert "hint: `--from my.log` reads saved logs" in err


def test_hint_for_saved_logs_works(run, tmp_path):
    (tmp_path / "s 1").mkdir()
    (tmp_path / "s 1" / "w-0.log").write_text(f"{KILLED} (pid: 9) of binary: /usr/bin/python\n")
    _, out, err = run("diagnose", "--from", "s 1")
    commands = [part for part in (out + err).split("`") if part.startswith("kfjob ")]
    assert commands
    for command in commands:
        assert run(*shlex.split(command)[1:])[0] == 0
    _, out, err = run("diagnose", "--from", "-", stdin=f"{KILLED} (pid: 9) of binary: /usr/bin/python\n".encode())
    assert "`kfjob " not in out + err


def test_time_without_a_year_is_shown_without_one(run):
    line = "[rank1]:[E1120 10:20:11.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    line += "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds"
    _, out, _ = run("diagnose", "--from", "-", stdin=line.encode())
    assert "line 1, 11-20 10:20:11Z" in out
    _, out, _ = run("diagnose", "--from", "-", stdin=f"2026-11-20T10:19:00Z step 1 loss 2.5\n{line}".encode())
    assert "2026-11-20 10:20:11Z" in out


@pytest.mark.parametrize("layout", ["[ep 0 it {}] nll {} tok/s 3267", "upd {} | xent {}", "[it {}] loss: {}"])
def test_progress_reads_pairs_in_brackets(run, layout):
    lines = "".join(layout.format(step, 9 - step / 100) + "\n" for step in range(5, 30, 5))
    _, out, _ = run("progress", "-", stdin=lines.encode())
    assert "step 25 · loss 8.7500" in out


@pytest.mark.parametrize(("text", "headline"), [(ERROR, "Ended with an error"), (STEPS, "Unknown end")])
def test_first_line_says_what_a_saved_log_shows_of_its_end(run, tmp_path, text, headline):
    (tmp_path / "my.log").write_text(text)
    assert run("diagnose", "--from", "my.log")[1].startswith(f"my: {headline} (read")
    state = run("status", "--from", "my.log")[1]
    assert headline in state.splitlines()[1]
    assert "Stopped" not in state
    assert ("module" in state) == (text == ERROR), "the cause"


_AGENT = "1123 15:00:05.000000 12 torch/distributed/elastic/agent/server/api.py:890] [default] "
FINISHED = f"I{_AGENT}worker group successfully finished. Waiting 300 seconds for other agents to finish.\n"
RESTART = f"{KILLED}\nI{_AGENT}Worker group FAILED. 3/3 attempts left; will restart worker group\n"
IN_WORKER = "".join(f"[default0]:{line}\n" for line in ERROR.splitlines())


@pytest.mark.parametrize(
    ("text", "headline", "verdict"),
    [
        (STEPS + FINISHED, "Succeeded", "succeeded"),
        (STEPS + RESTART + STEPS + FINISHED, "Succeeded", "succeeded"),
        (STEPS + RESTART, "Ended with an error", "failed"),
        (STEPS + RESTART + STEPS, "Unknown end", "unknown"),
        (STEPS + "Training finished\n", "Unknown end", "reported"),
        (STEPS + IN_WORKER + f"[default0]:{FINISHED}", "Ended with an error", "failed"),  # the program printed that line
    ],
)
def test_headline_and_verdict_of_a_saved_log_agree(run, tmp_path, text, headline, verdict):
    (tmp_path / "my.log").write_text(text)
    diagnosis = json.loads(run("diagnose", "--from", "my.log", "-o", "json")[1])
    assert (diagnosis["headline"], diagnosis["verdict"]) == (headline, verdict)
    assert json.loads(run("status", "--from", "my.log", "-o", "json")[1])["headline"] == headline
    assert headline in run("status", "--from", "my.log")[1].splitlines()[1]


def test_summary_names_no_folder_that_a_stop_has_moved(tmp_path):
    ref = JobRef(backend="local", namespace="default", name="train", uid="u", launch="l1")
    reader: Any = SimpleNamespace(ref=ref, target=SimpleNamespace(settings=SimpleNamespace(state=tmp_path)))
    path = tmp_path / "local/default/train/l1"
    path.mkdir(parents=True)
    assert summary._logs_folder(reader) == path
    path.rename(tmp_path / "archived")
    assert summary._logs_folder(reader) is None
