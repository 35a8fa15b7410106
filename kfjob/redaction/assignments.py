"""Find the values of secrets in text: a name, a separator, and the value with its quotes or brackets. Pure.

Names and values may have any of the forms that shells, JSON, YAML, Python, HTTP headers, URLs and connection strings use. The
time is linear: a value that is a secret, and a list in brackets, is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.redaction.connectors import SecretName as _Name
from kfjob.redaction.connectors import find_connected
from kfjob.redaction.extents import NAME, OPENER, WEAK_VALUE, Extents
from kfjob.redaction.lists import OPEN, Leaves, ListEnds
from kfjob.redaction.names import Strength, is_ambiguous, is_credentials, is_secret_name, rate_name, rate_phrase
from kfjob.redaction.values import (
    FIELD_NAMES,
    begins_message,
    cut_value,
    ends_reference,
    is_field_name,
    is_harmless,
    is_prose,
    is_secret_value,
)

Span = tuple[int, int]
_INDEX = r"(?P<index>\[(?:\d{1,6}|\\{0,8}[\"'][\w.-]{1,40}+\\{0,8}[\"'])\])?"
_NOTE = r"(?P<note>[ \t]{0,4}(?:\([\w ,.|-]{1,40}+\)|\[[A-Za-z ,.|-]{1,40}+\]))?"
"""The type of a field, or where its value comes from: `password (str): x`."""
_PLAIN_TYPE = re.compile(r"\b(?:bool|boolean|int|integer|float|number)\b")
_SEPARATOR = re.compile(
    rf"{_INDEX}(?P<quote>\\{{0,8}}[\"'`])?[\])]?{_NOTE}[ \t]*+(?:[=:]{{1,3}}>?|[-=~]>|[→⇒]|[?+|]=)(?P<space>[ \t]*+\n?[ \t]*+)"
)
_LEADER = re.compile(r"[ \t]++\.{3,}+[ \t]++(?=[^\s.])")
"""Dots between a name and its value, as in the arguments that Megatron prints."""
_DEFAULT = re.compile(
    r"(?P<help>[^\n()\[\]]{0,200}+)[(\[](?:default|current)(?:s to|:|=| is)?[ \t]{0,4}"
    r"(?P<quote>[\"'`]?)(?P<value>[^\s()\[\]\"'`]{1,400}+)"
    r"(?P=quote)[)\]]"
)
"""The default of an option in its help."""
_VALUE_FIELD = re.compile(
    r"\\{0,8}[\"'`]?[ \t]*+(?:[,;][ \t]*+)?(?:\n[ \t]*+)?\\{0,8}[\"'`]?value\\{0,8}[\"'`]?[ \t]*+[:=][ \t]*+", re.IGNORECASE
)
"""Between the name of a variable and its value in a list of names and values, as in the manifest of a pod."""
_ARROW = re.compile(r">[ \t]*+")
_GAP = re.compile(r"[ \t]++(?!-)|\\{0,8}[\"'],[ \t]*+(?=\\{0,8}[\"'])")
"""Between an option and its value, also in a list such as `['--token', 'x']`."""
_WORD_BEFORE = re.compile(r"([A-Za-z]{1,20})[ \t]\Z")
_OBJECT = re.compile(
    r"(?i)\b(?:volume|mounting|config ?map|pod|container|job|service ?account)s?[ \t](?P<quote>\\{0,8}[\"'`])\Z"
)
"""Before the name of an object of Kubernetes in quotes: `volume "hf-token" : secret "hf-token" not found`."""
_NO_PHRASE = "existent secret "
"""Before the name of a key in an event about a volume: `references non-existent secret key: x`."""
_CHAIN = re.compile(r"[ \t]*+=[ \t]*+(?!=)")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*+\n(?P<lines>(?>(?:[ \t]++[^\n]*+\n?|\n)+))")
_REFERENCE = re.compile(
    r"\{\s{0,4}[\"']?(?:secret|name|configmap)[\"']?\s?:[^{}\n]{1,120}[,\s][\"']?key[\"']?\s?:[^{}\n]{1,120}\}", re.IGNORECASE
)
"""The name and the key of a Kubernetes secret."""


def find_assigned(text: str) -> Iterator[Span]:
    """Yield the range of every secret that a name before it shows."""
    reader = _Reader(text)
    position = 0
    while match := NAME.search(text, position):
        position = match.end()
        strength = rate_name(match[0])
        if strength is Strength.ORDINARY or _is_object(text, match):
            continue
        if match[0].startswith("-") and is_secret_name(match[0]):
            strength = max(strength, Strength.STRONG)  # an option
        elif strength is Strength.WEAK and (before := _WORD_BEFORE.search(text, max(0, match.start() - 21), match.start())):
            if rate_name(f"{before[1]}_{match[0]}") is Strength.ORDINARY or text.endswith(_NO_PHRASE, 0, match.start()):
                continue
            strength = max(strength, rate_phrase(before[1], match[0]))
        name = _Name(match[0], strength, match.start(), match.end())
        spans, end = reader.read(name)
        spans = spans or list(find_connected(text, name))
        yield from spans
        position = max([position, end, *(span[1] for span in spans)])


def _is_object(text: str, name: re.Match[str]) -> bool:
    """Return whether a name is the whole name in quotes of an object of Kubernetes."""
    before = _OBJECT.search(text, max(0, name.start() - 30), name.start())
    return before is not None and text.startswith(before["quote"], name.end())


class _Reader:
    """Reads the values in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._extents = Extents(text)
        self._list_ends = ListEnds(text, self._extents)

    def read(self, name: _Name) -> tuple[list[Span], int]:
        """Return the secrets after a name, and the position up to which the text has been read."""
        text = self._text
        arrow = _ARROW.match(text, name.end) if name.text.endswith("-") else None
        if gap := arrow or _VALUE_FIELD.match(text, name.end):
            return self._read_value(name, gap.end(), has_space=True)
        if separator := _SEPARATOR.match(text, name.end):
            return self._read_separated(name, separator)
        if leader := _LEADER.match(text, name.end):
            return ([], name.end) if is_prose(text, leader.end()) else self._read_value(name, leader.end(), has_space=True)
        gap = _GAP.match(text, name.end) if name.text.startswith("-") else None
        spans, end = self._read_option(name, gap.end()) if gap else ([], name.end)
        if (default := _DEFAULT.match(text, end)) and (span := _read_default(name, default)):
            return [*spans, span], span[1]
        return spans, end

    def _read_separated(self, name: _Name, separator: re.Match[str]) -> tuple[list[Span], int]:
        """Read the value after a separator such as `=`, unless the text goes on with a message."""
        text, has_space, is_value = self._text, bool(separator["space"]), True
        if "\n" in separator["space"] and text[separator.start("space")] != "\n":
            is_value = False  # trailing spaces: the next line is another topic
        elif separator["index"] and name.strength is Strength.WEAK:
            is_value = False  # an item of a list of tokens or keys
        elif separator["note"]:
            is_type = ">" not in separator[0] and not _PLAIN_TYPE.search(separator["note"])
            is_value = is_type and not is_prose(text, separator.end())
        elif separator[0] == ": " and name.strength is not Strength.LINE and not name.text.startswith("-"):
            is_value = not begins_message(name.text, text, separator.end())
        return self._read_value(name, separator.end(), has_space=has_space) if is_value else ([], name.end)

    def _read_option(self, name: _Name, start: int) -> tuple[list[Span], int]:
        """Read the word of a shell, or of a list, after an option."""
        span = self._extents.read_word(start) if name.strength >= Strength.STRONG or is_ambiguous(name.text) else None
        value = cut_value(self._text, span) if span else ""
        is_word = value in FIELD_NAMES and rate_name(name.text) is Strength.WEAK  # `--key value` of a usage
        if (
            not span or is_word or is_harmless(value) or (value.isupper() and is_secret_name(value))
        ):  # `--token TOKEN` of a usage
            return [], name.end
        return ([span], span[1]) if is_secret_value(name.text, name.strength, value) else ([], name.end)

    def _read_value(self, name: _Name, start: int, *, has_space: bool) -> tuple[list[Span], int]:
        """Read the value of a name, and the further values of a chain such as `password: str = "x"`."""
        spans, end = self._read_link(name, start, has_space=has_space)
        while spans and (chain := _CHAIN.match(self._text, end)):
            more, next_end = self._read_link(name, chain.end(), has_space=True)
            if not more or next_end <= end:
                break
            spans += more
            end = next_end
        return spans, end

    def _read_link(self, name: _Name, start: int, *, has_space: bool) -> tuple[list[Span], int]:
        text = self._text
        if block := _BLOCK.match(text, start):
            return [block.span("lines")], block.end()
        if opener := OPENER.match(text, start):
            span = self._extents.read_quoted(opener)
            return self._judge(name, span, opener.end())
        if ends_reference(text, start) or _REFERENCE.match(text, start):
            return [], start
        if text.startswith(tuple(OPEN), start) and (container := self._read_container(name, start)):
            return container
        span = self._extents.read_bare(name, start, has_space=has_space)
        return self._judge(name, span, name.end)

    def _judge(self, name: _Name, span: Span | None, end: int) -> tuple[list[Span], int]:
        """Return the value if it is a secret; any other value is searched for names."""
        value = cut_value(self._text, span) if span else ""
        if span is None or not is_secret_value(name.text, name.strength, value):
            return [], end
        is_phrase = name.strength is Strength.NAMED and rate_name(name.text) is Strength.WEAK
        if is_phrase and is_field_name(value):
            return [], end
        if name.strength is Strength.WEAK and span[1] - span[0] >= WEAK_VALUE:
            span = span[0], self._extents.find_word_end(span[1])
        return [span], span[1]

    def _read_container(self, name: _Name, start: int) -> tuple[list[Span], int] | None:
        """Return the secrets in a list or an object; None if a password merely begins with a bracket."""
        end = self._list_ends.find(start)
        is_closed = end is not None
        if end is None:
            end = self._extents.find_line_end(start)
        following = self._text[end : end + 1] if is_closed else ""
        inner = self._text[start + 1 : start + 2]
        if (following.isalnum() or following in tuple("_$!#@%^*+/")) or not (is_closed or inner.isspace() or inner in "\"'[({"):
            return None
        if is_credentials(name.text):
            name = name._replace(strength=max(name.strength, Strength.NAMED))
        return list(Leaves(self._text, self._extents, name).read(start, end)), end


def _read_default(name: _Name, match: re.Match[str]) -> Span | None:
    """Return the default of an option or a field if it is a secret."""
    has_help = bool(match["help"].strip()) and not (name.text.startswith("-") or name.text.isupper())
    is_secret = is_secret_value(name.text, name.strength, match["value"]) and not is_field_name(match["value"])
    return match.span("value") if is_secret and not has_help else None
