"""How the command line ends when its user does not want to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

import click
import pytest

from kfjob.cli import exit_codes, main


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


def interrupted_in_a_condition() -> NoReturn:
    """As `Condition.wait` is when Ctrl-C comes after it has released its lock and before it has it again."""
    with (lock := threading.Lock()):
        lock.release()
        raise KeyboardInterrupt


def faulty() -> NoReturn:
    raise RuntimeError("another")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], NoReturn]], int]:
    """The command line with one command that does just this."""

    def with_command(does: Callable[[], NoReturn]) -> int:
        monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: click.Command("list", callback=does))
        return main.run(["list"])

    return with_command


@pytest.mark.parametrize("how", [interrupted, interrupted_in_a_condition])
def test_ctrl_c_is_an_exit_code_and_no_traceback(run, how, capsys):
    assert run(how) == exit_codes.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_of_ours_is_not_taken_for_ctrl_c(run):
    with pytest.raises(RuntimeError, match="another"):
        run(faulty)
