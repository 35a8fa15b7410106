"""Replace secrets in text and in JSON: those that names and shapes show, and known values wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kfjob.base.printable import clean_text, is_clean
from kfjob.redaction.known import KnownSecrets, get_credentials
from kfjob.redaction.names import is_harmless, is_password_name, is_secret_name
from kfjob.redaction.notations import find_noted, find_url_passwords
from kfjob.redaction.token_shapes import find_tokens

REDACTED = "[redacted]"
_CUT_MARGIN = 4096
"""Characters after the limit of a text to cut that tell whether a secret begins before the limit."""
_MAX_CUT_WORD = 80
"""Characters of a word that is left out instead of cut: it may be a secret that only the job's spec names."""
_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "
_KEY_BODY = r"(?:.{0,80}\s)?[A-Za-z0-9+/=]{0,80}\s*|(?:.{0,80}\s)?[A-Z][\w-]{2,30}:\s.{1,200}"
"""A line of a private key: letters, a header such as `DEK-Info: …`, or none; a log tool may add a prefix."""
_MAX_KEY_LINES = 200
"""Lines after `BEGIN … PRIVATE KEY` that can belong to the key."""

_ENVIRONMENTS = frozenset({"env", "environment", "build_args", "variables"})
_FIELD_NAME = r"[a-z]+(?:_[a-z0-9]+)*"
_WORD_WITH_NAME = r"-{0,2}(?P<name>[A-Za-z_][\w.-]*)="
_SECRET_DATA = ("data", "stringData")
_REFERENCES = frozenset(
    ["secret", "key", "secretName", "secretKeyRef", "pull_secrets", "imagePullSecrets", "hub_token", "wandb_key", "kms_key"]
)
"""Names of fields that refer to a Kubernetes secret, or hold the name of a key."""
_REFERENCE_FIELDS = frozenset(["secret", "configmap", "name", "optional", "key"])
_REFERENCE_KINDS = frozenset(["secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "valueFrom"])

Span = tuple[int, int]


def find_secret(text: str, name: str = "") -> str | None:
    """Return the kind of secret that a text looks like, by its shape or by the `name` of its variable; None for other texts."""
    for shape, _ in find_tokens(text):
        return shape.kind
    if any(find_url_passwords(text)):
        return "a password in a URL"
    return "a secret (by the variable's name)" if is_secret_name(name) and not is_harmless(text) else None


class Redactor:
    """Replaces secrets: those that names and shapes show, and known values wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known` are secrets of the job, as `collect_secrets` returns them."""
        self._known = KnownSecrets(known)

    def text(self, text: str) -> str:
        """Return a text, for example a log line or a message, without secrets.

        It is read as a terminal shows it: a line that holds a secret loses its colours and control characters, too.
        """
        if is_clean(text):
            return self._replace(text)
        lines = self.lines()
        return "\n".join(lines.line(line) for line in text.split("\n"))

    def lines(self) -> LineRedactor:
        """Return a redactor for the lines of one log, which may hold a key of several lines."""
        return LineRedactor(self)

    def _replace(self, text: str) -> str:
        pieces, position, end = [], 0, -1
        for start, stop in sorted(span for span in self._find(text) if span[0] < span[1]):
            if start > end:  # spans that overlap or touch become one mark
                pieces += [text[position:start], self._hide(text[start:stop])]
            position = end = max(end, stop)
        return "".join([*pieces, text[position:]]) if pieces else text

    def _find(self, text: str) -> Iterator[Span]:
        """Yield the ranges of the secrets in a text; they may overlap."""
        yield from self._known.find(text)
        yield from get_credentials().find(text)
        yield from (match.span() for _, match in find_tokens(text))
        yield from find_noted(text)

    def value(self, value: Any, name: str = "", *, is_environment: bool = False) -> Any:
        """Return a JSON value without secrets. `name` is the name of its field, or of its variable if `is_environment`."""
        if is_secret_name(name) and (is_environment or name not in _REFERENCES):
            return self._hide_leaves(value, keeps_numbers=not (is_environment or is_password_name(name)))
        if isinstance(value, dict):
            return self._redact_object(value, is_environment=name in _ENVIRONMENTS and not is_environment)
        if isinstance(value, list | tuple):
            return self._redact_list(value)
        return self.text(value) if isinstance(value, str) else value

    def _hide_leaves(self, value: Any, *, keeps_numbers: bool) -> Any:
        """Return the value under the name of a secret without its texts; references to Kubernetes secrets stay."""
        if isinstance(value, dict):
            if _is_reference(value):
                return self._redact_object(value, is_environment=False)
            return {key: self._hide_leaves(item, keeps_numbers=keeps_numbers) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._hide_leaves(item, keeps_numbers=keeps_numbers) for item in value]
        is_text = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and not keeps_numbers)
        return self._hide(str(value)) if is_text and not is_harmless(str(value)) else value

    def _redact_object(self, value: dict[str, Any], *, is_environment: bool) -> dict[str, Any]:
        if value.get("kind") == "Secret":
            hidden = {
                key: {name: self._hide(str(text)) for name, text in (value.get(key) or {}).items()} for key in _SECRET_DATA
            }
            return {key: hidden.get(key, item) for key, item in value.items()}
        variable = value.get("name")
        return {
            self._redact_name(str(key)): self.value(item, variable, is_environment=True)
            if key == "value" and isinstance(variable, str)
            else self.value(item, str(key), is_environment=is_environment)
            for key, item in value.items()
        }

    def _redact_name(self, name: str) -> str:
        """Return the name of a field without secrets. A known secret can be a plain word, which names a field, too."""
        return name if re.fullmatch(_FIELD_NAME, name) else self.text(name)

    def _redact_list(self, values: Sequence[Any]) -> list[Any]:
        lines = self.lines()
        return [
            self._hide(item)
            if _is_argument(values, index)
            else self._redact_word(item, lines)
            if isinstance(item, str)
            else self.value(item)
            for index, item in enumerate(values)
        ]

    def _redact_word(self, word: str, lines: LineRedactor) -> str:
        """Return an item of a list, a word of a command or a line of a log; all of the word after `PASSWORD=` is a secret."""
        if (
            (named := re.match(_WORD_WITH_NAME, word))
            and is_secret_name(named["name"])
            and not is_harmless(word[named.end() :])
        ):
            return named[0] + self._hide(word[named.end() :])
        return lines.line(word)

    def _hide(self, secret: str) -> str:
        """Return the text that replaces a secret; an empty value stays empty."""
        return REDACTED if secret else ""


def cut_text(text: str, limit: int) -> str:
    """Return a text, or if it is longer than `limit` its beginning: redacted first, because a part of a secret has no shape.

    What follows `_CUT_MARGIN` characters after the limit is not read.
    """
    if len(text) <= limit:
        return text
    is_read_in_part = len(text) > limit + _CUT_MARGIN
    text = Redactor().text(text[: limit + _CUT_MARGIN])
    if len(text) <= limit and not is_read_in_part:
        return text
    end = min(limit, len(text))
    space = -1 if text[end : end + 1].isspace() else text.rfind(" ", max(0, end - _MAX_CUT_WORD), end)
    return text[: space if space > 0 else end]


class LineRedactor:
    """Replaces secrets in the lines of one log, also in the later lines of a private key."""

    def __init__(self, redactor: Redactor) -> None:
        """Begin where the log begins."""
        self._redactor = redactor
        self._key_lines = 0  # lines that may still follow in a key

    def line(self, text: str) -> str:
        """Return the next line without secrets."""
        plain = clean_text(text)
        begin, end = plain.rfind(_KEY_BEGIN), plain.rfind(_KEY_END)
        if self._key_lines:
            self._key_lines = 0 if end >= 0 else self._key_lines - 1
            if end >= 0 or re.fullmatch(_KEY_BODY, plain):
                return REDACTED
        if begin > end and "PRIVATE KEY" in plain[begin:]:
            self._key_lines = _MAX_KEY_LINES
        redacted = self._redactor._replace(plain)
        return text if redacted == plain else redacted


class _Collector(Redactor):
    """A redactor that remembers what it replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: set[str] = set()

    def _hide(self, secret: str) -> str:
        self.secrets.add(secret)
        return super()._hide(secret)


def collect_secrets(value: Any) -> frozenset[str]:
    """Return the secrets that names and shapes show in a spec or a manifest."""
    collector = _Collector()
    collector.value(value)
    return frozenset(collector.secrets)


def _is_reference(value: dict[Any, Any]) -> bool:
    """Return whether an object names a Kubernetes secret and its key, instead of holding a value."""
    names_key = _REFERENCE_FIELDS.issuperset(value) and "key" in value and len(value) > 1
    return names_key or _REFERENCE_KINDS.issuperset(value)


def _is_argument(values: Sequence[Any], index: int) -> bool:
    """Return whether an item is the secret of the option before it in an argv."""
    option, item = values[index - 1] if index else None, values[index]
    if not (isinstance(option, str) and isinstance(item, str) and option.startswith("-")):
        return False
    return (
        "=" not in option
        and " " not in option
        and is_secret_name(option)
        and not item.startswith("-")
        and not is_harmless(item)
    )
