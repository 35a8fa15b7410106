"""Recognise secrets by their names and shapes, and replace them in text and in JSON.

SECURITY.md states what is redacted, in which outputs, and what is not promised. A redactor also replaces the credentials that
this process has loaded (`redaction.known`), in any output. Lint uses the same tables. `redaction.structs` redacts structs;
it is separate because `kfjob doctor` runs in images without msgspec.
"""

from kfjob.redaction.known import remember_credential
from kfjob.redaction.names import is_secret_name
from kfjob.redaction.redactor import REDACTED, LineRedactor, Redactor, collect_secrets, cut_text, find_secret

__all__ = [
    "REDACTED",
    "LineRedactor",
    "Redactor",
    "collect_secrets",
    "cut_text",
    "find_secret",
    "is_secret_name",
    "remember_credential",
]
