"""The rule against secrets in plain text."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.redaction import collect_secrets, find_secret
from kfjob.spec.job import SECRET_VARIABLES


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
            yield Violation(path=path, message=f"this looks like {kind} in plain text", hint=_hint(job, path, name))
    if job.program_field not in paths and collect_secrets(list(job.spec.words)):
        message = "this looks like a secret (by the option's name) in plain text"
        yield Violation(path=job.program_field, message=message, hint=_hint(job, "command", ""))


def _hint(job: Job, path: str, name: str) -> str:
    if name and job.is_user_manifest:
        source = "valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}"
        return f"put it into a secret, set `{source}` in place of `value`, and revoke this one"
    fields = {variable: field for field, variable in SECRET_VARIABLES.items()} | {"HUGGING_FACE_HUB_TOKEN": "hub_token"}
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
    for word in job.spec.words:
        yield job.program_field, word, ""
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
