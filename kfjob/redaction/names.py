"""Recognise the names of secrets: variables, options, fields and headers. Pure."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache


class Strength(IntEnum):
    """How much a name tells about its value."""

    ORDINARY = 0
    WEAK = 1
    """One word with other meanings, such as `key`, `pass` or `tokens`: the value must look like a secret, too."""
    NAMED = 2
    """Several words, such as `HF_TOKEN`: every value but a number is a secret."""
    STRONG = 3
    """A word with one meaning, such as `password`."""
    LINE = 4
    """The value ends with the line: `Authorization`, `Cookie`, `PASSPHRASE`."""


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS = _split_names(
    "PASS PASSWD PASSWORD PASSWORDS PASSPHRASE PASSPHRASES PASSCODE PWD PW TOKEN KEY APIKEY APIKEYS ACCESSKEY SECRETKEY "
    "PRIVATEKEY SECRET SECRETS CREDENTIAL CREDENTIALS CRED CREDS WEBHOOK WEBHOOKS AUTH AUTHORIZATION COOKIE COOKIES DSN SAS "
    "JWT BEARER SIGNATURE SIG DBPASS USERPASS PGPASS ROOTPASS ADMINPASS MYSQLPASS"
)
_PLURALS = {"KEYS": "KEY", "TOKENS": "TOKEN"}
_QUALIFIERS = _split_names(
    "API ACCESS SECRET PRIVATE AUTH AUTHENTICATION HF HUB HUGGINGFACE WANDB BEARER REFRESH CLIENT SIGNING ENCRYPTION SESSION "
    "SECURITY AWS GITHUB GITLAB OPENAI ANTHROPIC SLACK ACCOUNT SHARED SERVICE ADMIN USER LOGIN ID"
)
"""Words before `keys`, `tokens` and before ` key` that leave no other meaning."""
_SECRET_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "SECRET", "AUTHTOKEN", "ACCESSTOKEN", "APITOKEN")
_ENDINGS = _split_names("DATA B64 BASE64 PEM JSON STRING TEXT PLAIN OLD NEW PROD DEV STAGING TEST URL URI VALUE HEADER")
"""Words after a secret word that leave the value a secret."""
_HARMLESS_BEFORE = {
    "KEY": _split_names(
        "PUBLIC PRIMARY FOREIGN SORT CACHE PARTITION TOPOLOGY KMS SHARD GROUP LOOKUP HOT JSON MAP DICT CONFIG INDEX"
    ),
    "TOKEN": _split_names(
        "EOS BOS PAD UNK SEP CLS MASK SPECIAL IMAGE VIDEO AUDIO START END STOP FIRST LAST NEXT PER BY NUM MAX MIN"
    ),
    "SECRET": frozenset({"PULL"}),
    "SECRETS": frozenset({"PULL"}),
}
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "KEY_VALUE", "NO_AUTH", "SSH_AUTH_SOCK", "HUB_TOKEN_SECRET"})
_STRONG_WORDS = frozenset(["PASSWD", "PASSWORD", "PASSPHRASE", "PASSCODE", "APIKEY", "WEBHOOK", "PASSWORDS", "APIKEYS"])
_STRONG_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "AUTHTOKEN", "ACCESSTOKEN", "APITOKEN")
_LINE_WORDS = frozenset(["AUTHORIZATION", "COOKIE", "COOKIES", "PASSPHRASE", "PASSPHRASES"])
_CHOSEN = ("PASS", "PWD", "SECRET", "CRED", "AUTH")
"""Parts of names whose values people choose, so that a word of a language may be one; machines make tokens, keys and URLs."""
_MAX_NAME = 80
"""Characters at the end of a name that decide whether it names a secret."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[A-Za-z0-9]+")
MARKS = (*sorted({word.lower() for word in _SECRET_WORDS}), *(word.lower() for word in _PLURALS))
"""Every name of a secret contains one of these, in some case."""


def split_words(name: str) -> list[str]:
    """Return the words of a name in upper case: `hfToken`, `HF_TOKEN` and `hf-token` are HF, TOKEN."""
    return [word.upper() for word in _WORD.findall(name)]


def is_secret_name(name: str) -> bool:
    """Return whether a variable, option or field of this name holds a secret."""
    words = split_words(name)
    if words and "_".join(words) in _HARMLESS_NAMES:
        return False
    if _rate_words(_list_segments(name)) >= Strength.STRONG:
        return True
    return _rate_words(words) > Strength.ORDINARY and not is_plural(name)


def is_plural(name: str) -> bool:
    """Return whether the name is `keys` or `tokens` without a word that says of which kind: ordinary in fields."""
    words = split_words(name)
    return bool(words) and words[-1] in _PLURALS and not _is_qualified(words)


@lru_cache(maxsize=4096)
def rate_name(name: str) -> Strength:
    """Return how much a name in a text tells about the value after it."""
    name = name[-_MAX_NAME:]
    words = split_words(name)
    if "_".join(words) == "PWD":
        return Strength.STRONG  # of a connection string; the variable holds a path, which is harmless
    if "_".join(words) in _HARMLESS_NAMES:
        return Strength.ORDINARY
    strength = _rate_words(words)
    other = _rate_words(_list_segments(name))
    return max(strength, other) if other >= Strength.STRONG else strength


def rate_phrase(qualifier: str, name: str) -> Strength:
    """Return how much a name of two words tells, such as `API key` or `hf token`."""
    return Strength.NAMED if rate_name(name) and qualifier.upper() in _QUALIFIERS else Strength.ORDINARY


def is_credentials(name: str) -> bool:
    """Return whether an object of this name holds secrets only."""
    return split_words(name)[-1:] in (["CREDENTIALS"], ["CREDENTIAL"], ["CREDS"], ["AUTH"])


def is_chosen(name: str) -> bool:
    """Return whether people choose the value of this name: `password`, and not `api_key` or `webhook`."""
    letters = "".join(_list_segments(name[-_MAX_NAME:]))
    return any(part in letters for part in _CHOSEN) or "PW" in split_words(name)


def _list_segments(name: str) -> list[str]:
    """Return the parts of a name between `_`, `-` and `.`: `pAsSwOrD` is one word."""
    return [segment.upper() for segment in _LETTERS.findall(name)]


def _rate_words(words: list[str]) -> Strength:
    words = list(words)
    while len(words) > 1 and (words[-1] in _ENDINGS or words[-1].isdecimal()) and words[-2:] != ["KEY", "VALUE"]:
        words.pop()
    if not words:
        return Strength.ORDINARY
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _LINE_WORDS:
        return Strength.LINE
    if last in _PLURALS:
        plural = Strength.WEAK if _is_weak(_PLURALS[last], before) else Strength.ORDINARY
        return Strength.NAMED if _is_qualified(words) else plural
    if not (last in _SECRET_WORDS or last.endswith(_SECRET_ENDINGS)) or not _is_weak(last, before):
        return Strength.ORDINARY
    if any(word in _STRONG_WORDS or word.endswith(_STRONG_ENDINGS) for word in words):
        return Strength.STRONG
    return Strength.NAMED if len(words) > 1 else Strength.WEAK


def _is_weak(last: str, before: str) -> bool:
    return before not in _HARMLESS_BEFORE.get(last, ())


def _is_qualified(words: list[str]) -> bool:
    return any(word in _QUALIFIERS for word in words[:-1])
