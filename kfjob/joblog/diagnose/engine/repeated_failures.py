"""Whether a round of the training processes ended with the same failure as an earlier one, and came no further."""

from __future__ import annotations

from kfjob.joblog.diagnose.engine.furthest import got_further
from kfjob.joblog.diagnose.engine.history import JobHistory, Occurrence
from kfjob.joblog.diagnose.engine.repetitions import mask_numbers


def repeats_failure(history: JobHistory, before: Occurrence, after: Occurrence, *, near: int | None) -> bool:
    """Return whether the failure ended an earlier round like a later one, and no round since the earlier one got further.

    Numbers may differ: a message can hold a pid, a port or an address. `near` gives a year to times without one.
    """
    if before.mark is None or after.mark is None or before.mark.round_start >= after.mark.round_start:
        return False
    is_same = [mask_numbers(line) for line in before.evidence] == [mask_numbers(line) for line in after.evidence]
    return is_same and not before.going_on.handled and not got_further(history, before, near)
