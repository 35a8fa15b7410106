"""`kfjob exec`: which pod the command runs in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kfjob.backends.base import CommandStreams, JobRef
from kfjob.joblog.events import JobPhase, PodChanged, PodPhase
from tests.fakes.backend import FakeBackend
from tests.unit.api import script


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pod and the words of each command."""
    calls: list[str] = []

    def execute(_backend: FakeBackend, _ref: JobRef, pod: PodChanged, command: Sequence[str], _streams: CommandStreams) -> int:
        calls.append(" ".join((pod.pod, *command)))
        return 7

    monkeypatch.setattr(FakeBackend, "execute", execute)
    return calls


@pytest.fixture
def shell(fake: FakeBackend, capfd: pytest.CaptureFixture[str]):
    from kfjob.cli.commands import run

    def call(*argv: str) -> tuple[int, str]:
        code = run(["exec", *argv])
        return code, capfd.readouterr().err

    return call


def test_default_is_the_pod_that_prints_the_progress(fake: FakeBackend, shell, ran: list[str]):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert shell("train", "--", "nvidia-smi", "-l") == (7, "")
    assert ran == ["train-worker-1 nvidia-smi -l"]


@pytest.mark.parametrize("options", [("--pod", "train-worker-1"), ("--pod", "pod/train-worker-1"), ("--rank", "0")])
def test_pod_is_chosen_by_name_or_rank(fake: FakeBackend, shell, ran: list[str], options: tuple[str, ...]):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert shell("train", *options, "--", "hostname")[0] == 7
    assert ran == ["train-worker-1 hostname"]


def test_only_pod_needs_no_evidence(fake: FakeBackend, shell, ran: list[str]):
    fake.play("train", script.job(JobPhase.RUNNING), script.pod(0, PodPhase.RUNNING))
    assert shell("train", "--", "hostname")[0] == 7
    assert ran == ["train-worker-0 hostname"]


def test_pod_that_does_not_run_is_an_error(fake: FakeBackend, shell, ran: list[str]):
    fake.play("train", script.job(JobPhase.RUNNING), script.pod(0, PodPhase.PENDING))
    code, err = shell("train", "--", "hostname")
    assert (code, ran) == (1, [])
    assert "pod `train-worker-0` does not run" in err


@pytest.mark.parametrize(
    ("argv", "code"),
    [(("train",), 2), (("train", "--rank", "0", "--pod", "x", "--", "ls"), 2), (("train", "--pod", "x", "--", "ls"), 3),
     (("other", "--", "ls"), 3), (("train", "--rank", "99", "--", "ls"), 3)],
)  # fmt: skip
def test_wrong_arguments_are_errors(fake: FakeBackend, shell, ran: list[str], argv: tuple[str, ...], code: int):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert shell(*argv)[0] == code
    assert ran == []
