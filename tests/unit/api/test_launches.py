"""`kfjob history` and `kfjob compare`, and their Python functions: launches, live and archived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kfjob as package
from kfjob.api.settings import load_current_settings
from kfjob.backends import folder
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodPhase
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell

FAILURE = (
    "Traceback (most recent call last):",
    '  File "/w/fit.py", line 6, in <module>',
    '    raise RuntimeError("the disk ate my gradient")',
    "RuntimeError: the disk ate my gradient",
)


def archive(
    job: str, launch: str, lines: list[str], *, phase: JobPhase = JobPhase.SUCCEEDED, age: int = 0, **spec: Any
) -> None:
    """Write a launch with this log and these fields of its spec to the archive."""
    state = JobChanged(phase=phase, created=script.START - age, started=script.START, ended=script.START + 60 * 10**9)
    pod = script.pod(1, PodPhase.FAILED if phase is JobPhase.FAILED else PodPhase.SUCCEEDED, exit_code=1)
    fields = json.dumps(json.loads(script.SPEC) | spec)
    snapshot = JobSnapshot(name=job, namespace="default", job=state, pods=(pod,), uid=launch, launch=launch, spec=fields)
    path = folder.make_private(load_current_settings().archive_folder / "default" / job / launch)
    folder.write_snapshot(path, snapshot)
    log = folder.log_path(path, pod.pod)
    log.parent.mkdir()
    log.write_text("".join(f"2026-11-21T06:00:{index % 60:02}Z {line}\n" for index, line in enumerate(lines)))


def print_steps(steps: int, lr: float) -> list[str]:
    return [script.progress(1, step, 8.0 - step * lr).text for step in range(1, steps + 1)]


@pytest.fixture
def launches(fake: FakeBackend) -> FakeBackend:
    """Return a cluster with a live launch of `train`; the archive has two earlier ones."""
    first, second = ({"LR": lr, "HF_TOKEN": "hf_" + "Aa1" * 11} for lr in ("0.1", "0.2"))
    archive("train", "first", print_steps(40, 0.1), age=200, env=first)
    lines = [*print_steps(20, 0.2), *FAILURE]
    archive("train", "second", lines, phase=JobPhase.FAILED, age=100, env=second)
    fake.play("train", *script.TRAINING, spec=script.SPEC, launch="live")
    return fake


def test_history_shows_the_archived_and_the_live_launches(launches: FakeBackend, kfjob: Shell):
    assert kfjob("history", "train") == 0
    rows = [line.split() for line in kfjob.out.splitlines()]
    assert [row[0] for row in rows if row[0].isdigit()] == ["1", "2", "3"]
    assert [row[3] for row in rows if row[0].isdigit()] == ["Succeeded", "Failed", "Running"]
    assert [row[5:7] for row in rows if row[0].isdigit()] == [["40", "4.0000"], ["20", "4.0000"], ["20", "6.0000"]]
    assert "     the program ended with `RuntimeError: the disk ate my gradient` at /w/fit.py:6" in kfjob.out.splitlines()


def test_history_shows_the_newest_launches_first_of_all(launches: FakeBackend, kfjob: Shell):
    assert kfjob("history", "train", "--last", "1", "-o", "json") == 0
    (launch,) = json.loads(kfjob.out)
    assert (launch["number"], launch["launch"], launch["phase"], launch["progress"]["step"]) == (3, "live", "Running", 20)
    assert "2 older launches not shown: `--last 3` shows all" in kfjob.err


def test_the_cause_of_a_live_launch_shows_no_secret(fake: FakeBackend, kfjob: Shell):
    spec = json.dumps(json.loads(script.SPEC) | {"env": {"DB_PASSWORD": "zq7Xsecret9pw"}})
    failure = [script.line(1, text.replace("gradient", "zq7Xsecret9pw"), 40) for text in FAILURE]
    events = [*script.TRAINING, *failure, script.pod(1, PodPhase.FAILED), script.job(JobPhase.FAILED)]
    fake.play("train", *events, spec=spec, launch="live")
    for output in ("table", "json"):
        assert kfjob("history", "train", "-o", output) == 0
        assert "the disk ate my [redacted]" in kfjob.out
        assert "zq7Xsecret9pw" not in kfjob.out


def test_a_damaged_launch_is_left_out_and_named(launches: FakeBackend, kfjob: Shell):
    (load_current_settings().archive_folder / "default" / "train" / "first" / folder.STATUS).write_text("{")
    assert kfjob("history", "train") == 0
    assert "note: launch `first` is left out: " in kfjob.err
    assert len([line for line in kfjob.out.splitlines() if line[0].isdigit()]) == 2


def test_compare_aligns_the_losses_and_shows_what_differs(launches: FakeBackend, kfjob: Shell):
    assert kfjob("compare", "train@1", "train@second", "-o", "json") == 0
    result = json.loads(kfjob.out)
    losses = {row["step"]: row["losses"] for row in result["steps"]}
    assert losses[20][0] > losses[20][1]
    assert losses[40][1] is None
    assert {row["field"]: row["values"] for row in result["spec"]} == {"env.LR": ["0.1", "0.2"]}
    assert "hf_Aa1" not in kfjob.out


def test_compare_writes_one_page_without_secrets(launches: FakeBackend, kfjob: Shell, here: Path):
    assert kfjob("compare", "train@all", "--html", "page.html") == 0
    page = (here / "page.html").read_text()
    assert page.count('class="line series s') >= 3
    assert kfjob("compare", "train@all") == 0
    steps = next(line.split()[1:] for line in kfjob.out.splitlines() if line.startswith("step "))
    assert steps
    assert all(f">{step}<" in page for step in steps)
    assert "train@2" in page
    assert "hf_Aa1" not in page


def test_saved_logs_are_compared_with_a_job(launches: FakeBackend, kfjob: Shell):
    path = load_current_settings().archive_folder / "default" / "train" / "second"
    assert kfjob("compare", "train@1", "--from", str(path)) == 0
    assert kfjob.out.splitlines()[0].split() == ["train@1", "train"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "there are no two launches to compare"),
        ("train@2", "there are no two launches to compare"),
        ("train@9 train", "job `train` has no launch 9: it has 3"),
        ("train@none train", "job `train` has no launch `none`"),
    ],
)
def test_what_cannot_be_compared_is_an_error(launches: FakeBackend, kfjob: Shell, words: str, message: str):
    assert kfjob("compare", *words.split()) in (2, 3)
    assert message in kfjob.err
    assert "hint: " in kfjob.err


def test_python_has_the_same_names(launches: FakeBackend):
    first, second, live = package.history("train", backend="kubernetes")
    assert [first.name, second.name, live.name] == ["train@1", "train@2", "train@3"]
    assert (first.phase, first.progress.step, first.progress.loss, live.folder) == ("Succeeded", 40, 4.0, None)
    assert repr(first.phase) == "'Succeeded'"
    comparison = package.compare(["train@1", "train@3"], backend="kubernetes")
    assert [launch.number for launch in comparison.launches] == [1, 3]


def test_a_notebook_shows_the_curve_of_a_run(launches: FakeBackend):
    html = package.attach("train", backend="kubernetes")._repr_html_()
    assert html.count("<path") == 2
    assert "Running" in html


def print_epochs(first: int, last: int, layout: str = "epoch {epoch} step {step} loss {loss}") -> list[str]:
    """Return the lines of a program that counts 100 steps in each epoch; its loss is `9 - steps of the run / 100`."""
    return [
        layout.format(epoch=epoch, step=step, run_step=100 * (epoch - 1) + step, before=epoch - 1, loss=10 - epoch - step / 100)
        for epoch in range(first, last + 1)
        for step in range(10, 101, 10)
    ]


@pytest.mark.parametrize(
    "layout",
    [
        "epoch {epoch} step {step} loss {loss}",
        "epoch {before} step {step} loss {loss}",
        "Epoch [{epoch}/5], Step [{step}/100], Loss: {loss}",
        "epoch {epoch} step {run_step} loss {loss}",
    ],
)
@pytest.mark.parametrize("ends", [(1, 2, 3, 3), (1, 1, 2, 2), (1, 2, 2, 3)])
def test_steps_of_epochs_are_compared_at_the_same_epoch_and_step(
    fake, kfjob: Shell, layout: str, ends: tuple[int, int, int, int]
):
    archive("fit", "a", print_epochs(*ends[:2], layout))
    archive("fit", "b", print_epochs(*ends[2:], layout))
    assert kfjob("compare", "fit", "-o", "json") == 0
    rows = json.loads(kfjob.out)["steps"]
    assert {row["step"] for row in rows if row["losses"][1] is not None} >= {100 * ends[3]}
    for row in rows:
        for loss in filter(None, row["losses"]):
            assert loss == pytest.approx(9 - row["step"] / 100, abs=0.26), row


def test_a_step_that_begins_again_in_each_epoch_has_its_epoch(fake, kfjob: Shell):
    archive("fit", "a", print_epochs(1, 2))
    assert kfjob("history", "fit") == 0
    assert "epoch 2, 100" in kfjob.out


def test_long_values_of_specs_are_a_list_in_80_columns(fake, kfjob: Shell):
    for launch in "abc":
        archive("fit", launch, print_epochs(1, 1), command=["torchrun", "train.py", "--run", launch * 20])
    assert kfjob("compare", "fit") == 0
    assert f'  fit@2   ["torchrun", "train.py", "--run", "{"b" * 20}"]' in kfjob.out.splitlines()
    assert max(map(len, kfjob.out.splitlines())) <= 80
