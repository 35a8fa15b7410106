"""Exit codes that no error class carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfjob.joblog.events import JobPhase

INTERRUPTED = 130
"""Ctrl-C ended the command; a followed job continues."""
SIGNAL_BASE = 128
"""Plus the number of the signal that ended the command."""


def job_exit_code(phase: JobPhase | None) -> int:
    """Return the exit code for the phase in which a job was last seen; None stands for a job without a phase."""
    from kfjob.base.errors import JobFailed, JobStopped, JobUnfinished
    from kfjob.joblog.events import JobPhase

    ends = {JobPhase.SUCCEEDED: 0, JobPhase.FAILED: JobFailed.exit_code, JobPhase.STOPPED: JobStopped.exit_code}
    return ends.get(phase, JobUnfinished.exit_code) if phase else JobUnfinished.exit_code
