"""Check whether a submit can use the job's name."""

from __future__ import annotations

from kfjob.api.lifecycle.name_holder import can_replace, make_taken
from kfjob.api.lifecycle.replace import find_live
from kfjob.api.preflight.result import CheckResults
from kfjob.api.target import Target
from kfjob.spec.job import JobSpec


def check_holder(spec: JobSpec, target: Target, results: CheckResults) -> bool:
    """Check the job that has the name now, and add to the results; return whether no job has it.

    Raises:
        Forbidden: the user may not read jobs.
    """
    holder = find_live(target, spec.name)
    if holder is None:
        return True
    if can_replace(holder, user=target.settings.submitter):
        results.ok(f"job `{spec.name}` has ended, and gives its name to the next launch")
    else:
        err = make_taken(holder, spec)
        results.error(err.title, "name", detail=err.cause or "", hint=err.hint or "")
    return False
