"""Change the recorded spec of a job for its next launch: what changes, and what a training that resumes cannot change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from kfjob.api.planning import finish_draft
from kfjob.api.settings import Settings
from kfjob.compile.manifest_diff import MISSING, Difference, differences, format_path
from kfjob.errors import UsageError
from kfjob.redaction import Redactor
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, draft_fields

_MAX_VALUE = 200
"""Characters of a value in the list of changes."""


@dataclass(frozen=True, kw_only=True)
class SpecChange:
    """How the spec of the next launch differs from the recorded one."""

    loaded: LoadedSpec | None = None
    """A spec that replaces the recorded one."""
    assignments: tuple[str, ...] = ()
    """Fields of the recorded spec and their new values, as in `--set`; unused with `loaded`."""

    def apply(self, recorded: JobSpec, settings: Settings) -> LoadedSpec:
        """Return the new spec.

        Raises:
            SpecError: every problem of the new spec.
            UsageError: it is the spec of another job.
        """
        fields = recorded.model_dump(mode="json", exclude_unset=True)
        loaded = self.loaded or finish_draft(draft_fields(fields, assignments=self.assignments), settings)
        if loaded.spec.name != recorded.name:
            hint = f"`kfjob submit` starts `{loaded.spec.name}` as a job of its own"
            raise UsageError(f"the spec is that of job `{loaded.spec.name}`, not of `{recorded.name}`", hint=hint)
        return loaded


def describe_change(old: JobSpec, new: JobSpec) -> Iterator[str]:
    """Yield the changed fields as one notice, and a warning for each change that keeps the training from resuming."""
    changes = list_changes(old, new)
    if not changes:
        yield "the spec is the same as that of the last launch"
        return
    yield "\n".join(["changes since the last launch:", *(f"  {change}" for change in changes)])
    yield from _find_resume_warnings(old, new)


def list_changes(old: JobSpec, new: JobSpec) -> list[str]:
    """Return a line for each field that differs, without secrets."""
    return [_format_change(change) for change in differences(old.model_dump(mode="json"), new.model_dump(mode="json"))]


def _find_resume_warnings(old: JobSpec, new: JobSpec) -> Iterator[str]:
    before, after = old.train, new.train
    if not before or not after or not before.checkpoint_dir:
        return
    if before.checkpoint_dir != after.checkpoint_dir:
        yield (
            f"warning: the training resumes from `{after.checkpoint_dir}` only if that has checkpoints\n"
            f"hint: those of the last launch are in `{before.checkpoint_dir}`"
            if after.checkpoint_dir
            else "warning: without `train.checkpoint_dir` the training starts from step 0"
        )
        return
    for name in ("model", "lora"):
        if getattr(before, name) != getattr(after, name):
            yield (
                f"warning: `train.{name}` changes, and the checkpoints in `{after.checkpoint_dir}` fit the old value only\n"
                "hint: set another `train.checkpoint_dir` to train from step 0"
            )


def _format_change(change: Difference) -> str:
    """Return one line without secrets: `train.max_steps: 1000 -> 2000`."""
    name = str(change.path[-1]) if isinstance(change.path[-1], str) else ""
    old, new = (Redactor().value({name: value})[name] if value is not MISSING else None for value in (change.old, change.new))
    return f"{format_path(change.path)}: {_format_value(old)} -> {_format_value(new)}"


def _format_value(value: object) -> str:
    if value is None:
        return "(not set)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
