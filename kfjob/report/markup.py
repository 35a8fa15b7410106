"""Pieces of HTML. What came from a job is hostile: it goes through `text` or an attribute; nothing but `element` makes tags."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
"""Control characters, halves of pairs, and those that turn the direction of what follows."""

Html = str
"""Text that is markup already."""


def text(value: object) -> Html:
    """Anything as text of a page."""
    return html.escape(_UNPRINTABLE.sub("\ufffd", _COLOURS.sub("", str(value))), quote=True)


def prose(value: object) -> Html:
    """Anything as text, with what stands between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", str(value))
    return "".join(element("code", text(part)) if index % 2 else text(part) for index, part in enumerate(parts))


def element(tag: str, *content: Html, **attributes: object) -> Html:
    """An element; `class_` is `class`, an underscore in other names a hyphen. Attributes are escaped, content is not."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    inside = "".join(f' {name}="{text(value)}"' for name, value in named.items())
    return f"<{tag}{inside}>{''.join(content)}</{tag}>"


def table(header: Iterable[str], rows: Iterable[Iterable[Html]], *, caption: str, **attributes: object) -> Html:
    """A table in a box that scrolls by itself; cells are markup."""
    head = element("tr", *(element("th", text(one), scope="col") for one in header))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    name = element("caption", text(caption), class_="unseen")
    made = element("table", name, element("thead", head), element("tbody", *body), **attributes)
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)
