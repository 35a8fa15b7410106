"""The Jinja2 environment of a report.

Everything that a job printed is hostile. `finalize` redacts a whole value and removes its control characters, and autoescape
turns it into text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kfjob.base.printable import clean_text

_CODE = Markup("<code>{}</code>")
_MARK = "\ufffd"  # in place of a control character


def make_environment(redact: Callable[[str], str] = str) -> Environment:
    """Return the environment, which escapes, cleans and redacts every value of a template."""

    def finalize(value: object) -> str:
        """Return the value as text without secrets, colours and control characters; markup stays as it is."""
        return value if isinstance(value, Markup) else clean_text(redact(str(value)), mark=_MARK)

    def format_prose(value: object) -> Markup:
        """Return the value as markup, with the text between backticks as code."""
        parts = [escape(part) for part in re.split(r"`([^`\n]+)`", finalize(value))]
        return Markup("").join(_CODE.format(part) if index % 2 else part for index, part in enumerate(parts))

    result = Environment(
        loader=PackageLoader("kfjob.report"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    result.filters["prose"] = format_prose
    return result
