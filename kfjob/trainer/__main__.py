"""`torchrun -m kfjob.trainer --model=… --data=… --max-steps=…`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kfjob.base.errors import KfjobError
from kfjob.trainer.environment import check_home_folders, check_meeting_point, check_packages, read_place
from kfjob.trainer.metrics import Outcome, StartupTimer, log, start_logging
from kfjob.trainer.permanent_failure import read_previous_failure, write_error_file
from kfjob.trainer.redact import redact, write_error, write_note
from kfjob.trainspec.command_line import format_help, parse_argv
from kfjob.trainspec.train_spec import TrainSpec


def main(argv: Sequence[str]) -> int:
    """Parse the arguments, and only then import torch."""
    startup = StartupTimer()
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(format_help() + "\n")
        return 0
    is_rank_zero = os.environ.get("RANK", "0") == "0"
    start_logging(verbose=is_rank_zero)
    if failure := read_previous_failure():
        return _fail(*failure, is_shown=is_rank_zero)
    try:
        place = read_place()
    except KfjobError as error:  # on every rank, because the number of this one is unknown
        _fail(str(error), error.title, is_shown=True)
        return error.exit_code
    try:
        spec, notes = parse_argv(argv)
        _refuse_nested_spawn(spec)
        check_packages(spec)
        check_home_folders(spec.model_dump())
        if not spec.dry_run:
            check_meeting_point(place)
    except KfjobError as error:
        _fail(str(error), error.title, is_shown=is_rank_zero)
        return error.exit_code
    if spec.dry_run and is_rank_zero:
        write_note("building the model without weights; loading torch takes a few seconds")
    for note in notes:
        log.info("Note %s", note.title)
    if spec.spawn and not spec.dry_run:
        from kfjob.trainer.spawn import spawn_ranks

        return spawn_ranks(spec, spec.spawn)
    from kfjob.trainer.run import run_rank

    return run_rank(spec, startup)


def _fail(message: str, reason: str, *, is_shown: bool) -> int:
    """Report a failure that no restart cures, and return the exit code."""
    if is_shown:
        write_error(message)
        log.error(Outcome(outcome="failed", reason=reason, permanent=True).line())
    write_error_file(redact(message), permanent_reason=redact(reason))
    return 1


def _refuse_nested_spawn(spec: TrainSpec) -> None:
    if spec.spawn and "LOCAL_RANK" in os.environ:
        hint = "remove `spawn`, or start one process per node with `launcher: python`"
        raise KfjobError("a launcher has started this process as one rank of several", location="spawn", hint=hint)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # All output is flushed. A normal exit would first unload torch, which takes seconds. It would abort (SIGABRT) if a process
    # group is still open because a peer has died.
    os._exit(code)
