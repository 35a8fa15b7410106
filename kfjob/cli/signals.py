"""End the command soon after Ctrl-C, SIGTERM or SIGHUP, also while a library waits where no signal interrupts it.

Python runs signal handlers between two instructions of the main thread. A name server that does not answer keeps this thread
inside the C library (getaddrinfo). So a second thread gets each signal from a pipe, and ends a command that goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

from kfjob.cli.exit_codes import SIGNAL_BASE
from kfjob.cli.interrupts import drop_interrupts

CLEANUP_SECONDS = 0.8
"""Time that an interrupted command has to delete what it has created in part, and its temporary files."""
_SIGNALS = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


def limit_cleanup() -> None:
    """Start the thread that ends a command some time after a signal."""
    drop_interrupts()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_end_late, args=(reading,), name="kfjob-signals", daemon=True).start()


def _end_late(pipe: int) -> None:
    """Wait for a signal that ends the command, then end it if it still runs after its time for the cleanup."""
    while (number := os.read(pipe, 1)[0]) not in (signal.SIGINT, *_SIGNALS):
        pass
    time.sleep(CLEANUP_SECONDS)
    if programs := sys.modules.get("kfjob.base.programs"):  # an import could wait for the main thread
        programs.kill_programs()
    if concurrency := sys.modules.get("kfjob.base.concurrency"):
        with suppress(OSError):
            os.write(2, "".join(f"warning: {notice}\n" for notice in concurrency.cleanup_notices).encode())
    os._exit(SIGNAL_BASE + number)
