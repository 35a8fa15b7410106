"""Print why a restart cannot cure the failure of a job's workers; nothing if it may.

    python -m kfjob.api.failure_check FOLDER

The local backend's supervisor runs it after a worker has failed: a backend does not interpret logs itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kfjob.api.diagnose import examine
from kfjob.api.reader import open_folder
from kfjob.api.settings import load_current_settings
from kfjob.base.errors import KfjobError
from kfjob.joblog.diagnose.engine.aftermath import find_futile_restart
from kfjob.joblog.diagnose.engine.ranking import describe


def explain_futile_restart(folder: Path) -> str:
    """Return why a restart cannot cure the failure of the job in the folder; "" if it may.

    Raises:
        NotFound, BackendError: the folder cannot be read.
    """
    occurrence = find_futile_restart(examine(open_folder(folder, load_current_settings())).history)
    return f"a restart cannot cure this: {describe(occurrence, local=True)}" if occurrence else ""


def main() -> None:
    """Examine the folder that the command line names."""
    try:
        text = explain_futile_restart(Path(sys.argv[1]))
    except KfjobError as err:
        sys.exit(str(err))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
