"""Find the value of a secret behind other connectors than `=` and `:`: pairs, tables, settings and sentences. Pure.

`('password', 'x')`, `| password | x |`, `ENV DB_PASSWORD x` and `the password for bob is x` show a secret. Such texts have
other meanings more often than assignments, so each connector states what its value must look like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kfjob.redaction.names import Strength, is_chosen, is_kind, is_made, is_qualified, is_webhook, rate_name
from kfjob.redaction.values import (
    begins_message,
    is_field_name,
    is_harmless,
    is_secret_value,
    is_state,
    looks_chosen,
    looks_dense,
    looks_random,
)

Span = tuple[int, int]
_BEFORE = 80
"""Characters before a name that decide what stands there."""
_LITERAL = r"[bBrRuUfF]{0,2}(?P<quote>\\{0,8}[\"'])(?P<value>(?>(?:[^\\\"'\n]++|(?!(?P=quote))[^\n])*))(?P=quote)"
_PAIR = re.compile(
    rf"\\{{0,8}}[\"'][ \t]*+,\s{{0,80}}+(?:{_LITERAL}|(?P<number>\d{{4,}}+)(?![\w.]))(?P<after>\s{{0,80}}+[\])}},])?"
)
_PAIR_START = re.compile(r"(?P<call>[\w\]]?)(?P<bracket>[\[({])\s{0,80}[bBrRuUfF]{0,2}\\{0,8}[\"']\Z")
_BAR = "|\u2502\u2503\u2551\u00a6"
_CONNECTS = frozenset(["", *" \t\\\"'`*", *_BAR])
"""Characters that may follow a name."""
_CELL = re.compile(
    rf"[`*\"']{{0,3}}[ \t]*+[{_BAR}][ \t]*+"
    rf"(?P<value>[^\s{_BAR}]++(?>(?:[ \t][^\s{_BAR}]++)*))[ \t]*+(?P<after>[{_BAR}]|$)(?P<end>[ \t]*+$)?",
    re.MULTILINE,
)
_CELL_START = re.compile(rf"(?:(?P<line>(?:^|\n)[ \t]*)?(?P<bar>[{_BAR}])[ \t]*|(?:^|\n|\]:?)[ \t]*)[`*\"']{{0,3}}\Z")
_COLUMN = re.compile(r"(?:[ \t]{2,}+|\t)(?P<value>\S++)(?=[ \t]{2,}|\t|[ \t]*$)", re.MULTILINE)
_SETTING = re.compile(r"[ \t]++(?=[^\s=:])")
_SETTING_START = re.compile(
    r"(?:^|[\s;&|(\"'`])(?:ENV|ARG|setenv|putenv|setx|(?:set|export|declare|typeset)(?:[ \t]+-[A-Za-z]{1,8})+"
    r"|(?:config|configure)(?:[ \t]+set)?(?:[ \t]+--?[\w-]{1,20})*)[ \t]+[\"']?\Z"
)
_MAX_SETTING = 4000
"""Characters of a setting such as `ENV NAME value` that tell whether its value is a secret."""
_PROVIDED = r"(?:provided|supplied|given|received|used|specified|sent|entered|passed|found)"
_OWNER = r"[ \t](?:for|of)[ \t](?:(?:the|your|this|user|account|host|database)[ \t]){0,2}[\"'`]?[\w@.-]{1,60}+[\"'`]?"
_SENTENCE = re.compile(
    rf"[\"'`]?(?:{_OWNER}|[ \t]{_PROVIDED})?"
    r"(?:[ \t]?(?P<colon>[:=])[ \t]*|[ \t](?:has been |was |is )?"
    rf"(?P<verb>is|was|are|be|set to|changed to|reset to|{_PROVIDED}:?)[ \t]+|(?P<gap>[ \t]+\(?))"
    r"(?:[\"'`](?P<quoted>[^\"'`\n]{1,400}+)[\"'`]|(?P<bare>[^\s\"'`<>()\[\]{},;]++))(?P<end>[ \t]*(?:[.;,!)]|$|\n))?"
)
_VERB = re.compile(
    r"[ \t](?:is|was|were|has|had|does|did|will|must|can|cannot|could|may|should|not|failed|expired|rejected"
    r"|revoked|denied|invalid|for|on|at|from|in)\b"
)
"""Words after a token in a sentence: it is no adjective, as in `using token bucket2 algorithm`."""
_CONTEXT = re.compile(
    r"(?i)\b(?:40[13][ \t]for|using|with|use|by|invalid|incorrect|wrong|bad|expired|revoked|unknown|rejected"
    r"|authentication|auth|access|my|your)"
    r"(?:[ \t](?:the|an?|your|this|api|access|auth|bearer|secret|[\w-]{1,20}))?[ \t][\"'`]?\Z"
)


class SecretName(NamedTuple):
    """A name in a text and how much it tells."""

    text: str
    strength: Strength
    start: int
    end: int


def find_connected(text: str, name: SecretName) -> Iterator[Span]:
    """Yield the secret behind a name, if a pair, a table, a setting or a sentence connects both."""
    if text[name.end : name.end + 1] not in _CONNECTS:
        return
    before = text[max(0, name.start - _BEFORE) : name.start]
    span = next((span for read in _READERS if (span := read(text, name, before))), None)
    if span and (not is_webhook(name.text) or "/" in text[slice(*span)]):
        yield span


def _read_pair(text: str, name: SecretName, before: str) -> Span | None:
    """Read `('password', 'x')`, `["token","x"]` and `setdefault("DB_PASSWORD", "x")`."""
    match = _PAIR.match(text, name.end)
    start = _PAIR_START.search(before) if match else None
    if not start or not match:
        return None
    if match["number"]:
        return match.span("number") if name.strength >= Strength.STRONG and match["after"] else None
    is_pair = bool(match["after"]) and match["after"].strip() in {"[": "]", "(": ")", "{": "}"}[start["bracket"]]
    is_call = start["bracket"] == "(" and bool(start["call"])
    return match.span("value") if (is_pair or is_call) and is_secret_pair(name.text, match["value"]) else None


def is_secret_pair(name: str, value: str) -> bool:
    """Return whether a name and a text next to it are a secret, instead of two names, or a name and a sentence."""
    if not value or is_field_name(value) or _shares_path(name, value):
        return False
    strength = rate_name(name)
    is_phrase = strength is Strength.LINE or (strength is Strength.STRONG and is_chosen(name))
    if (" " in value and not is_phrase) or ("{" in value and strength < Strength.STRONG):
        return False
    is_clear = strength >= Strength.STRONG or is_qualified(name) or looks_chosen(value)
    return is_clear and is_secret_value(name, strength, value)


def _shares_path(name: str, value: str) -> bool:
    """Return whether a name and a value are two fields of one object: `["env.TOKEN", "env.NOTE"]`."""
    head, dot, _ = name.partition(".")
    return bool(dot) and value.startswith(head + dot)


def _read_cell(text: str, name: SecretName, before: str) -> Span | None:
    """Read the next cell of a table; in a table with other columns the value looks like a password."""
    match = _CELL.match(text, name.end)
    start = _CELL_START.search(before) if match else None
    if not start or not match or (" " in match["value"] and name.strength is not Strength.LINE):
        return None
    has_two_columns = start["line"] is not None and match["end"] is not None
    value = match["value"].strip("`*\"'")
    if not value or is_field_name(value) or not (has_two_columns or looks_chosen(value)):
        return None
    if start["bar"] is None and name.strength is Strength.WEAK and not looks_dense(value):
        return None  # the header of two columns
    is_row = has_two_columns and start["bar"] is not None
    if not is_row and _is_numbered_field(value):
        return None  # a header with several columns of one kind: `password | email1 | email2`
    begin = match.start("value") + match["value"].find(value)
    return (begin, begin + len(value)) if is_secret_value(name.text, name.strength, value) else None


def _is_numbered_field(value: str) -> bool:
    """Return whether a value is the name of a field with one digit, and no usual password such as `secret1`."""
    field = value[:-1].rstrip("_-")
    return value[-1].isdecimal() and is_field_name(field) and rate_name(field) is Strength.ORDINARY


def _read_column(text: str, name: SecretName, before: str) -> Span | None:
    """Read the next column of a table without lines; the value looks like a password."""
    match = _COLUMN.match(text, name.end) if name.strength >= Strength.NAMED else None
    if not match or not looks_chosen(match["value"]) or is_harmless(match["value"]):
        return None
    indent = before[len(before.rstrip(" \t")) :]
    begins_column = "\t" in indent or len(indent) > 1 or before.rstrip(" \t")[-1:] in ("", "\n", "]", ":")
    return match.span("value") if begins_column else None


def _read_setting(text: str, name: SecretName, before: str) -> Span | None:
    """Read `ENV DB_PASSWORD x`, `setenv DB_PASSWORD x` and `git config user.token x`."""
    match = _SETTING.match(text, name.end)
    if not match or not _SETTING_START.search(before) or begins_message(name.text, text, match.end()):
        return None
    limit = match.end() + _MAX_SETTING
    line_end = text.find("\n", match.end(), limit)
    value = text[match.end() : line_end if line_end >= 0 else limit].rstrip()
    quoted = re.match(_LITERAL, value)
    word = quoted.span("value") if quoted else (0, len(value) if before.rstrip().endswith("ENV") else len(value.split()[0]))
    start, end = match.end() + word[0], match.end() + word[1]
    if start >= end or not is_secret_value(name.text, name.strength, text[start:end]):
        return None
    if line_end < 0 and not quoted and word[1] == len(value) and limit < len(text):  # it goes on
        end = len(text) if (line_end := text.find("\n", limit)) < 0 else line_end
    return start, end


def _read_sentence(text: str, name: SecretName, before: str) -> Span | None:
    """Read `the password for bob is x`, `invalid token 'x'` and `incorrect API key provided: x`."""
    match = _SENTENCE.match(text, name.end)
    if (
        not match
        or (name.strength is Strength.WEAK and not is_made(name.text))
        or (name.strength is Strength.WEAK and is_kind(name.text) and match["gap"])
    ):
        return None
    group = "quoted" if match["quoted"] else "bare"
    value = match[group].rstrip(".:!?")
    span = match.start(group), match.start(group) + len(value)
    if not value or is_harmless(value) or not is_secret_value(name.text, name.strength, value):
        return None
    has_verb = bool(_VERB.match(text, match.end()))
    return span if _fits_sentence(name, match, value, before=before, has_verb=has_verb) else None


def _fits_sentence(name: SecretName, match: re.Match[str], value: str, *, before: str, has_verb: bool) -> bool:
    is_strong, is_named = name.strength >= Strength.STRONG, name.strength >= Strength.NAMED
    if is_state(value) or is_field_name(value):
        return False
    if match["quoted"]:
        return " " not in value and (is_strong or looks_chosen(value))
    if match["gap"]:
        has_context = (has_verb or match["end"] is not None) and bool(_CONTEXT.search(before))
        is_clear = looks_random(value) or looks_dense(value) or has_context or (is_named and has_verb)
        return looks_chosen(value) and "=" not in value.rstrip("=") and is_clear
    return looks_chosen(value) or (is_strong and bool(match["verb"]) and match["end"] is not None)


_READERS: tuple[Callable[[str, SecretName, str], Span | None], ...] = (
    _read_pair,
    _read_cell,
    _read_column,
    _read_setting,
    _read_sentence,
)
