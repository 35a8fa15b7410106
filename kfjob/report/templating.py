"""The Jinja2 environment of a report.

Everything that a job printed is hostile. Autoescape turns it into text, and `clean_text` removes control characters first.
"""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
"""Control characters, halves of surrogate pairs, and characters that change the direction of the text after them."""


@cache
def make_environment() -> Environment:
    """Return the environment, which escapes and cleans every value of a template."""
    result = Environment(
        loader=PackageLoader("kfjob.report"),
        autoescape=True,
        finalize=clean_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    result.filters["prose"] = format_prose
    return result


def clean_text(value: object) -> str:
    """Return the value as text without colours and control characters; markup stays as it is."""
    return value if isinstance(value, Markup) else _UNPRINTABLE.sub("\ufffd", _COLOURS.sub("", str(value)))


def format_prose(value: object) -> Markup:
    """Return the value as markup, with the text between backticks as code."""
    parts = [escape(clean_text(part)) for part in re.split(r"`([^`\n]+)`", str(value))]
    return Markup("").join(Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts))
