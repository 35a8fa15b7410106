"""Check what a kubeconfig holds and names before the `kubernetes` package uses it: characters of credentials, sizes of files.

The package reads files without a limit, and writes tokens into headers as they are. An invalid header is an exception of
`http.client` that quotes its value. client-go strips the content of a token's file (client-go transport/token_source.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Forbidden
from kfjob.base.parsing import read_document
from kfjob.base.units import MIB
from kfjob.redaction import remember_credential

MAX_CREDENTIAL_BYTES = MIB
"""Size of a file with a token, a certificate or a key that a kubeconfig names; all public authorities have 220 KiB."""
_USER_FILES = ("client-certificate", "client-key")
_CLUSTER_FILES = ("certificate-authority",)


def is_header_text(text: str) -> bool:
    """Return whether a text may be a credential in a header: ASCII without control characters."""
    return text.isascii() and text.isprintable()


def prepare_user(user: dict[str, Any], *, folder: Path, location: str) -> None:
    """Replace `tokenFile` by its token in a user of a kubeconfig, and check the user's credentials.

    Raises:
        Forbidden: a credential has characters that none has.
        OSError, ParseError: the token's file cannot be read, is not a regular file or is too large.
    """
    if (file := user.get("tokenFile")) and not user.get("token"):
        user["token"] = read_document(folder / str(file), max_bytes=MAX_CREDENTIAL_BYTES).decode(errors="replace")
    for name, white_space in (("token", None), ("username", "\r\n"), ("password", "\r\n")):
        if isinstance(text := user.get(name), str):
            user[name] = _check_text(text.strip(white_space), name=name, location=location)


def check_files(user: JsonMapping, cluster: JsonMapping, *, folder: Path) -> None:
    """Check the files of certificates and keys, which are relative to the folder of the cluster's kubeconfig.

    Raises:
        OSError, ParseError: a file cannot be read, is not a regular file or is too large.
    """
    for file in (*_list_files(user, _USER_FILES), *_list_files(cluster, _CLUSTER_FILES)):
        if (folder / file).exists():
            read_document(folder / file, max_bytes=MAX_CREDENTIAL_BYTES)


def make_headers(settings: Mapping[str, Mapping[str, Any]], *, location: str) -> dict[str, str]:
    """Return the headers of the `auth_settings` of a configuration, without white space around their credentials.

    Raises:
        Forbidden: a credential has characters that none has.
    """
    headers: dict[str, str] = {}
    for setting in settings.values():
        if setting["in"] == "header" and setting["value"]:
            scheme, separator, credential = str(setting["value"]).strip().partition(" ")
            text = _check_text(f"{scheme}{separator}{credential.strip()}", name="token", location=location)
            headers[str(setting["key"])] = text
    return headers


def _check_text(text: str, *, name: str, location: str) -> str:
    if not is_header_text(text):
        remember_credential(text)
        raise Forbidden(
            "the credentials of the kubeconfig cannot be used",
            location=location,
            cause=f"its {name} has characters that no {name} has",
            hint=f"write the {name} on one line, in ASCII",
        )
    return text


def _list_files(section: JsonMapping, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that the package reads; it prefers data."""
    for name in names:
        if (file := section.get(name)) and f"{name}-data" not in section:
            yield str(file)
