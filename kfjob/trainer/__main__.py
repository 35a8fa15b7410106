"""`torchrun -m kfjob.trainer --model=… --data=… --max-steps=…`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kfjob.errors import KfjobError
from kfjob.spec.arguments import help_text, read_argv
from kfjob.trainer.metrics import Outcome, Startup, log, start_logging


def main(argv: Sequence[str]) -> int:
    """Read the arguments, and only then import torch."""
    startup = Startup()
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(help_text() + "\n")
        return 0
    first = os.environ.get("RANK", "0") == "0"
    start_logging(verbose=first)
    try:
        spec, notes = read_argv(argv)
    except KfjobError as error:
        if first:
            sys.stderr.write(f"{error}\n")
            log.error(Outcome(outcome="failed", reason=error.title).line())
        return error.exit_code
    for note in notes:
        log.info("Note %s", note.title)
    from kfjob.trainer.run import run

    return run(spec, startup)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written and closed. The usual way out would take torch apart first, which costs seconds, and aborts
    # (SIGABRT) while a process group is open that cannot be left because a peer has died.
    os._exit(code)
