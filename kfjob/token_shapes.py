"""The shapes of tokens and keys: what they are called, their pattern, and an example. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple


class TokenShape(NamedTuple):
    """How a kind of token looks."""

    kind: str
    """What messages call it, with an article."""

    mark: str
    """Text that every match contains: a text without it is not searched."""

    pattern: re.Pattern[str]
    """Needs linear time for every text (tests/unit/test_patterns.py)."""

    example: str
    """A token of this shape, which no service issued."""


_JWT_LETTER = "[A-Za-z0-9_-]"
TOKEN_SHAPES = (
    TokenShape("a Hugging Face token", "hf_", re.compile(r"\bhf_[A-Za-z0-9]{20,}"), "hf_" + "a1B2" * 9),
    TokenShape("an AWS access key", "AKIA", re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "AKIA" + "IOSFODNN7EXAMPLE"),
    TokenShape("an AWS access key", "ASIA", re.compile(r"\bASIA[0-9A-Z]{16}\b"), "ASIA" + "IOSFODNN7EXAMPLE"),
    TokenShape("a GitHub token", "gh", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}"), "ghp_" + "x9" * 18),
    TokenShape(
        "a GitHub token",
        "github_pat_",
        re.compile(r"\bgithub_pat_[A-Za-z0-9_]{50,}"),
        "github_pat_" + "11ABCDEFG0_" + "a1B2" * 15,
    ),
    TokenShape("an API key", "sk-", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"), "sk-proj-" + "a1B2c3D4e5" * 3),
    TokenShape("an API key", "AIza", re.compile(r"\bAIza[0-9A-Za-z_-]{35}"), "AIza" + "Sy0-_" * 7),
    TokenShape("an API key", "r8_", re.compile(r"\br8_[A-Za-z0-9]{37,}"), "r8_" + "a1B2" * 10),
    TokenShape("an API key", "nvapi-", re.compile(r"\bnvapi-[A-Za-z0-9_-]{20,}"), "nvapi-" + "a1B2-_" * 8),
    TokenShape("a payment key", "k_", re.compile(r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"), "sk_" + "live_" + "a1B2" * 6),
    TokenShape("a Slack token", "xox", re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"), "xoxb-" + "1234567890-abcdef"),
    TokenShape(
        "a Slack token", "xapp-", re.compile(r"\bxapp-\d-[A-Za-z0-9-]{20,}"), "xapp-" + "1-A0123456789-0123456789-" + "ab12" * 8
    ),
    TokenShape(
        "a webhook",
        "hooks.slack.com",
        re.compile(r"\bhttps://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]+"),
        "https://hooks.slack.com/" + "services/T000/B000/XXXX",
    ),
    TokenShape(
        "a webhook",
        "/api/webhooks/",
        re.compile(r"\bhttps://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]+"),
        "https://discord.com/" + "api/webhooks/123456789012345678/a1B2-_c3",
    ),
    TokenShape(
        "a webhook",
        ".webhook.office.com",
        re.compile(r"\bhttps://[\w.-]+\.webhook\.office\.com/[^\s\"'<>]+"),
        "https://example.webhook.office.com/" + "webhookb2/0123-4567@89ab/IncomingWebhook/cdef/0123",
    ),
    TokenShape("a GitLab token", "gl", re.compile(r"\bgl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{20,}"), "glpat-" + "a1B2_" * 4),
    TokenShape(
        "a PyPI or npm token", "pypi-", re.compile(r"\bpypi-[A-Za-z0-9_-]{50,}"), "pypi-" + "AgEIcHlwaS5vcmc" + "a1B2-_" * 9
    ),
    TokenShape("a PyPI or npm token", "npm_", re.compile(r"\bnpm_[A-Za-z0-9]{36}\b"), "npm_" + "a1B2" * 9),
    TokenShape("a Docker Hub token", "dckr_pat_", re.compile(r"\bdckr_pat_[A-Za-z0-9_-]{20,}"), "dckr_pat_" + "a1B2-_" * 5),
    TokenShape(
        "a private key",
        "-----BEGIN",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[^-`]|-(?!----(?:BEGIN|END) ))*+(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        "-----BEGIN RSA " + "PRIVATE KEY-----MIIEpAIBAAKCAQEA-----END RSA PRIVATE KEY-----",
    ),
    TokenShape(  # one match for each run of letters, so that the time stays linear: the run may have words before the token
        "a JSON web token",
        ".eyJ",
        re.compile(
            rf"(?<!{_JWT_LETTER})(?={_JWT_LETTER}*?\beyJ{_JWT_LETTER}{{10}}){_JWT_LETTER}+\.eyJ{_JWT_LETTER}{{10,}}\.?{_JWT_LETTER}*"
        ),
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ),
)
"""Every shape, one row each."""


def find_shape(text: str) -> TokenShape | None:
    """Return the first shape that a part of the text has."""
    return next((shape for shape in TOKEN_SHAPES if shape.mark in text and shape.pattern.search(text)), None)


def find_token(text: str) -> str | None:
    """Return the first part of a text that has the shape of a token or key."""
    shape = find_shape(text)
    match = shape.pattern.search(text) if shape else None
    return match[0] if match else None
