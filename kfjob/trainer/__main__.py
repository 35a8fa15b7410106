"""`torchrun -m kfjob.trainer --model=… --data=… --max-steps=…`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kfjob.errors import KfjobError
from kfjob.spec.arguments import format_help, parse_argv
from kfjob.spec.train import TrainSpec
from kfjob.trainer.metrics import Outcome, Startup, log, start_logging


def main(argv: Sequence[str]) -> int:
    """Read the arguments, and only then import torch."""
    startup = Startup()
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(format_help() + "\n")
        return 0
    first = os.environ.get("RANK", "0") == "0"
    start_logging(verbose=first)
    try:
        spec, notes = parse_argv(argv)
        _not_spawned_twice(spec)
    except KfjobError as error:
        if first:
            sys.stderr.write(f"{error}\n")
            log.error(Outcome(outcome="failed", reason=error.title).line())
        return error.exit_code
    for note in notes:
        log.info("Note %s", note.title)
    if spec.spawn and not spec.dry_run:
        from kfjob.trainer.spawn import spawn

        return spawn(spec)
    from kfjob.trainer.run import run

    return run(spec, startup)


def _not_spawned_twice(spec: TrainSpec) -> None:
    if spec.spawn and "LOCAL_RANK" in os.environ:
        hint = "leave `spawn` out, or start one process a node with `launcher: python`"
        raise KfjobError("a launcher has started this process as one rank of several", location="spawn", hint=hint)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written and closed. The usual way out would take torch apart first, which costs seconds, and aborts
    # (SIGABRT) while a process group is open that cannot be left because a peer has died.
    os._exit(code)
