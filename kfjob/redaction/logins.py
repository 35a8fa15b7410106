"""Find the passwords of logins: in URLs, on command lines, in HTTP headers, and in the files of netrc and pgpass. Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator

from kfjob.redaction.values import cut_value, has_digit_and_letter, is_harmless, is_hex, is_number, looks_chosen, looks_dense

Span = tuple[int, int]
_URL = re.compile(r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z0-9+.-]*+)://")
_FIRST_PRINTABLE = 0x20
_SPACELESS = re.compile(r"\S*+")
_USER = re.compile(r"[^\s/@:?#\[\]]*+:")
_PORT = re.compile(r"\d{1,5}(?:[/?#]|$)")
_WEB = re.compile(r"(?:https?|wss?|git|ssh|s3|gs|tcp|docker|oci|file|grpc|rpc|c10d|env)\Z", re.IGNORECASE)
"""Schemes whose hosts have paths with `@`: a number after the host is a port."""
_LONE_TOKEN = re.compile(r"[^\s/@:\"'<>]{12,}+(?=@)")
_MAX_USER = 15
"""Characters of a name before the host of a URL that may be one of a user, unless it looks like a token."""
_DRIVER_LOGIN = re.compile(r"(?<![^\s\"'=])[^\s:@/\"'=]++:(?P<value>\S++)")
_DRIVER = re.compile(r"@(?:tcp|unix)\(")
_HEADER = re.compile(r"(?i)\b(?P<scheme>bearer|basic)[ \t]++(?P<value>[A-Za-z0-9._~+/=-]{8,}+)")
_CURL_LOGIN = re.compile(
    r"(?:^|(?<=[\s\"']))(?:-u|--user|--proxy-user)(?:[ \t]++|=|[\"'],[ \t]*+)?(?P<quote>[\"']?)[^\s:\"'=]{1,256}:(?P<value>\S)"
)
_COMMAND = re.compile(
    r"\b(?:(?P<account>srun|sbatch|salloc|squeue|scancel|sacct|sudo|su|chown|install|rsync|screen"
    r"|(?:docker|podman|nerdctl)[ \t]+(?:run|exec|create))"
    r"|curl|wget|http|https|login)\b|[\n;|&]"
)
_COMMAND_LENGTH = 200
"""Characters before `-u` in which a command stands whose `-u` takes an account and a group."""
_SCRIPT = re.compile(r"[^\s:\"']{1,256}+(?<=\.py|\.sh):")
"""A file and a part of it: `python -u train.py:5` has no login."""
_COMMAND_OR_OPTION = re.compile(
    r"(?i:\b(?P<command>(?:docker|podman|nerdctl|buildah|skopeo|helm|crane|oras)[\"',\s]{1,8}+(?:registry\s)?login|login|sshpass|mysql\w*+|mariadb\w*+|mongo\w*+|htpasswd|kinit|redis-cli)\b)|\n|&&|[;|]|\b(?:mkdir|ssh|scp|rsync|cp|tar)\b"
    r"|(?<=[\s\"'])-[pa](?:(?P<gap>=|[ \t]++|[\"'],[ \t]*+)|(?=[^\s`,;)-]))(?P<quote>[\"']?)(?P<value>\S)"
)
_ATTACHED = re.compile(r"(?i)sshpass|mysql|mariadb|docker|podman|nerdctl|buildah|skopeo|helm|crane|oras")
_IDENTIFIED = re.compile(
    r"(?i)\bidentified[ \t]+(?:with[ \t]+\S+[ \t]+)?(?:by|as)[ \t]+(?:password[ \t]+)?(?P<quote>[\"'])(?P<value>[^\"'\n])"
)
"""A statement of SQL."""
_NETRC = re.compile(
    r"(?i)\b(?:login|machine)\s++(?P<user>\S++)\s++(?:account\s++\S++\s++)?password\s++(?P<value>\S++)"
    r"|\bpassword[ \t]++(?P<first>\S++)\s++login\s"
)
_NETRC_LINE = re.compile(r"(?im)^[ \t]*+password[ \t]++(?P<value>\S++)[ \t]*+$")
_PGPASS = re.compile(
    r"(?m)^(?![^:\n]*+[\s/\"'])(?P<host>[^\s:/]++):(?P<port>\*|\d{4}):(?:\*|[^\s:]*?[A-Za-z_][^\s:]*+):[^\s:]++:(?P<value>\S++)$"
)
_DATABASE_HOST = re.compile(r"\*|localhost|.*\..*|.*(?:db|pg|postgres|sql|database|data).*", re.IGNORECASE)
_DATABASE_PORT = re.compile(r"\*|[56]43\d")
_BASIC_AUTH = re.compile(
    r"BasicAuth\([ \t]{0,8}(?:\w{1,20}=)?[\"'][^\"'\n]{0,100}+[\"'][ \t]{0,8},[ \t]{0,8}(?:\w{1,20}=)?"
    r"(?P<quote>[\"'])(?P<value>[^\"'\n])"
)
"""A login in Python."""
_LOGIN_CALL = re.compile(
    r"\blogin\([ \t]{0,8}(?:\w{1,20}=)?(?P<quote>[\"'])"
    r"(?P<value>(?=[^\"'\n]{8})(?=[^\"'\n\d]{0,80}\d)(?=[^\"'\nA-Za-z]{0,80}[A-Za-z])[^\"'\n])"
)
"""A login in Python with a token alone: `wandb.login(key="x")`."""
_QUERY = re.compile(r"(?i)[?&](?:key|code|auth|sig|pat|pass|api)=(?P<value>[\w.~+/%-]{12,}+)")
_HEX_KEY = re.compile(r"(?<![\w/+.-])[0-9a-f]{40}(?![\w/-])")
_NAMED_KEY = re.compile(r"(?i)\bwandb\b")
_NAMES_OF_HEX_KEY = re.compile(r"(?i)\b(?:login|key|netrc)\b")
_HEX_KEY_LINE = 200
"""Characters before a key of Weights & Biases that name it."""
_HOST_LOGIN = re.compile(
    r"(?<![\w/.:@+%-])[\w.+-]{1,64}+:(?P<value>[^\s:@/\"'`]{6,200}+)@[A-Za-z][\w.-]{0,200}+:\d{2,5}(?![\w.])"
)
"""`user:password@host:port` without a scheme."""
_WORD_END = {quote: re.compile(rf"(?>(?:[^{quote or ' '}\\\n]++|\\[^\n])*)") for quote in ("", "'", '"')}
MARKS = (
    *("wandb", "?code=", "&code=", "?auth=", "&auth=", "?pat=", "&pat=", "?api=", "&api=", "?key=", "&key="),
    *("?sig=", "&sig=", "?pass=", "&pass="),
    *("bearer", "basic", "-u", "--user", "--proxy-user", "login", "password"),
    *("sshpass", "mysql", "mariadb", "mongo", "htpasswd", "kinit", "redis-cli", "identified"),
)
"""A text without any of these has no login except in a URL or in a line of pgpass."""


def find_url_logins(text: str, *, is_cut: bool = False) -> Iterator[Span]:
    """Yield the passwords and tokens before the host of URLs. A text that `is_cut` may end before the `@`."""
    word_end = last_at = read = 0
    for url in _URL.finditer(text):
        start = url.end()
        if start < read:
            continue
        if start >= word_end:
            word_end = _find_word_end(text, start)
            last_at = text.rfind("@", start, word_end)
        end = _find_login_end(text, url.start(), start, word_end, last_at)
        if end < start and is_cut and word_end == len(text):
            end = word_end
        span = _find_password(text, url["scheme"], start, end)
        if span and not is_harmless(cut_value(text, span)):
            yield span
            read = span[1]
    if "@tcp(" in text or "@unix(" in text:
        for match in _DRIVER_LOGIN.finditer(text):
            if driver := _DRIVER.search(text, match.start("value"), match.end()):
                yield match.start("value"), driver.start()


def _find_word_end(text: str, start: int) -> int:
    word = _SPACELESS.match(text, start)
    return word.end() if word else start


def _find_login_end(text: str, url_start: int, start: int, word_end: int, last_at: int) -> int:
    """Return the position of the `@` before the host: the last one, within the quotes of the URL if they enclose one."""
    quote = text[url_start - 1] if url_start and text[url_start - 1] in "\"'`" else ""
    if quote and (closing := text.find(quote, start, word_end)) > 0 and (inner := text.rfind("@", start, closing)) > 0:
        return inner
    return last_at


def _find_password(text: str, scheme: str, start: int, end: int) -> Span | None:
    """Return the range of the password, or of a token without user, in the login between `start` and the `@` at `end`."""
    if end <= start or text.startswith("sha256:", end + 1):
        return None
    if user := _USER.match(text, start, end):
        is_port = _PORT.match(text, user.end(), end) and _WEB.match(scheme)
        return (user.end(), end) if user.end() < end and not is_port else None
    token = _LONE_TOKEN.match(text, start)
    return token.span() if token and (len(token[0]) > _MAX_USER or looks_dense(token[0])) else None


def find_url_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords of URLs, without tokens that have no user."""
    return (span for span in find_url_logins(text) if text[span[0] - 1] == ":")


def is_login(text: str, start: int = 0) -> bool:
    """Return whether the value of `-u` has a user and a password, instead of a script and its part."""
    return not _SCRIPT.match(text, start)


def _takes_account(text: str, start: int) -> bool:
    """Return whether `-u` belongs to a command such as `srun` and `docker run`, where `:` separates an account and a group."""
    commands = [match["account"] for match in _COMMAND.finditer(text, max(0, start - _COMMAND_LENGTH), start)]
    return bool(commands and commands[-1])


def _is_login_in_base64(value: str) -> bool:
    """Return whether a text is `user:password` in base64, or the beginning of such a text."""
    letters = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        login = b64decode(letters + "=" * (-len(letters) % 4), validate=True) if len(letters) % 4 != 1 else b""
    except ValueError:
        return False
    return b":" in login and not any(byte < _FIRST_PRINTABLE for byte in login)


def has_login_command(text: str) -> bool:
    """Return whether a command line holds a command that takes a password."""
    return any(match["command"] for match in _COMMAND_OR_OPTION.finditer(text))


def find_logins(text: str) -> Iterator[Span]:
    """Yield the passwords of command lines, netrc and code, and the credentials of headers and queries."""
    yield from _find_headers(text)
    curl = (match for match in _CURL_LOGIN.finditer(text) if is_login(text, match.end("quote")))
    yield from _read_words(text, (match for match in curl if not _takes_account(text, match.start())))
    for pattern in (_IDENTIFIED, _BASIC_AUTH, _LOGIN_CALL):
        yield from _read_words(text, pattern.finditer(text))
    yield from _read_words(text, _find_options(text))
    yield from _find_netrc(text)
    if _NAMED_KEY.search(text):
        yield from _find_hex_keys(text)


def _find_headers(text: str) -> Iterator[Span]:
    """Yield the credentials of HTTP headers, and the keys in the queries of URLs."""
    for match in _HEADER.finditer(text):
        if _is_login_in_base64(match["value"]) if match["scheme"].lower() == "basic" else has_digit_and_letter(match["value"]):
            yield match.span("value")
    for match in _QUERY.finditer(text):
        if looks_dense(match["value"]) or is_hex(match["value"]):
            yield match.span("value")


def _find_netrc(text: str) -> Iterator[Span]:
    for pattern in (_NETRC, _NETRC_LINE):
        for match in pattern.finditer(text):
            group = "value" if match["value"] else "first"
            is_prose = pattern is _NETRC_LINE and match["value"].isalpha()
            if not is_prose and not is_harmless(match[group]):
                yield match.span(group)


def find_host_logins(text: str) -> Iterator[Span]:
    """Yield the passwords of `user:password@host:port`."""
    for match in _HOST_LOGIN.finditer(text):
        if looks_chosen(match["value"]) and not is_number(match["value"]):
            yield match.span("value")


def _find_hex_keys(text: str) -> Iterator[Span]:
    """Yield the keys in lines such as `wandb login KEY`; an id of a commit looks the same."""
    for match in _HEX_KEY.finditer(text):
        before = text[max(0, match.start() - _HEX_KEY_LINE) : match.start()].rpartition("\n")[2]
        if _NAMED_KEY.search(before) and _NAMES_OF_HEX_KEY.search(before) and "commit" not in before:
            yield match.span()


def find_pgpass(text: str) -> Iterator[Span]:
    """Yield the passwords of lines such as `host:5432:database:user:password`."""
    for match in _PGPASS.finditer(text):
        is_database = _DATABASE_HOST.fullmatch(match["host"]) or _DATABASE_PORT.fullmatch(match["port"])
        if is_database and not is_number(match["value"]):
            yield match.span("value")


def _find_options(text: str) -> Iterator[re.Match[str]]:
    """Yield the first `-p` after each command that logs in."""
    command = None
    for match in _COMMAND_OR_OPTION.finditer(text):
        if match["command"]:
            command = match["command"]
        elif not match["value"]:
            command = None  # the line or the command ends
        elif command and (match["gap"] or _ATTACHED.match(command)):
            command = None
            yield match


def _read_words(text: str, matches: Iterable[re.Match[str]]) -> Iterator[Span]:
    """Yield the values that begin at the group `value` of each match, unless an earlier one holds it."""
    read = 0
    for match in matches:
        start = match.start("value")
        if start < read:
            continue
        word = _WORD_END[match["quote"]].match(text, start)
        end = read = word.end() if word else start
        if not match["quote"] and text[end - 1] in "\"'" and text[max(0, match.start() - 1)] in "\"'":
            end -= 1
        if end > start and not is_harmless(cut_value(text, (start, end))):
            yield start, end
