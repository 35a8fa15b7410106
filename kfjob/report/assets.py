"""The style, the script and the Content-Security-Policy of a report. A report loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def read_style() -> str:
    """Return the style sheet."""
    return _read("report.css")


@cache
def read_script() -> str:
    """Return the script that moves the cursor over the curves."""
    return _read("report.js")


@cache
def make_policy() -> str:
    """Return a Content-Security-Policy that allows this style, this script and nothing else."""
    directives = {
        "default-src": "'none'",
        "style-src": _digest(read_style()),
        "script-src": _digest(read_script()),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {source}" for name, source in directives.items())


def _digest(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files("kfjob.report").joinpath(name).read_text(encoding="utf-8")
