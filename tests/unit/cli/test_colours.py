"""Colours, where the output is a terminal."""

import os
import pty
import subprocess

import pytest

from kfjob.cli.output import colour_marks, colour_states
from tests.kfjob_command import KFJOB


def run_in_a_terminal(*argv: str, **environment: str) -> str:
    controller, terminal = pty.openpty()
    try:
        variables = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | environment
        subprocess.run([KFJOB, *argv], env=variables, stdin=terminal, stdout=terminal, stderr=terminal, check=False)
        return os.read(controller, 65536).decode()
    finally:
        os.close(terminal)
        os.close(controller)


def test_an_error_is_red_in_a_terminal():
    assert "\x1b[31m\x1b[1merror:\x1b[0m unknown command `nothing`" in run_in_a_terminal("nothing")


@pytest.mark.parametrize("argv", [("nothing",), ("status", "x", "--backend", "local")])
def test_no_color_turns_colours_off(argv):
    shown = run_in_a_terminal(*argv, NO_COLOR="1")
    assert "error: " in shown
    assert "\x1b" not in shown


def test_only_marks_at_the_begin_of_a_line_are_coloured():
    assert colour_marks("an error: x") == "an error: x"
    assert colour_marks("a\n  warning: x").startswith("a\n  \x1b[33m")


def test_states_are_coloured_and_names_are_not():
    assert colour_states("Error-job  Running") == "Error-job  Running"
    assert colour_states("job  Failed") == "job  \x1b[31mFailed\x1b[0m"
