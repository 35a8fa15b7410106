"""The rule against secrets in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule

_SHAPES = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "an AWS access key": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})\b",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}\b",
    "a Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}\b",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.",
    "a password in a URL": r"://[^/\s:@$]+:[^/\s@$]{3,}@",
}
_PATTERNS = [(kind, re.compile(pattern)) for kind, pattern in _SHAPES.items()]
_NAMES = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$", re.IGNORECASE)
_MIN_LENGTH = 8


@rule("secret-in-text", "warning", local=True)
def secret_in_text(job: Job) -> Iterator[Violation]:
    """Tokens, keys and passwords are in Kubernetes secrets, not in the spec.

    The spec is recorded in an annotation of the job and in the archive. Everyone who can read the job can read it, for example
    with `kubectl get -o yaml`.
    """
    paths = set()
    for path, text, name in _texts(job):
        kind = find_secret(text, name)
        if kind and path not in paths:
            paths.add(path)
            yield Violation(path=path, message=f"this looks like {kind} in plain text", hint=_hint(path, name))


def find_secret(text: str, name: str = "") -> str | None:
    """Return the kind of secret that a text looks like, by its shape or by the `name` of its variable; None for other texts."""
    if kind := next((kind for kind, pattern in _PATTERNS if pattern.search(text)), None):
        return kind
    if _NAMES.search(name) and len(text) >= _MIN_LENGTH and not text.startswith(("/", "$(", "${")):
        return "a secret (by the variable's name)"
    return None


def _hint(path: str, name: str) -> str:
    fields = {"HF_TOKEN": "hub_token", "HUGGING_FACE_HUB_TOKEN": "hub_token", "WANDB_API_KEY": "wandb_key"}
    if name in fields:
        return f"put it into a secret, set `{fields[name]}: SECRET/KEY`, and revoke this one"
    if path.startswith("env."):
        return f"put it into a secret, set `{name}: {{secret: SECRET, key: KEY}}`, and revoke this one"
    return "put it into a secret, read it from a variable, and revoke this one"


def _texts(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield path, text and variable name of every text of the user that can hold a secret."""
    for name, value in job.spec.env.items():
        if isinstance(value, str):
            yield f"env.{name}", value, name
    for word in job.spec.command or ():
        yield "command", word, ""
    for key, value in job.spec.annotations.items():
        yield f"annotations.{key}", value, ""
    for index, container in enumerate(job.spec.pod.init_containers):
        yield from _nested_texts(f"pod.init_containers.{index}", container)
    for index, container in enumerate(job.spec.pod.sidecars):
        yield from _nested_texts(f"pod.sidecars.{index}", container)
    yield from _nested_texts("overrides", job.spec.overrides)


def _nested_texts(path: str, value: object) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            yield f"{path}.value", value["value"], value["name"]
            return
        for key, child in value.items():
            yield from _nested_texts(f"{path}.{key}", child)
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _nested_texts(f"{path}.{index}", child)
    elif isinstance(value, str):
        yield path, value, ""
