"""The entry point. It sets what signals do before it imports the command line, which takes a while."""

from __future__ import annotations

import gc
import sys

from kfjob.cli.signals import end_on_interrupt, limit_cleanup

GC_THRESHOLD = 200_000
"""New objects between two garbage collections: more than a short command makes. Python's 700 costs a tenth of its time."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code. SIGTERM, SIGHUP and Ctrl-C end it within a second."""
    end_on_interrupt()
    limit_cleanup()
    gc.set_threshold(GC_THRESHOLD)
    from kfjob.cli.commands import run_and_flush

    sys.exit(run_and_flush(sys.argv[1:] if argv is None else argv))
