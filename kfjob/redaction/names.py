"""Recognise the names of secrets: variables, options, fields and headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple


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


class _Word(NamedTuple):
    """A word that names a secret."""

    strength: Strength
    """Of a name that is this word only."""
    is_chosen: bool = False
    """People choose the value, so a word of a language may be one; machines make tokens, keys and URLs."""
    is_ending: bool = False
    """It also counts as the end of a longer word, such as `DBPASSWORD`."""
    is_plural: bool = False
    """It counts after a qualifier only; otherwise the value must look like a secret."""
    harmless_before: frozenset[str] = frozenset()
    """Words before it that give it another meaning."""


_BEFORE_KEY = _split_names(
    "PUBLIC PRIMARY FOREIGN SORT CACHE PARTITION TOPOLOGY KMS SHARD GROUP LOOKUP HOT JSON MAP DICT CONFIG INDEX"
)
_BEFORE_TOKEN = _split_names(
    "EOS BOS PAD UNK SEP CLS MASK SPECIAL IMAGE VIDEO AUDIO START END STOP FIRST LAST NEXT PER BY NUM MAX MIN"
)
_PULL = frozenset({"PULL"})
_WEAK_CHOSEN = "PASS PWD PW CREDENTIAL CREDENTIALS CRED CREDS AUTH DBPASS USERPASS PGPASS ROOTPASS ADMINPASS MYSQLPASS"
_WEAK_MADE = "ACCESSKEY SECRETKEY PRIVATEKEY WEBHOOKS DSN SAS JWT BEARER SIGNATURE SIG"
_WORDS: Mapping[str, _Word] = MappingProxyType(
    {word: _Word(Strength.WEAK, is_chosen=True) for word in _WEAK_CHOSEN.split()}
    | {word: _Word(Strength.WEAK) for word in _WEAK_MADE.split()}
    | {
        "KEY": _Word(Strength.WEAK, harmless_before=_BEFORE_KEY),
        "KEYS": _Word(Strength.WEAK, is_plural=True, harmless_before=_BEFORE_KEY),
        "TOKEN": _Word(Strength.WEAK, harmless_before=_BEFORE_TOKEN),
        "TOKENS": _Word(Strength.WEAK, is_plural=True, harmless_before=_BEFORE_TOKEN),
        "SECRET": _Word(Strength.WEAK, is_chosen=True, is_ending=True, harmless_before=_PULL),
        "SECRETS": _Word(Strength.WEAK, is_chosen=True, harmless_before=_PULL),
        "PASSWORD": _Word(Strength.STRONG, is_chosen=True, is_ending=True),
        "PASSWORDS": _Word(Strength.STRONG, is_chosen=True),
        "PASSWD": _Word(Strength.STRONG, is_chosen=True, is_ending=True),
        "PASSCODE": _Word(Strength.STRONG, is_chosen=True),
        "APIKEY": _Word(Strength.STRONG, is_ending=True),
        "APIKEYS": _Word(Strength.STRONG),
        "AUTHTOKEN": _Word(Strength.STRONG, is_ending=True),
        "ACCESSTOKEN": _Word(Strength.STRONG, is_ending=True),
        "APITOKEN": _Word(Strength.STRONG, is_ending=True),
        "WEBHOOK": _Word(Strength.STRONG),
        "PASSPHRASE": _Word(Strength.LINE, is_chosen=True, is_ending=True),
        "PASSPHRASES": _Word(Strength.LINE, is_chosen=True),
        "AUTHORIZATION": _Word(Strength.LINE),
        "COOKIE": _Word(Strength.LINE),
        "COOKIES": _Word(Strength.LINE),
    }
)
"""Every word that names a secret, one row each."""
_WORD_ENDINGS = tuple(word for word, row in _WORDS.items() if row.is_ending)
_QUALIFIERS = _split_names(
    "API ACCESS SECRET PRIVATE AUTH AUTHENTICATION HF HUB HUGGINGFACE WANDB BEARER REFRESH CLIENT SIGNING ENCRYPTION SESSION "
    "SECURITY AWS GITHUB GITLAB OPENAI ANTHROPIC SLACK ACCOUNT SHARED SERVICE ADMIN USER LOGIN ID"
)
"""Words before `keys`, `tokens` and before ` key` that leave no other meaning."""
_SUFFIXES = _split_names("DATA B64 BASE64 PEM JSON STRING TEXT PLAIN OLD NEW PROD DEV STAGING TEST URL URI VALUE HEADER")
"""Words after a secret word that leave the value a secret."""
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "KEY_VALUE", "NO_AUTH", "SSH_AUTH_SOCK", "HUB_TOKEN_SECRET"})
_MAX_NAME = 80
"""Characters at the end of a name that decide whether it names a secret."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[A-Za-z0-9]+")
MARKS = tuple(sorted(word.lower() for word in _WORDS))
"""Every name of a secret contains one of these, in some case."""


_TOPICS = _split_names(
    "FILE PATH DIR FOLDER NAME NAMES ID IDS TYPE TYPES KIND POLICY LENGTH LEN SIZE COUNT LIMIT MIN MAX NUM BUDGET "
    "RATE AGE TTL EXPIRY EXPIRES EXPIRATION TIMEOUT REF REFS PROMPT REQUIRED ENABLED DISABLED ENABLE DISABLE LOSS DIM "
    "DIMS EMBEDDING EMBEDDINGS ACCURACY PER LEVEL DROP DROPOUT MASK INDEX POSITION SHIFT MIX MERGE MERGING PRUNING "
    "LIST STORE MANAGER PROVIDER SERVICE SERVER HOST PORT REGION VERSION FORMAT MODE METHOD CHECK FIELD COLUMN "
    "INTERVAL STRATEGY WEIGHT WINDOW IMBALANCE DISPATCHER"
)
"""Words of a variable that is about a secret, or about tokens of a text, and holds none."""


def split_words(name: str) -> list[str]:
    """Return the words of a name in upper case: `hfToken`, `HF_TOKEN` and `hf-token` are HF, TOKEN."""
    return [word.upper() for word in _WORD.findall(name)]


def is_secret_name(name: str) -> bool:
    """Return whether a variable, option or field of this name holds a secret."""
    words = split_words(name)
    if words and "_".join(words) in _HARMLESS_NAMES:
        return False
    if _rate_words(_list_segments(name)) >= Strength.STRONG or _rate_variable(name, words) > Strength.ORDINARY:
        return True
    return _rate_words(words) > Strength.ORDINARY and not is_plural(name)


def is_plural(name: str) -> bool:
    """Return whether the name is `keys` or `tokens` without a word that says of which kind: ordinary in fields."""
    words = split_words(name)
    row = _find_row(words[-1]) if words else None
    return row is not None and row.is_plural and not _is_qualified(words)


@lru_cache(maxsize=4096)
def rate_name(name: str) -> Strength:
    """Return how much a name in a text tells about the value after it."""
    name = name[-_MAX_NAME:]
    words = split_words(name)
    if "_".join(words) == "PWD":
        return Strength.STRONG  # of a connection string; the variable holds a path, which is harmless
    if "_".join(words) in _HARMLESS_NAMES:
        return Strength.ORDINARY
    strength = max(_rate_words(words), _rate_variable(name, words))
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
    rows = [_find_row(words[-1]) for words in map(_strip_suffixes, (split_words(name), _list_segments(name))) if words]
    return any(row is not None and row.is_chosen for row in rows)


def _list_segments(name: str) -> list[str]:
    """Return the parts of a name between `_`, `-` and `.`: `pAsSwOrD` is one word."""
    return [segment.upper() for segment in _LETTERS.findall(name)]


def _strip_suffixes(words: list[str]) -> list[str]:
    """Return the words without the numbers and suffixes at their end: `PASSWORD_OLD` is a password."""
    words = list(words)
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdecimal()) and words[-2:] != ["KEY", "VALUE"]:
        words.pop()
    return words


def _find_row(word: str) -> _Word | None:
    """Return the row of a word, or of the ending of a longer word; None if it names no secret."""
    if row := _WORDS.get(word):
        return row
    ending = next((ending for ending in _WORD_ENDINGS if word.endswith(ending)), None)
    return _WORDS[ending] if ending else None


def _rate_words(words: list[str]) -> Strength:
    words = _strip_suffixes(words)
    row = _find_row(words[-1]) if words else None
    if row is None:
        return Strength.ORDINARY
    if row.strength is Strength.LINE and words[-1] in _WORDS:
        return Strength.LINE
    if row.is_plural and _is_qualified(words):
        return Strength.NAMED
    if len(words) > 1 and words[-1] in _WORDS and words[-2] in row.harmless_before:
        return Strength.ORDINARY
    if not row.is_plural and any(map(_is_strong, words)):
        return Strength.STRONG
    return Strength.NAMED if len(words) > 1 and not row.is_plural else Strength.WEAK


def _rate_variable(name: str, words: list[str]) -> Strength:
    """Return how much a variable tells whose name goes on after the word of a secret, such as `PASSWORD_DB`."""
    if not name.isupper() or not _TOPICS.isdisjoint(words):
        return Strength.ORDINARY
    for index, word in enumerate(words[:-1]):
        if _is_strong(word):
            return Strength.NAMED
        before = words[index - 1] if index else ""
        is_made = word in {"TOKEN", "SECRET"} or (word == "KEY" and before in _QUALIFIERS)
        if is_made and before not in _WORDS[word].harmless_before:
            return Strength.WEAK
    return Strength.ORDINARY


def _is_strong(word: str) -> bool:
    """Return whether a word has one meaning, wherever it stands in a name."""
    row = _find_row(word)
    return row is not None and (row.strength is Strength.STRONG or (row.strength is Strength.LINE and row.is_ending))


def _is_qualified(words: list[str]) -> bool:
    return any(word in _QUALIFIERS for word in words[:-1])
