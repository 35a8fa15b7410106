"""The process that guards one launch on this machine.

    python -P -m kfjob.guard FOLDER

The submit of a job with `recovery` starts it, also the submit that is a relaunch. So each launch has its own guard, with the
environment and the current folder of the command that submitted the job. It ends with its launch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Leave the command that submits the job, then guard."""
    if os.fork():
        os._exit(0)
    from kfjob.guard.run import guard_launch

    guard_launch(Path(sys.argv[1]), _say)


def _say(text: str) -> None:
    from kfjob.objects.reading import format_time

    sys.stdout.write(f"{format_time(time.time())} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
