"""Log lines as plain text, without colours and without the prefixes that log tools add."""

from __future__ import annotations

import re

from kfjob.observe.timestamps import parse_rfc3339

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (?:(?:stdout|stderr) [FP] )?")
_SOURCE = re.compile(r"\[pod/[^\]\s]+\] ")  # kubectl logs --prefix


def clean_line(text: str) -> tuple[str, int | None]:
    """Return the line without colours, line end and prefixes of kubectl or containerd, and the time in such a prefix."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.rstrip("\r\n")
    time = None
    while match := _SOURCE.match(text) or _TIMESTAMP.match(text):
        if match.re is _TIMESTAMP:
            time = parse_rfc3339(match[1])
        text = text[match.end() :]
    return text, time
