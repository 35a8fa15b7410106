"""The style and the script of a report. Both are put into the file: a report asks the network for nothing."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def style() -> str:
    """The style sheet."""
    return _part("report.css")


@cache
def script() -> str:
    """What moves the cursor over the curves."""
    return _part("report.js")


def _part(name: str) -> str:
    return files("kfjob.report").joinpath(name).read_text(encoding="utf-8")
