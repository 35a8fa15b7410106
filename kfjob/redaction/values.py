"""Tell the values of secrets from switches, numbers, references to variables, and paths. Pure."""

from __future__ import annotations

import re

from kfjob.redaction.names import Strength, is_chosen, split_words

PLAIN = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|default|auto|never|always|required|optional|unset|[|>][+-]?|\*+|x{3,}|\.{3,}|-+)?",
    re.IGNORECASE,
)
"""Words that are no secrets."""
RANDOM_LENGTH, MIN_WORD = 16, 6
_NUMBER_PART = r"[-+~]?[\d.,_]++(?:e[-+]?\d++)?(?:[KMGBTkmgbt]i?[Bb]?|%|[mun]?s|tok(?:ens?)?)?"
_NUMBER = re.compile(rf"{_NUMBER_PART}(?:[/:x|]{_NUMBER_PART})*+(?:/[A-Za-z]{{1,8}})?")
"""Numbers as training programs print them: `1.2M`, `5/10`, `12:30`, `431/s`."""
_NAMED = r"\$(?:[A-Z_][A-Z0-9_]*|[a-z_]+|[0-9@*#?])(?!\w)"
"""A variable as people name them: `$uper5ecret` is a password."""
_VARIABLE = (
    rf"(?:\$\(\w+\)|\$\{{\w+(?::?\?[^}}]{{0,200}}|:?[-=+](?:{_NAMED}|\$\{{\w+\}})?)?\}}|{_NAMED}"
    r"|\[redacted\]|<[\w -]{1,40}>|\{\{[^{}]{1,80}\}\})"
)
_VARIABLES = re.compile(
    rf"{_VARIABLE}(?:[/:.-]{{1,3}}{_VARIABLE}){{0,20}}[)\]}}>.:|]{{0,3}}"
    r"|id=[\w.-]{1,80}(?:,(?:src|source|env|type|target|dst|mode|uid|gid|required)=[\w./~${}-]{0,200}){0,10}"
)
"""References to variables and placeholders, and nothing else; `--secret id=…` of a build names a secret, too."""
_PATH_IN_VARIABLE = re.compile(r"(?:\$\(\w+\)|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*)(?=/)")
_PATH = re.compile(r"(?:\.{0,2}|~)(?:/[\w.@-]{1,40})+/?")
_PROSE = re.compile(r"(?!(?:basic|bearer|token|digest|negotiate|ntlm|apikey|hmac|hawk)\b)[a-z]++(?:\s++[A-Za-z'-]++){2}")
"""The beginning of a sentence, not of credentials."""
_MESSAGE = re.compile(
    r"(?:must|should|shall|can|cannot|could|may|is|are|was|were|has|have|had|does|do|did|will|would|not|no|the|this|that|it"
    r"|if|when|for|from|with|by|at|authentication|login|access|permission)(?=[ ][A-Za-z\"'`(])"
    r"|(?:invalid|missing|empty|wrong|incorrect|expired|revoked|rejected|refused|denied|failed|failure|mismatch|unauthorized"
    r"|forbidden|unauthenticated|unknown|disabled|enabled|timeout|set)(?=[.,;:!)]?(?:\s|\Z))",
    re.IGNORECASE,
)
"""Words with which a message about a secret goes on, after any name."""
_WORD_OF_MESSAGE = re.compile(r"[A-Za-z][a-z]{1,15}[.,;:]?[ ](?![\w.-]{1,80}=)(?=[A-Za-z\"'`(])")
"""A word of letters, with the next word of a message after it."""


def is_harmless(value: str) -> bool:
    """Return whether a value is no secret, whatever its name: a switch, a reference, a path."""
    path = _PATH_IN_VARIABLE.sub("", value, count=1)
    is_path = _PATH.fullmatch(path) and not looks_random(path)
    return bool(is_path or PLAIN.fullmatch(value) or _VARIABLES.fullmatch(value))


def ends_reference(text: str, start: int) -> int | None:
    """Return where a reference to a variable, or a placeholder, ends that is the whole value at `start`."""
    match = _VARIABLES.match(text, start)
    return match.end() if match and (match.end() == len(text) or text[match.end()] in " \t\n,;\"'`&)]}") else None


def begins_message(name: str, text: str, start: int) -> bool:
    """Return whether the text after `name: ` is the next part of a message, as in `webhook: connection refused`.

    The line is drawn by these signs. The name and the value have no quotes, and the separator is `: `. Machines make tokens,
    keys and webhooks, so a plain word that another word follows is none. People choose passwords and secrets: after such a
    name only the verbs, prepositions and states of `_MESSAGE` count. A lone word is a secret, unless it is a state.
    """
    return bool(_MESSAGE.match(text, start) or (not is_chosen(name) and _WORD_OF_MESSAGE.match(text, start)))


def looks_random(value: str) -> bool:
    """Return whether a text is as long and as mixed as a token."""
    kinds = (str.islower, str.isupper, str.isdecimal)
    return len(value) >= RANDOM_LENGTH and all(any(kind(character) for character in value) for kind in kinds)


def has_digit_and_letter(value: str) -> bool:
    """Return whether a text has both."""
    return any(character.isdecimal() for character in value) and any(character.isalpha() for character in value)


def is_secret_value(name: str, strength: Strength, value: str) -> bool:
    """Return whether `name=value` in a text is a secret; texts hold words such as `key: model.layers.0` and `token: 5`."""
    if strength is Strength.ORDINARY or is_harmless(value):
        return False
    in_brackets = value[0] + value[-1] in ("<>", "[]", "()", "{}")
    if strength is Strength.LINE:
        return not _PROSE.match(value) or is_chosen(name)
    if strength is Strength.STRONG:
        return not in_brackets or has_digit_and_letter(value)
    if in_brackets or _NUMBER.fullmatch(value):
        return False
    return strength is Strength.NAMED or _is_weak_secret(name, value)


def _is_weak_secret(name: str, value: str) -> bool:
    has_digit = any(character.isdecimal() for character in value)
    is_word = has_digit and len(value) >= MIN_WORD and not any(character in ". \t" for character in value)
    return looks_random(value) or (is_word and split_words(name)[-1:] not in (["KEY"], ["KEYS"]))
