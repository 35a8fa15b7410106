"""A secret that no message, log or traceback can show by accident, and who says it to a registry."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

REFRESH_TOKEN = "<token>"  # noqa: S105 - the user name by which a credential helper marks one
"""What stands for the user's name when the password is an OAuth2 refresh token (docker-credential-helpers)."""


class Secret:
    """Text that is told only to who calls `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself: for a header that is about to be sent, and nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment]  # a key of a dictionary is easily printed

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is neither copied nor written")


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user's name and what proves it."""

    user: str
    password: Secret


LoginSource = Callable[[], Login | None]
"""Asked anew whenever a registry refuses what it was told, so that a login which ends in the middle of a push is renewed."""


def anonymous() -> None:
    """Nobody in particular: public images are pulled so."""
