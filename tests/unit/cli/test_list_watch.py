"""`kfjob list --watch`: a new list for each change, also after an outage of the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from kfjob.api import overview
from kfjob.base.errors import Forbidden, KfjobError, Unreachable
from kfjob.cli import jobs_list
from kfjob.joblog.events import JobSnapshot
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell, fake, kfjob

__all__ = ["fake", "kfjob"]


@pytest.fixture
def between_lists(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that takes what happens after each list; Ctrl-C comes after the last."""

    def plan(*actions: Callable[[], object]) -> None:
        steps: Iterator[Callable[[], object]] = iter(actions)

        def sleep(_seconds: float) -> None:
            action = next(steps, None)
            if action is None:
                raise KeyboardInterrupt
            action()

        monkeypatch.setattr("kfjob.api.overview.time.sleep", sleep)

    return plan


def nothing() -> None:
    """Change nothing between two lists."""


def test_a_table_is_printed_for_each_change_only(fake: FakeBackend, kfjob: Shell, between_lists: Callable[..., None]):
    fake.play("train", *script.TRAINING)
    between_lists(nothing, lambda: fake.play("other", *script.STARTING), nothing)
    assert kfjob("list", "--watch") == 130
    tables = kfjob.out.split("\n\n")
    assert [len(table.strip().splitlines()) for table in tables] == [2, 3]


def test_json_has_one_document_on_each_line(fake: FakeBackend, kfjob: Shell, between_lists: Callable[..., None]):
    between_lists(nothing, lambda: fake.play("train", *script.TRAINING))
    assert kfjob("list", "-w", "-o", "json") == 130
    assert [[job["name"] for job in json.loads(line)] for line in kfjob.out.splitlines()] == [[], ["train"]]


def test_an_outage_is_one_notice_and_the_list_goes_on(
    fake: FakeBackend, kfjob: Shell, between_lists: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    fake.play("train", *script.STARTING)
    outage = Outage(monkeypatch, Unreachable("`test` does not answer"))
    between_lists(outage.begin, nothing, nothing, outage.end, lambda: fake.play("train2", *script.STARTING))
    assert kfjob("list", "--watch") == 130
    assert kfjob.err.count("`test` does not answer") == 1
    assert "train2" in kfjob.out


@pytest.mark.parametrize(("err", "code"), [(Unreachable("no answer"), 5), (Forbidden("not allowed"), 4)])
def test_a_first_list_that_fails_ends_the_command(
    kfjob: Shell, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch, err: KfjobError, code: int
):
    Outage(monkeypatch, err).begin()
    assert kfjob("list", "--watch") == code


def test_a_right_that_is_lost_ends_the_command(
    fake: FakeBackend, kfjob: Shell, between_lists: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    between_lists(Outage(monkeypatch, Forbidden("not allowed")).begin)
    assert kfjob("list", "--watch") == 4


def test_a_log_that_is_not_read_in_time_keeps_its_last_progress(
    fake: FakeBackend, kfjob: Shell, between_lists: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    fake.play("train", *script.TRAINING)

    def read_none(_target: object, jobs: list[JobSnapshot]) -> list[None]:
        return [None] * len(jobs)

    between_lists(lambda: monkeypatch.setattr(overview, "read_views", read_none))
    assert kfjob("list", "--watch") == 130
    assert len(kfjob.out.splitlines()) == 2


def test_a_terminal_is_redrawn(
    fake: FakeBackend, kfjob: Shell, between_lists: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    fake.play("train", *script.TRAINING)
    shown: list[str] = []
    monkeypatch.setattr(jobs_list, "find_width", lambda: 80)
    monkeypatch.setattr("kfjob.cli.live_display.show_live", shown.extend)
    between_lists(nothing)
    assert kfjob("list", "--watch") == 130
    assert len(shown) == 2
    assert shown[0].splitlines()[1].split()[:3] == [
        "train",
        "\x1b[32mRunning\x1b[0m" if "\x1b" in shown[0] else "Running",
        "20",
    ]


def test_names_alone_cannot_be_watched(fake: FakeBackend, kfjob: Shell):
    assert kfjob("list", "--watch", "-o", "name") == 2


class Outage:
    """Lets the lists of a backend fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, err: KfjobError) -> None:
        self._monkeypatch = monkeypatch
        self._err = err
        self._list = FakeBackend.list

    def begin(self) -> None:
        def fail(_backend: FakeBackend, *, namespace: str | None) -> list[JobSnapshot]:
            raise self._err

        self._monkeypatch.setattr(FakeBackend, "list", fail)

    def end(self) -> None:
        self._monkeypatch.setattr(FakeBackend, "list", self._list)
