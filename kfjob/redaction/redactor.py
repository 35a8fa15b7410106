"""Replace secrets in text and in JSON: those that names and shapes show, and known values wherever they stand.

A `Redactor` reads a text in all its forms (`redaction.forms`), so it does not matter whether a caller removes terminal
sequences and invisible characters before or after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ahocorasick_rs import AhoCorasick

from kfjob.redaction import languages, logins, names
from kfjob.redaction.assignments import find_assigned
from kfjob.redaction.connectors import is_secret_pair
from kfjob.redaction.forms import Form, fold_text, list_forms
from kfjob.redaction.known import KnownSecrets, get_credentials
from kfjob.redaction.markup import find_markup
from kfjob.redaction.names import Strength, is_ambiguous, is_secret_name, rate_name
from kfjob.redaction.token_shapes import AWS_KEY, TOKEN_SHAPES, find_shape
from kfjob.redaction.values import is_harmless, is_secret_setting, looks_random

REDACTED = "[redacted]"
_CUT = 300
"""Characters of a text that may have been cut: a quote of a log line, which may end within a secret."""
_CUT_MARGIN = 4096
"""Characters after the limit of a text to cut that tell whether a secret begins before the limit."""
_MAX_CUT_WORD = 80
"""Characters of a word that is left out instead of cut: it may be a secret that only the job's spec names."""

_AWS_SECRET = re.compile(
    r"(?<![A-Za-z0-9/+=_-])(?=[A-Za-z0-9/+]{0,39}[0-9+/])(?=[A-Za-z0-9/+]{0,39}[a-z])(?=[A-Za-z0-9/+]{0,39}[A-Z])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])"
)
"""The secret key stands near the id of a key."""
_KEY_LINE = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/]{64}(?:[A-Za-z0-9+/]{12})?(?![\w+/=-])")
"""A line of a PEM file."""
_KEY_LINE_LENGTH = 64
_MAX_KEY_LINES = 200
"""Lines after `BEGIN … PRIVATE KEY` that can belong to the key."""
_KEY_BODY = re.compile(r"(?:.{0,80}\s)?[A-Za-z0-9+/]{1,80}={0,2}\s*+|\s*+|(?:.{0,80}\s)?[A-Z][\w-]{2,30}:\s.{1,200}")
"""A line of a private key: letters, a header such as `DEK-Info: …`, or none; a log tool may add a prefix."""
_CUT_TOKEN = re.compile(rf"\b(?:{'|'.join(shape.cut for shape in TOKEN_SHAPES)})(?=(?:\.{{3}}|…)?\s*\Z)")
"""The beginning of a token with which a text ends, also before the dots of a cut text."""
_SHAPE_MARKS = AhoCorasick([shape.mark for shape in TOKEN_SHAPES])
_MARKS = AhoCorasick([*names.MARKS, *logins.MARKS])

_ENVIRONMENTS = frozenset({"env", "environment", "build_args", "variables"})
_FIELD_NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)*")
_VARIABLE_FIELDS = ("name", "key")
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
    if shape := find_shape(text):
        return shape.kind
    if any(logins.find_url_passwords(text)):
        return "a password in a URL"
    return "a secret (by the variable's name)" if is_secret_setting(name, text) else None


class Redactor:
    """Replaces secrets: those that names and shapes show, and known values wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known` are secrets of the job, as `collect_secrets` returns them."""
        self._known = KnownSecrets(known)

    def text(self, text: str) -> str:
        """Return a text, for example a log line or a message, without the secrets that any of its forms shows."""
        pieces, position, end = [], 0, -1
        for start, stop in self.find_spans(text):
            if start > end:  # spans that overlap or touch become one mark
                pieces += [text[position:start], REDACTED]
            position = end = max(end, stop)
        return "".join([*pieces, text[position:]]) if pieces else text

    def find_spans(self, text: str) -> list[Span]:
        """Return the ranges of the secrets that any form of a text shows, in order; they may overlap."""
        spans = {form.locate(*span) for form in list_forms(text) for span in self._find(form)}
        return sorted((start, end) for start, end in spans if start < end)

    def _find(self, form: Form) -> Iterator[Span]:
        """Yield the ranges of the secrets in one form of a text."""
        text = form.text
        yield from self._known.find(text)
        yield from get_credentials().find(text)
        yield from _find_shapes(text)
        yield from _find_at_boundaries(form)
        is_cut = len(text) >= _CUT
        if "://" in text or "@tcp(" in text or "@unix(" in text:
            yield from logins.find_url_logins(text, is_cut=is_cut)
        if "@" in text and ":" in text:
            yield from logins.find_host_logins(text)
        if text.count(":") > 3:  # noqa: PLR2004 - host:port:database:user:password
            yield from logins.find_pgpass(text)
        if is_cut:
            yield from self._find_cut(text)
        if _MARKS.find_matches_as_indexes(text.lower()):
            yield from logins.find_logins(text)
            yield from find_assigned(text)
            if "<" in text:
                yield from find_markup(text)

    def _find_cut(self, text: str) -> Iterator[Span]:
        """Yield the beginning of a secret with which a long text ends."""
        if match := _CUT_TOKEN.search(text, len(text) - _CUT):
            yield match.span()
        yield from self._known.find_cut(text)
        yield from get_credentials().find_cut(text)

    def lines(self) -> LineRedactor:
        """Return a redactor for the lines of one log, which may hold a key of several lines."""
        return LineRedactor(self)

    def value(self, value: Any, name: str = "", *, is_environment: bool = False) -> Any:
        """Return a JSON value without secrets. `name` is the name of its field, or of its variable if `is_environment`."""
        plain_name = fold_text(name)
        if is_secret_name(plain_name) and (is_environment or plain_name not in _REFERENCES):
            return self._hide_leaves(value, plain_name, is_environment=is_environment)
        if isinstance(value, dict):
            return self._redact_object(value, is_environment=plain_name in _ENVIRONMENTS and not is_environment)
        if isinstance(value, list | tuple):
            return self._redact_list(value)
        if isinstance(value, str) and is_ambiguous(plain_name) and is_secret_setting(plain_name, value):
            return self._hide(value)
        return self.text(value) if isinstance(value, str) else value

    def _hide_leaves(self, value: Any, name: str, *, is_environment: bool) -> Any:
        """Return the value under the name of a secret without its texts; references to Kubernetes secrets stay."""
        if isinstance(value, dict):
            if _is_reference(value):
                return self._redact_object(value, is_environment=False)
            hidden = [self._hide_leaves(item, name, is_environment=is_environment) for item in value.values()]
            return dict(zip(self._redact_names(value), hidden, strict=True))
        if isinstance(value, list | tuple):
            return [self._hide_leaves(item, name, is_environment=is_environment) for item in value]
        if isinstance(value, bool) or not isinstance(value, str | int) or not is_secret_setting(name, str(value)):
            return value
        hides = isinstance(value, str) or is_environment or rate_name(name) >= Strength.STRONG
        return self._hide(str(value)) if hides else value

    def _redact_object(self, value: dict[str, Any], *, is_environment: bool) -> dict[str, Any]:
        if value.get("kind") == "Secret":
            hidden = {
                key: {name: self._hide(str(text)) for name, text in (value.get(key) or {}).items()} for key in _SECRET_DATA
            }
            return {key: hidden.get(key, item) for key, item in value.items()}
        fields = {str(key).lower(): item for key, item in value.items()}
        variable = next((name for key in _VARIABLE_FIELDS if isinstance(name := fields.get(key), str)), None)
        redacted = [
            self.value(item, variable, is_environment=True)
            if variable is not None and str(key).lower() == "value"
            else self.value(item, str(key), is_environment=is_environment)
            for key, item in value.items()
        ]
        return dict(zip(self._redact_names(value), redacted, strict=True))

    def _redact_names(self, names: Iterable[Any]) -> list[str]:
        """Return the names of the fields of an object without secrets; equal ones are numbered, so that no field is lost.

        A known secret can be a plain word, which is the name of a field, too: such names stay.
        """
        redacted: dict[str, None] = {}
        for name in map(str, names):
            plain = text = name if _FIELD_NAME.fullmatch(name) and not find_shape(name) else self.text(name)
            number = 1
            while text in redacted:
                number += 1
                text = f"{plain} {number}"
            redacted[text] = None
        return list(redacted)

    def _redact_list(self, values: Sequence[Any]) -> list[Any]:
        if _is_pair(values):
            return [values[0], self._hide(values[1])]
        lines = self.lines()
        return [
            self._hide(item) if _is_argument(values, index) else lines.line(item) if isinstance(item, str) else self.value(item)
            for index, item in enumerate(values)
        ]

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
        if not self._key_lines and "PRIVATE" not in text and text.isascii():
            return self._redactor.text(text)
        plain = fold_text(text)
        begin, end = plain.rfind("-----BEGIN "), plain.rfind("-----END ")
        if self._key_lines:
            self._key_lines = 0 if end >= 0 else self._key_lines - 1
            if end >= 0 or _KEY_BODY.fullmatch(plain):
                return REDACTED
        if begin > end and "PRIVATE KEY" in plain[begin:]:
            self._key_lines = _MAX_KEY_LINES
        return self._redactor.text(text)


class _Collector(Redactor):
    """A redactor that remembers what it replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: set[str] = set()

    def find_spans(self, text: str) -> list[Span]:
        spans = super().find_spans(text)
        self.secrets.update(text[start:stop] for start, stop in spans)
        return spans

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


def _is_pair(values: Sequence[Any]) -> bool:
    """Return whether a list is the name of a secret and its value: `["password", "x"]`, and not a list of names."""
    if len(values) != 2 or not all(isinstance(value, str) for value in values):  # noqa: PLR2004 - a pair
        return False
    name = languages.translate(fold_text(values[0]))
    return not name.startswith("-") and is_secret_pair(name, values[1])


def _is_argument(values: Sequence[Any], index: int) -> bool:
    """Return whether an item is the secret of the option before it in an argv."""
    option, item = values[index - 1] if index else None, values[index]
    if not (isinstance(option, str) and isinstance(item, str) and option.startswith("-")):
        return False
    if "=" in option or " " in option or item.startswith("-") or is_harmless(item):
        return False
    if option in ("-u", "--user", "--proxy-user") and ":" in item:
        return logins.is_login(item)
    return is_secret_setting(fold_text(option), item) or (
        option in ("-p", "-a") and logins.has_login_command(" ".join(str(value) for value in values[: index - 1]))
    )


def _find_shapes(text: str) -> Iterator[Span]:
    if marks := _SHAPE_MARKS.find_matches_as_indexes(text, overlapping=True):
        shapes = [TOKEN_SHAPES[index] for index in sorted({mark[0] for mark in marks})]
        if any(shape.kind == AWS_KEY for shape in shapes):
            yield from (match.span() for match in _AWS_SECRET.finditer(text))
        for shape in shapes:
            yield from (match.span() for match in shape.pattern.finditer(text))
    if len(text) >= _KEY_LINE_LENGTH:
        yield from (match.span() for match in _KEY_LINE.finditer(text) if looks_random(match[0]))


def _find_at_boundaries(form: Form) -> Iterator[Span]:
    """Yield tokens that begin or end where something invisible stood, and not at the edge of a word."""
    patterns = [shape.loose for shape in TOKEN_SHAPES if shape.mark in form.text] if form.boundaries else []
    for pattern in patterns:
        end = 0
        for boundary in form.boundaries:
            if boundary >= end and (match := pattern.match(form.text, boundary)):
                yield match.span()
                end = match.end()
