"""Recognise the names of secrets: variables, options, fields and headers. Pure.

Two functions judge a name alone: `is_secret_name` that of a variable, an option or a field, and `rate_name` a word in a text,
where it says how sure that is. Whether the value of such a name is a secret, `values` decides. The others describe a name that
one of these has accepted: whether people choose its value, or whether it may be the kind of an object instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from kfjob.redaction import languages


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


def split_names(text: str) -> frozenset[str]:
    """Return the words of a table."""
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


_BEFORE_KEY = split_names(
    "PUBLIC PRIMARY FOREIGN SORT CACHE PARTITION TOPOLOGY KMS SHARD GROUP LOOKUP HOT JSON MAP DICT CONFIG INDEX"
)
_BEFORE_TOKEN = split_names(
    "EOS BOS PAD UNK SEP CLS MASK SPECIAL IMAGE VIDEO AUDIO START END STOP FIRST LAST NEXT PER BY NUM MAX MIN"
)
_BEFORE_PASS = split_names(
    "FORWARD BACKWARD FIRST SECOND LAST NEXT TWO ONE SINGLE MULTI NUM FUSION COMPILER OPTIMIZER LOWERING GRAPH TEST"
)
_BEFORE_SIGNATURE = split_names("MODEL FN FUNC FUNCTION KERNEL CALL METHOD FORWARD INPUT OUTPUT TYPE SERVING GRAPH")
_PULL = frozenset({"PULL"})
_WEAK_CHOSEN = "PWD PW CREDENTIAL CREDENTIALS CRED CREDS AUTH PSK"
_GLUED = (
    "DBPASS USERPASS PGPASS ROOTPASS ADMINPASS MYSQLPASS MYPASS APPPASS SMTPPASS FTPPASS MAILPASS REDISPASS SSHPASS "
    "DBPWD MYPWD USERPWD ROOTPWD ADMINPWD PGPWD MYSQLPWD SMTPPWD PSWD PASSWRD PASSWOR PASWORD PASSWROD PASWD"
)
"""Words that people write together, or misspell."""
_WEAK_MADE = "ACCESSKEY SECRETKEY PRIVATEKEY WEBHOOKS DSN SAS JWT BEARER"
_WORDS: Mapping[str, _Word] = MappingProxyType(
    {word: _Word(Strength.WEAK, is_chosen=True) for word in _WEAK_CHOSEN.split()}
    | {word: _Word(Strength.STRONG, is_chosen=True) for word in _GLUED.split()}
    | {word: _Word(Strength.WEAK) for word in _WEAK_MADE.split()}
    | {
        "PASS": _Word(Strength.WEAK, is_chosen=True, harmless_before=_BEFORE_PASS),
        "SIGNATURE": _Word(Strength.WEAK, harmless_before=_BEFORE_SIGNATURE),
        "SIG": _Word(Strength.WEAK, harmless_before=_BEFORE_SIGNATURE),
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
_QUALIFIERS = split_names(
    "API ACCESS SECRET PRIVATE AUTH AUTHENTICATION HF HUB HUGGINGFACE WANDB BEARER REFRESH CLIENT SIGNING ENCRYPTION SESSION "
    "SECURITY AWS GITHUB GITLAB OPENAI ANTHROPIC SLACK ACCOUNT SHARED SERVICE ADMIN USER LOGIN ID"
)
"""Words before `keys`, `tokens` and before ` key` that leave no other meaning."""
_ACCESS = split_names(
    "API APP ACCESS SECRET PRIVATE AUTH AUTHN AUTHENTICATION OAUTH OIDC SSO SAML BEARER REFRESH SIGNING ENCRYPTION "
    "DECRYPTION CIPHER CRYPTO SECURITY SSH SSL TLS GPG PGP RSA HMAC AES FERNET JWT CSRF XSRF WEBHOOK INGEST INGESTION "
    "DEPLOY LICENSE HF HUB HUGGINGFACE HUGGING WANDB NEPTUNE COMET MLFLOW CLEARML OPENAI ANTHROPIC CLAUDE COHERE MISTRAL "
    "GEMINI GROQ DEEPSEEK OPENROUTER TOGETHER REPLICATE PERPLEXITY XAI NVIDIA NGC AWS S3 GCP GCS GOOGLE AZURE MINIO "
    "DIGITALOCEAN CLOUDFLARE LINODE GITHUB GH GITLAB GIT BITBUCKET JIRA NPM PYPI DOCKER DOCKERHUB REGISTRY ARTIFACTORY "
    "KAGGLE DATADOG SENTRY GRAFANA SLACK DISCORD TELEGRAM TWILIO SENDGRID MAILGUN STRIPE SHOPIFY DATABRICKS SNOWFLAKE "
    "VAULT CONSUL KUBE KUBECONFIG CLUSTER JUPYTER NOTEBOOK ELASTIC PINECONE WEAVIATE QDRANT TAVILY SERPAPI LANGCHAIN "
    "LANGSMITH MODAL RUNPOD VAST"
)
"""Words anywhere before `key` and `token` that say what they give access to."""
_ACCESS_KEY = split_names("ACCOUNT SERVICE CLIENT SESSION MASTER SHARED ADMIN BOT ROOT STORAGE SERVER SUBSCRIPTION HOST")
_ACCESS_TOKEN = _ACCESS_KEY | split_names("ID USER LOGIN PERSONAL PAT READ WRITE PUSH DEBUG TRACKING IDENTITY WEB")
"""Words directly before `key` or `token` that do so; a `user_key` is a column."""
_COLUMNS = split_names(
    "LABEL IMAGE TEXT CAPTION AUDIO VIDEO INPUT OUTPUT PROMPT RESPONSE QUESTION ANSWER CONTENT MESSAGE CHAT METRIC LOSS SCORE "
    "MODEL DATASET DATA STATE OPTIM OPTIMIZER STORE SEPARATOR TARGET SOURCE FEATURE SAMPLE BATCH INSTRUCTION IGNORE REWARD"
)
"""Words before `key` and `token` in variables of data and models."""
_SUFFIXES = split_names("DATA B64 BASE64 PEM JSON STRING TEXT PLAIN OLD NEW PROD DEV STAGING TEST URL URI VALUE HEADER BASE")
"""Words after a secret word that leave the value a secret."""
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "KEY_VALUE", "NO_AUTH", "SSH_AUTH_SOCK", "HUB_TOKEN_SECRET"})
_MAX_NAME = 80
"""Characters at the end of a name that decide whether it names a secret."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[A-Za-z0-9]+")
MARKS = tuple(sorted(word.lower() for word in _WORDS))
"""Every name of a secret contains one of these, in some case."""


_TOPICS = split_names(
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
    name = languages.translate(name)
    words = split_words(name)
    if words and "_".join(words) in _HARMLESS_NAMES:
        return False
    if _rate_words(_list_segments(name)) >= Strength.STRONG or _rate_variable(name, words) > Strength.ORDINARY:
        return True
    return _rate_words(words) > Strength.ORDINARY and not is_plural(name) and not is_ambiguous(name)


def is_ambiguous(name: str) -> bool:
    """Return whether the name is a compound of `key` or `token` that nothing relates to access, such as `image_key`.

    Most of them are columns, fields and marks in texts, so only a value that looks like a token is a secret. In capitals it is
    the name of a variable, which holds a secret unless another word of it is one of data and models.
    """
    words = _strip_suffixes(split_words(name))
    return _is_ambiguous(words) and not (name.isupper() and _COLUMNS.isdisjoint(words))


def _is_ambiguous(words: list[str]) -> bool:
    if len(words) < 2 or words[-1] not in {"KEY", "KEYS", "TOKEN", "TOKENS"}:  # noqa: PLR2004 - a compound
        return False
    adjacent = _ACCESS_KEY if words[-1].startswith("KEY") else _ACCESS_TOKEN
    return words[-2] not in adjacent and _ACCESS.isdisjoint(words[:-1]) and not any(map(_is_strong, words))


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
    is_phrase = rate_name(name) and qualifier.upper() in _QUALIFIERS and not is_ambiguous(name)
    return Strength.NAMED if is_phrase else Strength.ORDINARY


def is_credentials(name: str) -> bool:
    """Return whether an object of this name holds secrets only."""
    return split_words(name)[-1:] in (["CREDENTIALS"], ["CREDENTIAL"], ["CREDS"], ["AUTH"])


def is_chosen(name: str) -> bool:
    """Return whether people choose the value of this name: `password`, and not `api_key` or `webhook`."""
    rows = [_find_row(words[-1]) for words in map(_strip_suffixes, (split_words(name), _list_segments(name))) if words]
    return any(row is not None and row.is_chosen for row in rows)


def is_kind(name: str) -> bool:
    """Return whether the name may be a kind of object: `secret "x"` names one of Kubernetes, and `key "x"` a field."""
    return _has_last_word(name, "SECRET SECRETS KEY KEYS WEBHOOK WEBHOOKS") and not is_qualified(name)


def is_webhook(name: str) -> bool:
    """Return whether the value is a URL, and not the name of an admission webhook."""
    return _has_last_word(name, "WEBHOOK WEBHOOKS")


def is_made(name: str) -> bool:
    """Return whether the name is a noun with hardly another meaning, such as `token`, instead of `pass` or `key`."""
    return _has_last_word(name, "TOKEN SECRET JWT CREDENTIAL CREDENTIALS")


def is_qualified(name: str) -> bool:
    """Return whether another word of the name leaves no other meaning: `api_key`."""
    return _is_qualified(split_words(name))


def _has_last_word(name: str, words: str) -> bool:
    return not split_names(words).isdisjoint(_strip_suffixes(split_words(name))[-1:])


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
    return Strength.NAMED if len(words) > 1 and not row.is_plural and not _is_ambiguous(words) else Strength.WEAK


def _rate_variable(name: str, words: list[str]) -> Strength:
    """Return how much a variable tells whose name goes on after the word of a secret, such as `PASSWORD_DB`."""
    if not name.isupper() or not _TOPICS.isdisjoint(words):
        return Strength.ORDINARY
    if _is_ambiguous(words) and not is_ambiguous(name) and words[-2] not in _WORDS[words[-1]].harmless_before:
        return Strength.ORDINARY if is_plural(name) else Strength.NAMED
    for index, word in enumerate(words[:-1]):
        if _is_strong(word):
            return Strength.NAMED
        before = words[index - 1] if index else ""
        is_made = (
            word == "SECRET"
            or (word == "TOKEN" and not _is_ambiguous(words[: index + 1]))
            or (word == "KEY" and before in _QUALIFIERS)
        )
        if is_made and before not in _WORDS[word].harmless_before:
            return Strength.WEAK
    return Strength.ORDINARY


def _is_strong(word: str) -> bool:
    """Return whether a word has one meaning, wherever it stands in a name."""
    row = _find_row(word)
    return row is not None and (row.strength is Strength.STRONG or (row.strength is Strength.LINE and row.is_ending))


def _is_qualified(words: list[str]) -> bool:
    return any(word in _QUALIFIERS for word in words[:-1])
