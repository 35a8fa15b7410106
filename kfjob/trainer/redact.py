"""What the trainer prints, logs and stores for people holds no passwords, and controls no terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from kfjob.base.printable import clean_text
from kfjob.redaction import Redactor

_REDACTOR = Redactor()


def redact(text: str) -> str:
    """Return `text` without secrets, terminal sequences and control characters."""
    return _REDACTOR.text(clean_text(text))


def redact_urls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without the secrets in those that hold a URL."""
    return {name: redact(value) if isinstance(value, str) and "://" in value else value for name, value in fields.items()}


def write_note(text: str) -> None:
    """Write to stderr what takes a while, before it begins."""
    sys.stderr.write(f"{redact(text)}\n")
    sys.stderr.flush()


def write_error(message: object) -> None:
    """Write a message to stderr without the secrets in it."""
    sys.stderr.write(f"{redact(str(message)).rstrip()}\n")
