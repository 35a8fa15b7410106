"""Recognise the names of secrets, and the values that are no secrets under any name. Pure."""

from __future__ import annotations

import re
from functools import cache, lru_cache


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PASSWORDS = _split("PASSWORD PASSWORDS PASSWD PASSPHRASE")
"""Words without another meaning."""
_HEADERS = _split("AUTHORIZATION COOKIE")
_SECRETS = _PASSWORDS | _HEADERS | _split("PASS PWD SECRET SECRETS CREDENTIAL CREDENTIALS AUTH WEBHOOK DSN KEY TOKEN")
"""The last word of each name of a secret, unless it ends as one of `_ENDINGS`."""
_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "ACCESSTOKEN", "AUTHTOKEN")
"""Ends of words that people write together, such as `dbpassword`."""
_SUFFIXES = _split("OLD NEW PROD DEV STAGING TEST B64 BASE64 PEM JSON URL VALUE")
"""Words after the word of a secret that leave the value a secret."""
_ACCESS = _split(
    "API APP ACCESS SECRET PRIVATE AUTH OAUTH BEARER REFRESH SIGNING ENCRYPTION SSH SSL TLS GPG JWT CSRF WEBHOOK DEPLOY "
    "LICENSE HF HUB HUGGINGFACE WANDB NEPTUNE COMET MLFLOW CLEARML OPENAI ANTHROPIC COHERE MISTRAL GEMINI GROQ NVIDIA NGC "
    "AWS S3 GCP GCS GOOGLE AZURE MINIO GITHUB GH GITLAB NPM PYPI DOCKER REGISTRY KAGGLE DATADOG SENTRY GRAFANA SLACK "
    "DISCORD TELEGRAM STRIPE DATABRICKS SNOWFLAKE VAULT KUBE CLUSTER JUPYTER ACCOUNT SERVICE CLIENT SESSION MASTER SHARED "
    "ADMIN BOT ROOT STORAGE SERVER"
)
"""Words before `key` and `token` that say what these give access to."""
_DATA = _split(
    "PUBLIC PRIMARY FOREIGN SORT CACHE PARTITION KMS SHARD GROUP LOOKUP JSON MAP DICT CONFIG INDEX EOS BOS PAD UNK SEP CLS "
    "MASK SPECIAL IMAGE VIDEO AUDIO START END STOP FIRST LAST NEXT PER BY NUM MAX MIN LABEL TEXT CAPTION INPUT OUTPUT "
    "PROMPT RESPONSE QUESTION ANSWER CONTENT MESSAGE CHAT METRIC LOSS SCORE MODEL DATASET DATA STATE OPTIM OPTIMIZER STORE "
    "SEPARATOR TARGET SOURCE FEATURE SAMPLE BATCH IGNORE REWARD PULL NO FORWARD BACKWARD TWO ONE SINGLE MULTI FUSION "
    "COMPILER GRAPH"
)
"""Words before `key`, `token`, `pass` and `secret` that give them another meaning."""
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
MARKS = ("pass", "pwd", "secret", "credential", "auth", "webhook", "dsn", "key", "token", "cookie")
"""Every name of a secret contains one of these, in some case."""
_MAX_NAME = 80
"""Characters at the end of a name that decide whether it names a secret."""
MAX_HARMLESS = 300
"""A value of that many characters is never harmless."""
_MIN_RANDOM = 16
_DIGITS = frozenset("0123456789")

VARIABLE = r"(?:\$\([^()\n]{0,200}\)|\$\{\w+(?::?\?[^}\n]{0,200}|:?[-=+])?\}|\$[A-Z_][A-Z0-9_]*(?!\w)|\$[a-z_]+(?!\w))"
"""A reference to a variable as people write it: `$uper5ecret` is a password."""
REFERENCE = rf"(?:{VARIABLE}(?:[/:.-]{VARIABLE}){{0,20}}|\[redacted\]|<[\w '-]{{1,120}}>|\{{\{{[^{{}}\n]{{1,80}}\}}\}})"
"""References to variables, and placeholders."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable, option or field of this name holds a secret.

    The last word decides. A compound of `key` or `token` is a secret if a word before it says what it gives access to
    (`api_key`, `hf-token`), or if it is a variable in capitals that is not about data or models (`FOO_KEY`, no `PAD_TOKEN`).
    """
    words = _list_words(name)
    if not words:
        return False
    *before, last = words
    if last.endswith(_ENDINGS):
        return True
    if last not in _SECRETS or (before and before[-1] in _DATA):
        return False
    if not before:
        return last != "PWD"  # the working directory
    return last not in ("KEY", "TOKEN") or not _ACCESS.isdisjoint(before) or (name.isupper() and _DATA.isdisjoint(before))


def is_password_name(name: str) -> bool:
    """Return whether the name has no other meaning, so that even a number after it is a secret."""
    words = _list_words(name)
    return bool(words) and words[-1].endswith(_ENDINGS)


def is_lone_word(name: str) -> bool:
    """Return whether the name is one word with other meanings, such as `key`: in a text, only random values are secrets."""
    words = _list_words(name)
    return len(words) == 1 and words[0] in _SECRETS - _PASSWORDS - _HEADERS


def is_header(name: str) -> bool:
    """Return whether the name is that of an HTTP header whose whole value is a secret."""
    return _list_words(name)[-1:] in (("AUTHORIZATION",), ("COOKIE",))


@lru_cache(maxsize=4096)
def _list_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in capitals, without the suffixes at its end: `apiKey_2` is like `API_KEY`."""
    words = [word.upper() for word in re.findall(_WORD, name[-_MAX_NAME:])]
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdecimal()):
        words.pop()
    return tuple(words)


def is_harmless(value: str) -> bool:
    """Return whether a value is no secret under any name: a switch, a reference to a variable, a placeholder, a path."""
    return len(value) < MAX_HARMLESS and bool(
        _compile_harmless().fullmatch(value) or (_compile_path().fullmatch(value) and not looks_random(value))
    )


def is_number(value: str) -> bool:
    """Return whether a value is a figure, perhaps with a unit: `5/10`, `1.2M`, `431/s`."""
    return bool(_compile_number().fullmatch(value))


def looks_random(value: str) -> bool:
    """Return whether a text is as long and as mixed as a token, without the dots of a name of a module."""
    is_mixed = value != value.lower() and value != value.upper() and not _DIGITS.isdisjoint(value)
    return len(value) >= _MIN_RANDOM and "." not in value and is_mixed


@cache
def _compile_harmless() -> re.Pattern[str]:
    words = "true|false|none|null|yes|no|on|off|default|auto|required|optional|unset"
    return re.compile(rf"(?i:{words}|x{{3,}}|\*+|\.{{3}}|…|-+|[|>][+-]?)?|{REFERENCE}")


@cache
def _compile_path() -> re.Pattern[str]:
    return re.compile(rf"(?:{VARIABLE}|~|\.{{0,2}})(?:/[\w.@-]{{1,30}})+/?")


@cache
def _compile_number() -> re.Pattern[str]:
    return re.compile(r"[-+~]?\d[\d.,_:/x]*(?:e[-+]?\d+)?[A-Za-z%]{0,6}(?:/[A-Za-z]{1,4})?")
