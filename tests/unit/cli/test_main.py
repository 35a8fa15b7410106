"""Exit codes of the command line after Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import NoReturn

import click
import pytest

from kfjob.cli import commands, signals


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


def interrupted_in_a_condition() -> NoReturn:
    """Raise as `Condition.wait` does when Ctrl-C comes while it does not hold its lock."""
    with (lock := threading.Lock()):
        lock.release()
        raise KeyboardInterrupt


def terminated_in_a_condition() -> NoReturn:
    with (lock := threading.Lock()):
        lock.release()
        signals._exit(signal.SIGTERM, None)
    raise AssertionError


def broken() -> NoReturn:
    raise RuntimeError("another")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], NoReturn]], int]:
    """Return a function that runs `kfjob list` with another callback."""

    def run_callback(callback: Callable[[], NoReturn]) -> int:
        monkeypatch.setattr(commands.LazyGroup, "get_command", lambda *_: click.Command("list", callback=callback))
        return commands.run(["list"])

    return run_callback


@pytest.mark.parametrize("callback", [interrupted, interrupted_in_a_condition])
def test_ctrl_c_exits_with_130_and_no_traceback(run, callback, capsys):
    assert run(callback) == signals.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_sigterm_in_a_library_exits_with_143_and_no_traceback(run, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signals, "_received", [])
    assert run(terminated_in_a_condition) == 143
    assert "Traceback" not in capsys.readouterr().err


def test_other_runtime_errors_are_raised(run):
    with pytest.raises(RuntimeError, match="another"):
        run(broken)
