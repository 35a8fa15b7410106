"""The shapes of tokens and keys that well-known issuers publish. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

PRIVATE_KEY = "a private key"


class TokenShape(NamedTuple):
    """How a kind of token looks."""

    kind: str
    """What messages call it, with an article."""
    mark: str
    """Text that every token of the shape contains: a text without it is not searched."""
    pattern: str
    """Regular expression, which needs linear time for every text (tests/unit/test_patterns.py)."""


TOKEN_SHAPES = (
    TokenShape("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{34,}"),
    TokenShape("a Hugging Face token", "hf_oauth_", r"\bhf_oauth_[\w.-]{30,}"),
    TokenShape("a Hugging Face token", "api_org_", r"\bapi_org_[A-Za-z0-9]{34,}"),
    TokenShape("a Weights & Biases key", "wandb_v1_", r"\bwandb_v1_\w{30,}"),
    TokenShape("an AWS access key", "AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
    TokenShape("an AWS access key", "ASIA", r"\bASIA[0-9A-Z]{16}\b"),
    TokenShape("a Google key", "AIza", r"\bAIza[\w-]{35,}"),
    TokenShape("a Google token", "ya29.", r"\bya29\.[\w-]{30,}"),
    TokenShape("a Google client secret", "GOCSPX-", r"\bGOCSPX-[\w-]{24,}"),
    TokenShape("a GitHub token", "gh", r"\bgh[pousr]_[A-Za-z0-9]{36,}"),
    TokenShape("a GitHub token", "github_pat_", r"\bgithub_pat_\w{50,}"),
    TokenShape("a GitLab token", "gl", r"\bgl(?:pat|dt|rt|cbt|ptt)-[\w-]{20,}"),
    TokenShape("an API key", "sk-", r"\bsk-(?:(?:proj|svcacct|admin|ant|or|lf)-[\w-]{20,}|[A-Za-z0-9]{32,})"),
    TokenShape("an NVIDIA key", "nvapi-", r"\bnvapi-[\w-]{20,}"),
    TokenShape("a Groq key", "gsk_", r"\bgsk_[A-Za-z0-9]{40,}"),
    TokenShape("a Replicate key", "r8_", r"\br8_[A-Za-z0-9]{37,}"),
    TokenShape("a payment key", "k_", r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    TokenShape("a Slack token", "xox", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    TokenShape("a Slack token", "xapp-", r"\bxapp-\d-[A-Za-z0-9-]{20,}"),
    TokenShape("a webhook", "hooks.slack.com", r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]+"),
    TokenShape("a webhook", "/api/webhooks/", r"\bdiscord(?:app)?\.com/api/webhooks/\d+/[\w-]+"),
    TokenShape("a PyPI token", "pypi-", r"\bpypi-[\w-]{50,}"),
    TokenShape("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    TokenShape("a Docker Hub token", "dckr_pat_", r"\bdckr_pat_[\w-]{20,}"),
    TokenShape("a SendGrid key", "SG.", r"\bSG\.[\w-]{16,32}\.[\w-]{32,}"),
    TokenShape("a Vault token", "hvs.", r"\bhvs\.[\w-]{24,}"),
    TokenShape("a DigitalOcean token", "_v1_", r"\bdo[opr]_v1_[0-9a-f]{64,}"),
    TokenShape("a Databricks token", "dapi", r"\bdapi[0-9a-f]{32,}"),
    TokenShape("a JSON web token", ".eyJ", r"\beyJ[\w-]{10,500}\.eyJ[\w-]{10,}(?:\.[\w-]*)?"),
    TokenShape(
        PRIVATE_KEY,
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?>(?:[^-]|-(?!----(?:BEGIN|END) ))*)"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
)
"""Every shape, one row each."""


def find_tokens(text: str) -> Iterator[tuple[TokenShape, re.Match[str]]]:
    """Yield the tokens in a text with their shapes, shape by shape."""
    for shape in TOKEN_SHAPES:
        if shape.mark in text:
            for match in _compile(shape.pattern).finditer(text):
                yield shape, match


def find_token(text: str) -> str | None:
    """Return the first part of a text that has the shape of a token or key."""
    return next((match[0] for _, match in find_tokens(text)), None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
