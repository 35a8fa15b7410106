"""Colours for words whose meaning stands in the text too. `click.echo` removes them where the output is no terminal."""

from __future__ import annotations

import os
import re

import click

_MARKS = {"error": "red", "warning": "yellow", "hint": "cyan"}
_MARK = re.compile(r"^([ \t]*)(error|warning|hint):", re.MULTILINE)
_STATES = {
    "Succeeded": "green", "Failed": "red", "Error": "red", "CrashLoopBackOff": "red", "OOMKilled": "red",
    "ImagePullBackOff": "red", "ErrImagePull": "red", "Restarting": "yellow", "Stopped": "yellow",
}  # fmt: skip
_STATE = re.compile(rf"(?<![\w`/-])({'|'.join(_STATES)})(?![\w`/-])")


def wants_colour() -> bool | None:
    """Return False if the user wants no colours (https://no-color.org); None leaves it to the terminal."""
    return False if os.environ.get("NO_COLOR") else None


def colour_marks(text: str) -> str:
    """Return a message with the words `error:`, `warning:` and `hint:` in colour where they begin a line."""
    return _MARK.sub(
        lambda match: f"{match[1]}{click.style(f'{match[2]}:', fg=_MARKS[match[2]], bold=match[2] != 'hint')}", text
    )


def colour_states(text: str) -> str:
    """Return a table or a headline with the states of jobs and pods in colour."""
    return _STATE.sub(lambda match: click.style(match[1], fg=_STATES[match[1]]), text)
