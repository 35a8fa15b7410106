"""A log of several pods in one text, as `kfjob logs` and `kubectl logs --prefix` print it, is read as the logs of its pods."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from kfjob.backends import combined_log, saved_logs
from kfjob.backends.folder import previous_log_path
from kfjob.backends.saved_logs import find_saved_logs
from kfjob.cli.log_printer import LineFormat, LogPrinter
from kfjob.cli.main import main
from kfjob.joblog.events import LogLine

PODS = ("train-worker-0", "train-worker-10")
AGENT = "I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552] [default] Starting worker group"


def print_lines(*, color: bool = False, timestamps: bool = False) -> str:
    """Return what `kfjob logs` prints for two pods, of which the second one trains."""
    out = io.StringIO()
    printer = LogPrinter(LineFormat(colour=color, timestamps=timestamps), PODS, out, lambda _: None)
    lines = [LogLine(pod=pod, text=AGENT, time=10**18) for pod in PODS]
    lines += [LogLine(pod=PODS[1], text=f"step {step} loss {3 - step / 10:.2f}", time=10**18 + step) for step in range(1, 20)]
    printer.write(lines, live=False)
    return out.getvalue()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main(list(words))
    return capsys.readouterr().out


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_kfjob_reads_the_lines_of_several_pods_that_it_prints(capsys, tmp_path, color, timestamps, packed):
    text = print_lines(color=color, timestamps=timestamps).encode()
    file = tmp_path / ("all.txt.gz" if packed else "all.log")
    file.write_bytes(gzip.compress(text) if packed else text)
    for source in (file, tmp_path):
        answer = json.loads(run(capsys, "progress", "--from", str(source), "-o", "json"))
        assert answer["pod"] == "train-worker-10"
        assert {row["example"] for row in answer["templates"]} == {"step 1 loss 2.90"}
    assert "train-worker-10" in run(capsys, "master", "--from", str(file))


def test_standard_input_holds_the_logs_of_several_pods(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(print_lines().encode())))
    assert set(find_saved_logs(Path("-")).logs) == set(PODS)


def test_prefix_of_kubectl_names_the_pods(tmp_path):
    (tmp_path / "all.log").write_text("".join(f"[pod/llm-{pod}/pytorch] line {line}\n" for line in range(3) for pod in "ab"))
    saved = find_saved_logs(tmp_path / "all.log")
    logs = saved.logs
    assert {pod: path.read_text() for pod, path in logs.items()} == dict.fromkeys(
        ("llm-a", "llm-b"), "line 0\nline 1\nline 2\n"
    )


def test_notes_between_the_lines_stay_with_the_pod_before(tmp_path):
    (tmp_path / "all.log").write_text("note: a\n" + print_lines() + "note: 2 lines left out\n")
    saved = find_saved_logs(tmp_path / "all.log")
    logs = saved.logs
    assert logs[PODS[0]].read_text() == f"note: a\n{AGENT}\n"
    assert logs[PODS[1]].read_text().endswith("note: 2 lines left out\n")


@pytest.mark.parametrize(
    "row",
    [
        "{step:<5} | {loss:.2f} | 0.001",
        "train | step {step} | loss {loss}",
        "step-{step} | loss {loss}",
        "epoch | {step} | loss | {loss}",
        "{step} | loss {loss}",
        "2026-02-03 04:05:06 | INFO | step {step} loss {loss}",
    ],
)
def test_other_tables_are_the_log_of_one_pod(tmp_path, row):
    (tmp_path / "my.log").write_text("".join(row.format(step=step, loss=3 - step / 10) + "\n" for step in range(1, 20)))
    assert list(find_saved_logs(tmp_path / "my.log").logs) == ["my"]


def test_number_and_size_of_the_logs_of_pods_have_limits(tmp_path, monkeypatch):
    (tmp_path / "all.log").write_text("".join(f"w-worker-{pod} | line\n" for pod in range(20)))
    monkeypatch.setattr(combined_log, "MAX_PODS", 3)
    assert len(find_saved_logs(tmp_path / "all.log").logs) == 3
    monkeypatch.setattr(saved_logs, "MAX_UNPACKED_BYTES", 100)
    assert list(find_saved_logs(tmp_path / "all.log").logs) == ["all"]


def test_pod_with_a_file_of_its_own_keeps_it(tmp_path):
    (tmp_path / "all.log").write_text(print_lines())
    (tmp_path / f"{PODS[0]}.log").write_text("line\n")
    assert sorted(find_saved_logs(tmp_path).logs) == ["all", PODS[0]]


def test_number_of_pods_does_not_slow_down_a_line(tmp_path, monkeypatch):
    class CountedName(bytes):
        """A name of a pod that counts how often it is hashed."""

        hashed = 0

        def __hash__(self) -> int:
            CountedName.hashed += 1
            return super().__hash__()

    class Match:
        def __init__(self, line: bytes) -> None:
            self._name = CountedName(line.partition(b" ")[0])

        def __getitem__(self, _: str) -> bytes:
            return self._name

        def end(self) -> int:
            return len(self._name) + 3

    class Pattern:
        match = Match

    pods, rounds = 100, 10
    text = "".join(f"w-worker-{pod} | line\n" for _ in range(rounds) for pod in range(pods))
    (tmp_path / "all.log").write_text(text)
    logs = combined_log.split_log(
        tmp_path / "all.log", combined_log.Prefix(cast("Any", Pattern()), CountedName(b"w-worker-0")), tmp_path / "split"
    )
    assert len(logs) == pods
    assert CountedName.hashed < 10 * pods * rounds


def test_longest_name_of_a_pod_is_no_name_of_a_file(tmp_path):
    pods = ["a" * 243 + f"-worker-{number}" for number in (1, 2)]
    (tmp_path / "all.log").write_text("".join(f"{pod} | line\n" for pod in pods))
    saved = find_saved_logs(tmp_path / "all.log")
    logs = saved.logs
    assert {pod: path.read_text() for pod, path in logs.items()} == dict.fromkeys(pods, "line\n")


def test_pod_whose_name_ends_with_previous_is_a_pod(tmp_path):
    (tmp_path / "all.log").write_text("".join(f"[pod/{pod}/pytorch] line of {pod}\n" for pod in ("x", "x.previous")))
    saved = find_saved_logs(tmp_path / "all.log")
    logs = saved.logs
    assert {pod: path.read_text() for pod, path in logs.items()} == {"x": "line of x\n", "x.previous": "line of x.previous\n"}
    assert not any(previous_log_path(path).exists() for path in logs.values())


@pytest.mark.parametrize("names", [("train-worker-9",), ("train-worker-8", "train-worker-9")])
def test_file_of_a_pod_keeps_its_name_when_its_lines_name_other_pods(tmp_path, names):
    files = ("job-worker-0", "job-worker-1")
    for file in files:
        (tmp_path / f"{file}.log").write_text("".join(f"{name} | step {step}\n" for step in range(9) for name in names))
    assert sorted(find_saved_logs(tmp_path).logs) == sorted(files)
    assert list(find_saved_logs(tmp_path / "job-worker-0.log").logs) == ["job-worker-0"]


def test_two_files_that_name_the_same_pod_keep_their_names(tmp_path):
    for file in ("a", "b"):
        (tmp_path / f"{file}.log").write_text("train-worker-9 | step 1\n" * 9)
    assert sorted(find_saved_logs(tmp_path).logs) == ["a", "b"]
