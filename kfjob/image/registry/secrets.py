"""A secret that no message, log or traceback shows by accident, and the logins of registries."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NoReturn

from msgspec import Struct

from kfjob.redaction import remember_credential

REFRESH_TOKEN = "<token>"  # noqa: S105 - the user name by which a credential helper marks one
"""The user name that marks the password as an OAuth2 refresh token (docker-credential-helpers)."""


class Secret:
    """Text that only `reveal` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Keep a text, and redact it from all output: a registry may quote it in an error."""
        self._text = text
        remember_credential(text)

    def reveal(self) -> str:
        """Return the text. Use it only in a header that is about to be sent."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment]  # a key of a dictionary is easily printed

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied or pickled")


class Login(Struct, frozen=True, kw_only=True):
    """A user name and its password or token."""

    user: str
    password: Secret


LoginSource = Callable[[], Login | None]
"""Returns the login. It is called again when a registry refuses the login, so a login that expires during a push is renewed."""


def anonymous() -> None:
    """Return no login: the source for public images."""
