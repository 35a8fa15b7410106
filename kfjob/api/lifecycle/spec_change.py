"""Change the recorded spec of a job for its next launch: what changes, and what a training that resumes cannot change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.errors import UsageError
from kfjob.base.text import is_whole
from kfjob.objects.differences import MISSING, Path, differences, format_path, get_value
from kfjob.redaction import REDACTED, Redactor, collect_secrets
from kfjob.source.spec_text import LoadedSpec, draft_fields
from kfjob.spec.job import JobSpec
from kfjob.trainspec import name_checkpoint

_MAX_VALUE = 200
"""Characters of a value in the list of changes."""
_CONTEXT = 20
"""Characters before the first difference of two long values that are shown."""


class SpecChange(Struct, frozen=True, kw_only=True):
    """How the spec of the next launch differs from the recorded one."""

    loaded: LoadedSpec | None = None
    """A spec that replaces the recorded one."""
    assignments: tuple[str, ...] = ()
    """Fields of the recorded spec and their new values, as in `--set`; unused with `loaded`."""
    start: str = ""
    """Where the training begins: `latest` (the newest checkpoint), `none` (from scratch) or the step of a checkpoint."""

    def apply(self, recorded: JobSpec) -> LoadedSpec:
        """Return the new spec.

        Raises:
            SpecError: every problem of the new spec.
            UsageError: it is the spec of another job, or `start` does not fit it.
        """
        fields = recorded.model_dump(mode="json", exclude_unset=True)
        loaded = self.loaded or draft_fields(fields, assignments=self.assignments).finish()
        if loaded.spec.name != recorded.name:
            hint = f"`kfjob submit` starts `{loaded.spec.name}` as a job of its own"
            raise UsageError(f"the spec is that of job `{loaded.spec.name}`, not of `{recorded.name}`", hint=hint)
        return replace(loaded, spec=_set_start(loaded.spec, self.start)) if self.start else loaded


_STARTS = {"latest": "auto", "none": "none"}
"""Values of `train.resume`."""
_MAX_DIGITS = 18
"""Digits of a step."""


def _set_start(spec: JobSpec, start: str) -> JobSpec:
    """Return the spec with a training that begins at `start`."""
    if spec.train is None:
        hint = "a program of your own decides itself where it starts: pass it an option or a variable with `--set`"
        raise UsageError(f"job `{spec.name}` has no `train`, so kfjob cannot say where it starts", hint=hint)
    resume, step = _STARTS.get(start), start.removeprefix("step-")
    if resume is None and not (is_whole(step, digits=_MAX_DIGITS)):
        raise UsageError(f"`{start}` is neither `latest`, `none` nor the step of a checkpoint", hint="write for example `400`")
    if resume is None and not spec.train.checkpoint_dir:
        raise UsageError(f"job `{spec.name}` has no `train.checkpoint_dir`, so there is no checkpoint of step {int(step)}")
    resume = resume or f"{(spec.train.checkpoint_dir or '').rstrip('/')}/{name_checkpoint(int(step))}"
    return spec.model_copy(update={"train": spec.train.model_copy(update={"resume": resume, "continues": ""})})


def describe_change(old: JobSpec, new: JobSpec) -> Iterator[str]:
    """Yield the changed fields as one notice, and a warning for each change that keeps the training from resuming."""
    changes = list_changes(old, new)
    if not changes:
        yield "the spec is the same as that of the last launch"
        return
    yield "\n".join(["changes since the last launch:", *(f"  {change}" for change in changes)])
    yield from _find_resume_warnings(old, new)


def list_changes(old: JobSpec, new: JobSpec) -> list[str]:
    """Return a line for each field that differs, without secrets: `train.max_steps: 1000 -> 2000`."""
    return [f"{path}: {' -> '.join(_format_sides(*sides))}" for path, *sides in find_changes(old, new)]


def find_changes(old: JobSpec, new: JobSpec) -> list[tuple[str, Any, Any]]:
    """Return path, old and new value of each field that differs, without secrets; None stands for a field that is not set."""
    before, after = _dump(old), _dump(new)
    redactor = Redactor(collect_secrets(before) | collect_secrets(after))
    old_tree, new_tree = redactor.value(before), redactor.value(after)
    return [
        (format_path(change.path), _find_side(change.old, old_tree, change.path), _find_side(change.new, new_tree, change.path))
        for change in differences(before, after)
    ]


def _find_side(value: Any, redacted: Any, path: Path) -> Any:
    """Return a value as the redacted spec has it; what stands for secrets, if the redaction changed a name on the way to it."""
    shown = None if value is MISSING else get_value(redacted, path)
    return REDACTED if shown is MISSING else shown


def have_same_fields(old: JobSpec, new: JobSpec) -> bool:
    """Return whether two specs have the same values."""
    return _dump(old) == _dump(new)


def _dump(spec: JobSpec) -> dict[str, Any]:
    """Return the fields that a user sets."""
    return spec.model_dump(mode="json", exclude={"train": {"continues"}})


def continue_run(old: JobSpec, new: JobSpec, *, rendezvous_id: str = "") -> JobSpec:
    """Return the new spec with the run that the training continues: that of the old launch, which has this rendezvous id.

    `train.resume` names the start of a run, so it does not apply again. If it changes, or the folder of the checkpoints, a new
    run begins. Without an id the new spec is one of the same launch.
    """
    before, after = old.train, new.train
    if before is None or after is None or after.resume == "auto":
        return new
    is_same_run = (after.resume, after.checkpoint_dir) == (before.resume, before.checkpoint_dir)
    continues = (before.continues or rendezvous_id) if is_same_run else ""
    return new.model_copy(update={"train": after.model_copy(update={"continues": continues})})


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


def _drop_unset(value: Any) -> Any:
    """Return a value without the parts that say nothing, such as the fields of a volume of another kind."""
    if isinstance(value, dict):
        is_set = {
            name: item for name, item in value.items() if item is not False and item not in (None, [], {})
        }  # 0 is a value
        return {name: _drop_unset(item) for name, item in is_set.items()}
    return [_drop_unset(item) for item in value] if isinstance(value, list) else value


def _format_sides(old: Any, new: Any) -> Iterator[str]:
    """Yield both values as text; of long ones, the part from the first difference on."""
    texts = ["(not set)" if value is None else json.dumps(_drop_unset(value), ensure_ascii=False) for value in (old, new)]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    is_late = _CONTEXT < same < max(map(len, texts))  # a secret that has changed leaves equal texts
    start = same - _CONTEXT if is_late and max(map(len, texts)) > _MAX_VALUE else 0
    for text in texts:
        part = text[start : start + _MAX_VALUE]
        yield f"{'…' if start else ''}{part}{'…' if start + len(part) < len(text) else ''}"
