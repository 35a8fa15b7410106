"""Recognise secrets by their names and shapes, and replace them in text and in JSON. Pure.

Reports, archived logs, `explain`, JSON, quotes of a diagnosis and messages for people go through a `Redactor`. The commands
`logs` and `render` print what the job printed and what the user wrote, with its secrets. Lint uses the same tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from kfjob.token_shapes import TOKEN_SHAPES, find_shape

REDACTED = "[redacted]"
MIN_VALUE = 4
"""Known secrets of at least this many characters are replaced wherever they stand; shorter ones only in their own field."""
_SHORT = 8  # a known secret below this length is replaced as a whole word only

_AWS_SECRET = re.compile(
    r"(?<![A-Za-z0-9/+=_-])(?=[A-Za-z0-9/+]{0,39}[0-9+/])(?=[A-Za-z0-9/+]{0,39}[a-z])(?=[A-Za-z0-9/+]{0,39}[A-Z])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])"
)
_AWS_KEYS = ("AKIA", "ASIA")
_URL_LOGIN = re.compile(r"(?<=://)([^\s/@:\"'<>]{0,256}):([^\s/@\"'<>]{1,1024})(?=@)|(?<=://)([^\s/@:\"'<>]{16,1024})(?=@)")


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS = _split_names(
    "PASS PASSWD PASSWORD PASSWORDS PASSPHRASE PWD TOKEN KEY APIKEY ACCESSKEY SECRETKEY PRIVATEKEY SECRET "
    "SECRETS CREDENTIAL CREDENTIALS CRED CREDS WEBHOOK WEBHOOKS AUTH AUTHORIZATION COOKIE DSN SAS JWT "
    "BEARER SIGNATURE SIG"
)
_SECRET_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "SECRET")
_ENDINGS = _split_names("DATA B64 BASE64 PEM JSON STRING TEXT PLAIN OLD NEW PROD DEV STAGING TEST URL URI VALUE HEADER")
"""Words after a secret word that leave the value a secret."""
_HARMLESS_BEFORE = {
    "KEY": _split_names(
        "PUBLIC PRIMARY FOREIGN SORT CACHE PARTITION TOPOLOGY KMS SHARD GROUP LOOKUP HOT JSON MAP DICT CONFIG INDEX"
    ),
    "TOKEN": _split_names(
        "EOS BOS PAD UNK SEP CLS MASK SPECIAL IMAGE VIDEO AUDIO START END STOP FIRST LAST NEXT PER BY NUM MAX MIN"
    ),
}
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "KEY_VALUE", "NO_AUTH", "SSH_AUTH_SOCK", "HUB_TOKEN_SECRET"})
_STRONG_WORDS = frozenset(["PASSWD", "PASSWORD", "PASSPHRASE", "APIKEY", "WEBHOOK"])
_ENVIRONMENTS = frozenset({"env", "environment", "build_args", "variables"})
_SECRET_DATA = ("data", "stringData")
_RANDOM_LENGTH, _MIN_WORD = 16, 6
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?%?", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_REFERENCES = _split_names(
    "secret key secretName secretKeyRef pull_secrets imagePullSecrets hub_token wandb_key kms_key webhooks"
)
"""Names of fields that refer to a Kubernetes secret, or hold the name of a key."""

_PLAIN = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|default|auto|never|always|required|optional|unset|\*+|x{3,}|\.{3,}|-+)?",
    re.IGNORECASE,
)
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

_VALUE = r"""\\"[^"\n]{1,4096}\\"|"[^"\n]{1,4096}"|'[^'\n]{1,4096}'|[^\s,;&"'`\\]{1,4096}"""
_OPTION = re.compile(rf"(?<![\w-])(--?(?P<name>[A-Za-z][\w.-]{{0,80}})(?:=|\s{{1,8}}))(?P<value>(?!-){_VALUE})")
_ASSIGNMENT = re.compile(rf"((?<![\w.-])(?P<name>[A-Za-z_][\w.-]{{0,80}})\\?[\"']?\s?[:=]\s?)(?P<value>{_VALUE})")
_HEADER = re.compile(r"(?i)(\b(?:bearer|basic)\s{1,8})(?P<value>[A-Za-z0-9._~+/=-]{8,4096})")
_CURL_LOGIN = re.compile(r"((?:^|(?<=\s))(?:-u|--user|--proxy-user)[ =][^\s:]{1,256}:)(?P<value>\S{1,1024})")
_MARKS = (*{word.lower() for word in _SECRET_WORDS}, "basic", "-u", "--user", "--proxy-user")


def split_words(name: str) -> list[str]:
    """Return the words of a name in upper case: `hfToken`, `HF_TOKEN` and `hf-token` are HF, TOKEN."""
    return [word.upper() for word in _WORD.findall(name)]


def is_secret_name(name: str) -> bool:
    """Return whether a variable, option or field of this name holds a secret."""
    words = split_words(name)
    if not words or "_".join(words) in _HARMLESS_NAMES:
        return False
    while len(words) > 1 and (words[-1] in _ENDINGS or words[-1].isdecimal()) and words[-2:] != ["KEY", "VALUE"]:
        words.pop()
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    is_secret = last in _SECRET_WORDS or last.endswith(_SECRET_ENDINGS)
    return is_secret and before not in _HARMLESS_BEFORE.get(last, ())


def find_secret(text: str, name: str = "") -> str | None:
    """Return the kind of secret that a text looks like, by its shape or by the `name` of its variable; None for other texts."""
    if shape := find_shape(text):
        return shape.kind
    if any(match[2] and not _is_harmless(match[2]) for match in _URL_LOGIN.finditer(text)):
        return "a password in a URL"
    return "a secret (by the variable's name)" if is_secret_name(name) and not _is_harmless(text) else None


def _is_harmless(value: str) -> bool:
    """Return whether a value is no secret, whatever its name: a switch, a small number, a reference, a path."""
    path = _PATH_IN_VARIABLE.sub("", value, count=1)
    is_path = _PATH.fullmatch(path) and not _looks_random(path)
    return bool(is_path or _PLAIN.fullmatch(value) or _VARIABLES.fullmatch(value))


def _looks_random(value: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdecimal)
    return len(value) >= _RANDOM_LENGTH and all(any(kind(character) for character in value) for kind in kinds)


def _is_secret_in_text(name: str, value: str) -> bool:
    """Return whether `name=value` within a text is a secret; texts hold words such as `key: model.layers.0` and `token: 5`."""
    if not is_secret_name(name) or _is_harmless(value):
        return False
    words, in_brackets = split_words(name), value[:1] in "[<({"
    if any(word in _STRONG_WORDS or word.endswith(_SECRET_ENDINGS[:4]) for word in words):
        return not in_brackets or _has_digit_and_letter(value)
    if in_brackets or _NUMBER.fullmatch(value):
        return False
    if len(words) > 1:
        return True
    has_digit = any(character.isdecimal() for character in value)
    return _looks_random(value) or (words != ["KEY"] and len(value) >= _MIN_WORD and has_digit and "." not in value)


class Redactor:
    """Replaces secrets: those that names and shapes show, and known values wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known` are secrets of the job, as `collect_secrets` returns them."""
        self._known = _compile_known(known)

    def text(self, text: str) -> str:
        """Return a text, for example a log line or a message, without secrets."""
        if self._known:
            text = self._known.sub(REDACTED, text)
        text = self._redact_shapes(text)
        if "://" in text:
            text = _URL_LOGIN.sub(self._redact_url, text)
        lower = text.lower()
        if any(mark in lower for mark in _MARKS):
            text = _HEADER.sub(lambda match: self._redact_match(match, hides=_has_digit_and_letter(match["value"])), text)
            text = _CURL_LOGIN.sub(lambda match: self._redact_match(match, hides=not _is_harmless(match["value"])), text)
            text = _OPTION.sub(self._redact_option, text)
            text = _ASSIGNMENT.sub(self._redact_assignment, text)
        return text

    def value(self, value: Any, name: str = "", *, is_environment: bool = False) -> Any:
        """Return a JSON value without secrets. `name` is the name of its field, or of its variable if `is_environment`."""
        if isinstance(value, dict):
            return self._redact_object(value, is_environment=name in _ENVIRONMENTS and not is_environment)
        if isinstance(value, list | tuple):
            return self._redact_list(value)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return value
        is_named = is_secret_name(name) and (is_environment or name not in _REFERENCES)
        if is_named and not _is_harmless(str(value)) and (isinstance(value, str) or is_environment):
            return self._hide(str(value))
        return self.text(value) if isinstance(value, str) else value

    def _redact_object(self, value: dict[str, Any], *, is_environment: bool) -> dict[str, Any]:
        if value.get("kind") == "Secret":
            hidden = {
                key: {name: self._hide(str(text)) for name, text in (value.get(key) or {}).items()} for key in _SECRET_DATA
            }
            return {key: hidden.get(key, item) for key, item in value.items()}
        variable = value.get("name") if isinstance(value.get("name"), str) else None
        return {
            key: self.value(item, variable, is_environment=True)
            if variable is not None and key == "value"
            else self.value(item, str(key), is_environment=is_environment)
            for key, item in value.items()
        }

    def _redact_list(self, values: Sequence[Any]) -> list[Any]:
        items: list[Any] = []
        for index, item in enumerate(values):
            option = values[index - 1] if index else None
            if isinstance(item, str) and isinstance(option, str) and self._is_argument(option, item):
                items.append(self._hide(item))
            else:
                items.append(self.value(item))
        return items

    def _is_argument(self, option: str, item: str) -> bool:
        """Return whether `item` is the secret of the option before it in an argv."""
        if not option.startswith("-") or "=" in option or " " in option or item.startswith("-") or _is_harmless(item):
            return False
        return is_secret_name(option) or (option in ("-u", "--user", "--proxy-user") and ":" in item)

    def _redact_shapes(self, text: str) -> str:
        if any(mark in text for mark in _AWS_KEYS):
            text = _AWS_SECRET.sub(lambda match: self._hide(match[0]), text)
        for shape in TOKEN_SHAPES:
            if shape.mark in text:
                text = shape.pattern.sub(lambda match: self._hide(match[0]), text)
        return text

    def _redact_url(self, match: re.Match[str]) -> str:
        if match[3]:
            return self._hide(match[3])
        return match[0] if _is_harmless(match[2]) else f"{match[1]}:{self._hide(match[2])}"

    def _redact_option(self, match: re.Match[str]) -> str:
        value = match["value"].strip("\\\"'")
        return self._redact_match(match, hides=is_secret_name(match["name"]) and not _is_harmless(value))

    def _redact_assignment(self, match: re.Match[str]) -> str:
        return self._redact_match(match, hides=_is_secret_in_text(match["name"], match["value"].strip("\\\"'")))

    def _redact_match(self, match: re.Match[str], *, hides: bool) -> str:
        if not hides:
            return match[0]
        value = match["value"]
        secret = value.strip("\\\"'")
        before, _, after = value.partition(secret)
        return match[1] + before + self._hide(secret) + after

    def _hide(self, secret: str) -> str:
        """Return the text that replaces a secret; an empty value stays empty."""
        return REDACTED if secret else ""


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


def _has_digit_and_letter(value: str) -> bool:
    return any(character.isdecimal() for character in value) and any(character.isalpha() for character in value)


def _compile_known(known: Iterable[str]) -> re.Pattern[str] | None:
    texts = {text for secret in known for text in _list_forms(secret)}
    patterns = [_compile_form(text) for text in sorted(texts, key=lambda text: (-len(text), text))]
    return re.compile("|".join(patterns)) if patterns else None


def _list_forms(secret: str) -> Iterator[str]:
    """Yield a secret as it may stand in a text: itself, its lines, encoded for a URL, escaped in JSON."""
    if len(secret) < MIN_VALUE or _PLAIN.fullmatch(secret) or (secret.isdecimal() and len(secret) < _MIN_WORD):
        return
    yield from (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
    lines = secret.splitlines()
    yield from (line.strip() for line in lines if len(lines) > 1 and len(line.strip()) >= _RANDOM_LENGTH)


def _compile_form(text: str) -> str:
    escaped = re.escape(text)
    return rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])" if len(text) < _SHORT else escaped
