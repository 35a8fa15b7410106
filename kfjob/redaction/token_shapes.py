"""The shapes of tokens and keys: what they are called, their patterns, and an example. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_MAX_CUT = 300
"""Characters of a token's body at the end of a text that was cut: a longer one has its whole shape."""


class TokenShape(NamedTuple):
    """How a kind of token looks: `define_shape` derives the patterns from its prefix and its body."""

    kind: str
    """What messages call it, with an article."""

    mark: str
    """Text that every match of `pattern` and `loose` contains: a text without it is not searched."""

    example: str
    """A token of this shape, which no service issued."""

    pattern: re.Pattern[str]
    """Finds whole tokens as words. Needs linear time for every text (tests/unit/test_patterns.py)."""

    loose: re.Pattern[str]
    """Matches whole tokens also within a word, for places where something invisible stood."""

    cut: str
    """Source of the pattern for the prefix and a part of the body, which ends a text that was cut."""


def define_shape(
    kind: str,
    mark: str,
    example: str,
    *,
    prefix: str,
    body: str,
    minimum: int,
    is_exact: bool = False,
    condition: str = "",
    suffix: str = "",
    search: str = "",
) -> TokenShape:
    """Return the shape of tokens that have `minimum` characters of `body`, or exactly that number, after `prefix`.

    `prefix` and `body` are regular expressions. `condition` looks ahead from the body, `suffix` may follow it, and `search`
    replaces the pattern for whole tokens.
    """
    edge = r"\b" if prefix[0] != "-" else ""
    count = f"{{{minimum}}}" if is_exact else f"{{{minimum},}}"
    whole = f"{prefix}{condition}(?>{body}{count}){suffix}"
    return TokenShape(
        kind,
        mark,
        example,
        re.compile(search or f"{edge}{whole}{edge if is_exact else ''}"),
        re.compile(whole),
        f"{prefix}(?>{body}{{1,{minimum if is_exact else _MAX_CUT}}})",
    )


_LETTER = "[A-Za-z0-9]"
_URL_LETTER = "[A-Za-z0-9_-]"
_HAS_CAPITAL = r"(?=[a-z0-9]{0,30}[A-Z]|[a-z]{34})"
"""A capital, or letters only: `hf_` with small letters and digits is a name."""
_HAS_RUN = r"(?=(?:[A-Za-z_-]{0,30}\d){2})(?=[\w-]{0,40}[A-Za-z0-9]{14})"
"""Letters and digits without a dash, and two digits: `sk-learn-random-forest-v2` is a name."""
_KEY_TITLE = "[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
AWS_KEY = "an AWS access key"
TOKEN_SHAPES = (
    define_shape(
        "a Hugging Face token", "hf_", "hf_" + "a1B2" * 9, prefix="hf_", body=_LETTER, minimum=34, condition=_HAS_CAPITAL
    ),
    define_shape(AWS_KEY, "AKIA", "AKIA" + "IOSFODNN7EXAMPLE", prefix="AKIA", body="[0-9A-Z]", minimum=16, is_exact=True),
    define_shape(AWS_KEY, "ASIA", "ASIA" + "IOSFODNN7EXAMPLE", prefix="ASIA", body="[0-9A-Z]", minimum=16, is_exact=True),
    define_shape("a GitHub token", "gh", "ghp_" + "x9" * 18, prefix="gh[pousr]_", body=_LETTER, minimum=36),
    define_shape(
        "a GitHub token",
        "github_pat_",
        "github_pat_" + "11ABCDEFG0_" + "a1B2" * 15,
        prefix="github_pat_",
        body="[A-Za-z0-9_]",
        minimum=50,
    ),
    define_shape(
        "an API key", "sk-", "sk-proj-" + "a1B2c3D4e5" * 3, prefix="sk-", body=_URL_LETTER, minimum=20, condition=_HAS_RUN
    ),
    define_shape("an API key", "AIza", "AIza" + "Sy0-_" * 7, prefix="AIza", body=_URL_LETTER, minimum=35),
    define_shape("an API key", "r8_", "r8_" + "a1B2" * 10, prefix="r8_", body=_LETTER, minimum=37),
    define_shape("an API key", "nvapi-", "nvapi-" + "a1B2-_" * 8, prefix="nvapi-", body=_URL_LETTER, minimum=20),
    define_shape("a payment key", "k_", "sk_" + "live_" + "a1B2" * 6, prefix="[sr]k_(?:live|test)_", body=_LETTER, minimum=16),
    define_shape("a Slack token", "xox", "xoxb-" + "1234567890-abcdef", prefix="xox[abeprs]-", body="[A-Za-z0-9-]", minimum=10),
    define_shape(
        "a Slack token",
        "xapp-",
        "xapp-" + "1-A0123456789-0123456789-" + "ab12" * 8,
        prefix=r"xapp-\d-",
        body="[A-Za-z0-9-]",
        minimum=20,
    ),
    define_shape(
        "a webhook",
        "hooks.slack.com",
        "https://hooks.slack.com/" + "services/T000/B000/XXXX",
        prefix=r"https://hooks\.slack\.com/(?:services|workflows|triggers)/",
        body="[A-Za-z0-9/_-]",
        minimum=1,
    ),
    define_shape(
        "a webhook",
        "/api/webhooks/",
        "https://discord.com/" + "api/webhooks/123456789012345678/a1B2-_c3",
        prefix=r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/",
        body=r"[\w-]",
        minimum=1,
    ),
    define_shape(
        "a webhook",
        ".webhook.office.com",
        "https://example.webhook.office.com/" + "webhookb2/0123-4567@89ab/IncomingWebhook/cdef/0123",
        prefix=r"https://[\w.-]+\.webhook\.office\.com/",
        body=r"[^\s\"'<>]",
        minimum=1,
    ),
    define_shape(
        "a GitLab token", "gl", "glpat-" + "a1B2_" * 4, prefix="gl(?:pat|dt|rt|cbt|ptt)-", body=_URL_LETTER, minimum=20
    ),
    define_shape(
        "a PyPI or npm token", "pypi-", "pypi-" + "AgEIcHlwaS5vcmc" + "a1B2-_" * 9, prefix="pypi-", body=_URL_LETTER, minimum=50
    ),
    define_shape("a PyPI or npm token", "npm_", "npm_" + "a1B2" * 9, prefix="npm_", body=_LETTER, minimum=36, is_exact=True),
    define_shape(
        "a Docker Hub token", "dckr_pat_", "dckr_pat_" + "a1B2-_" * 5, prefix="dckr_pat_", body=_URL_LETTER, minimum=20
    ),
    define_shape("a Groq key", "gsk_", "gsk_" + "a1B2" * 13, prefix="gsk_", body=_LETTER, minimum=40),
    define_shape("an xAI key", "xai-", "xai-" + "a1B2" * 20, prefix="xai-", body=_LETTER, minimum=40),
    define_shape("a Perplexity key", "pplx-", "pplx-" + "a1B2" * 12, prefix="pplx-", body=_LETTER, minimum=40),
    define_shape(
        "a Hugging Face token", "hf_oauth_", "hf_oauth_" + "a1B2" * 9, prefix="hf_oauth_", body="[A-Za-z0-9_.-]", minimum=30
    ),
    define_shape("a Hugging Face token", "api_org_", "api_org_" + "a1B2" * 9, prefix="api_org_", body=_LETTER, minimum=34),
    define_shape(
        "a Weights & Biases key", "wandb_v1_", "wandb_v1_" + "a1B2" * 9, prefix="wandb_v1_", body="[A-Za-z0-9_]", minimum=30
    ),
    define_shape("a Google token", "ya29.", "ya29." + "a1B2-_" * 8, prefix=r"ya29\.", body=_URL_LETTER, minimum=30),
    define_shape(
        "a Google client secret", "GOCSPX-", "GOCSPX-" + "a1B2-_c" * 4, prefix="GOCSPX-", body=_URL_LETTER, minimum=24
    ),
    define_shape(
        "a SendGrid key",
        "SG.",
        "SG." + "a1B2c3D4e5F" * 2 + "." + "a1B2" * 11,
        prefix=rf"SG\.{_URL_LETTER}{{16,32}}\.",
        body=_URL_LETTER,
        minimum=32,
    ),
    define_shape("a Vault token", "hvs.", "hvs." + "a1B2" * 7, prefix=r"hvs\.", body=_URL_LETTER, minimum=24),
    define_shape("a DigitalOcean token", "_v1_", "dop_v1_" + "a1b2" * 16, prefix="do[opr]_v1_", body="[0-9a-f]", minimum=64),
    define_shape("a Shopify token", "shpat_", "shpat_" + "a1b2" * 8, prefix="shpat_", body="[0-9A-Fa-f]", minimum=32),
    define_shape("a Databricks token", "dapi", "dapi" + "a1b2" * 8, prefix="dapi", body="[0-9a-f]", minimum=32),
    define_shape(
        "a Tailscale key",
        "tskey-",
        "tskey-auth-" + "kAbC12CNTRL-" + "a1B2" * 7,
        prefix="tskey-[a-z]{2,12}-",
        body=_URL_LETTER,
        minimum=20,
        condition=r"(?=[A-Za-z_-]{0,40}\d)",
    ),
    define_shape("a RubyGems key", "rubygems_", "rubygems_" + "a1b2" * 12, prefix="rubygems_", body="[0-9a-f]", minimum=48),
    define_shape(
        "an age key",
        "AGE-SECRET-KEY-1",
        "AGE-SECRET-" + "KEY-1" + "QPZRY9X8GF2T" * 5,
        prefix="AGE-SECRET-KEY-1",
        body="[A-Z0-9]",
        minimum=50,
    ),
    define_shape(
        "an encrypted JSON web token",
        "eyJ",
        "eyJhbGciOiJSU0EtT0FFUCJ9" + ".OKOawDo13gRp2ojaHV7LF.48V1_ALb6US04U3b.5eym8TW_c8SuK0ltJ3rpYI.XFBoMYUZodetZdvTiFvSkQ",
        prefix="eyJ",
        body="[A-Za-z0-9_.-]",
        minimum=40,
        condition=rf"(?={_URL_LETTER}{{10,300}}+\.{_URL_LETTER}{{0,700}}+\.{_URL_LETTER}{{10,60}}+\.{_URL_LETTER}{{10}})",
    ),
    define_shape(
        "a private key",
        "-----BEGIN",
        "-----BEGIN RSA " + "PRIVATE KEY-----MIIEpAIBAAKCAQEA-----END RSA PRIVATE KEY-----",
        prefix=f"-----BEGIN {_KEY_TITLE}",
        body="(?:[^-`]++|-(?!----(?:BEGIN|END) ))",
        minimum=0,
        suffix=f"(?:-----END {_KEY_TITLE})?",
    ),
    define_shape(
        "a JSON web token",
        ".eyJ",
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        prefix="eyJ",
        body="[A-Za-z0-9_.-]",
        minimum=25,
        condition=rf"(?={_URL_LETTER}{{10,300}}+\.eyJ{_URL_LETTER}{{10}})",
        # one match for each run of letters, so that the time stays linear: the run may have words before the token
        search=rf"(?<!{_URL_LETTER})(?={_URL_LETTER}*?\beyJ{_URL_LETTER}{{10}})"
        rf"{_URL_LETTER}+\.eyJ{_URL_LETTER}{{10,}}\.?{_URL_LETTER}*",
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
