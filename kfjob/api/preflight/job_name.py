"""Check whether a submit can use the job's name."""

from __future__ import annotations

from kfjob.api.lifecycle.replace import find_live
from kfjob.api.lifecycle.taken_name import NameState, decide_name, make_taken
from kfjob.api.preflight.result import CheckResults
from kfjob.api.prepared import PreparedJob


def check_job_name(prepared: PreparedJob, results: CheckResults) -> bool:
    """Check the job that has the name now, and add to the results what a submit does; return whether no job has it.

    Raises:
        Forbidden: the user may not read jobs.
    """
    name = prepared.plan.name
    existing = find_live(prepared.target, name)
    if existing is None:
        return True
    match decide_name(existing, prepared):
        case NameState.REPLACE:
            results.ok(f"job `{name}` has ended, and gives its name to the next launch")
        case NameState.SAME:
            results.ok(f"job `{name}` runs already with this spec (launch {existing.launch}); a submit starts nothing")
        case _:
            err = make_taken(existing, prepared)
            results.error(err.title, "name", detail=err.cause or "", hint=err.hint or "")
    return False
