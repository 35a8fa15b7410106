"""Rules about what must not stand in a spec as plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule

_SHAPES = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "an AWS access key": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})\b",
    "a key of an API": r"\bsk-[A-Za-z0-9_-]{20,}\b",
    "a Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}\b",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.",
    "a password in an address": r"://[^/\s:@$]+:[^/\s@$]{3,}@",
}
_TOKENS = [(what, re.compile(pattern)) for what, pattern in _SHAPES.items()]
_NAMES = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$", re.IGNORECASE)
_SHORTEST = 8


@rule("secret-in-text", "warning", local=True)
def secret_in_text(job: Job) -> Iterator[Violation]:
    """Tokens, keys and passwords come from a secret.

    The spec travels with the job as an annotation, into the archive, and into every answer of `kubectl get -o yaml`: who may
    look at the job can read them.
    """
    seen = set()
    for path, text, name in _texts(job):
        what = looks_like(text, name)
        if what and path not in seen:
            seen.add(path)
            yield Violation(path=path, message=f"this looks like {what}, in plain text", hint=_hint(path, name))


def looks_like(text: str, name: str = "") -> str | None:
    """Which kind of secret the text seems to be, by its shape or by the `name` of the variable that holds it."""
    if what := next((what for what, pattern in _TOKENS if pattern.search(text)), None):
        return what
    if _NAMES.search(name) and len(text) >= _SHORTEST and not text.startswith(("/", "$(", "${")):
        return "a secret, by the variable's name"
    return None


def _hint(path: str, name: str) -> str:
    fields = {"HF_TOKEN": "hub_token", "HUGGING_FACE_HUB_TOKEN": "hub_token", "WANDB_API_KEY": "wandb_key"}
    if name in fields:
        return f"put it into a secret and say `{fields[name]}: SECRET/KEY`; then revoke this one"
    if path.startswith("env."):
        return f"put it into a secret and say `{name}: {{secret: SECRET, key: KEY}}`; then revoke this one"
    return "put it into a secret and read it from a variable; then revoke this one"


def _texts(job: Job) -> Iterator[tuple[str, str, str]]:
    """(path, text, name of the variable) of everything that a user wrote and that may hold a secret."""
    for name, value in job.spec.env.items():
        if isinstance(value, str):
            yield f"env.{name}", value, name
    for word in job.spec.command or ():
        yield "command", word, ""
    for key, value in job.spec.annotations.items():
        yield f"annotations.{key}", value, ""
    for index, container in enumerate(job.spec.pod.init_containers):
        yield from _within(f"pod.init_containers.{index}", container)
    for index, container in enumerate(job.spec.pod.sidecars):
        yield from _within(f"pod.sidecars.{index}", container)
    yield from _within("overrides", job.spec.overrides)


def _within(path: str, value: object) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            yield f"{path}.value", value["value"], value["name"]
            return
        for key, inner in value.items():
            yield from _within(f"{path}.{key}", inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _within(f"{path}.{index}", inner)
    elif isinstance(value, str):
        yield path, value, ""
