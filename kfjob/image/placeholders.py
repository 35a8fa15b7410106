"""Tell names of images that stand for a real one in an example. Pure."""

from __future__ import annotations

import re
from contextlib import suppress

from kfjob.base.errors import UsageError
from kfjob.image.references import parse_reference

_WORD = re.compile(r"(?<![a-z0-9])(your|change-?_?me|replace-?_?me|placeholder|todo)(?![a-z0-9])")
_RESERVED_HOST = re.compile(r"(?:.*\.)?example\.(?:com|net|org)(?::[0-9]+)?")
"""Domains for examples, which never belong to anyone (RFC 2606)."""
_ECR_HOST = re.compile(r"(?P<account>.+)\.dkr[.-]ecr(?:-fips)?\.[a-zA-Z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|on\.aws)")
_NAME_OF_A_VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z]+)*")


def find_placeholder(image: str) -> str | None:
    """Return why a valid image reference cannot be a real image's; None if it may be one."""
    with suppress(UsageError):
        ref = parse_reference(image)
        if _RESERVED_HOST.fullmatch(ref.registry):
            return f"nobody has a registry at `{ref.registry}`"
        if ecr := _ECR_HOST.fullmatch(ref.registry):
            account = ecr["account"]
            if not re.fullmatch(r"[0-9]{12}", account):
                return f"`{account}` is not an AWS account of 12 digits"
        if word := _WORD.search(f"{ref.name}:{ref.tag}".lower()):
            return f"it contains `{word[0]}`"
        if _NAME_OF_A_VARIABLE.fullmatch(ref.tag):
            return f"its tag is the word `{ref.tag}`"
    return None
