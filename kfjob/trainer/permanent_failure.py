"""A failure that no restart cures. torchrun restarts its ranks after every exit code, so a rank leaves a note for the next one.

It writes the error file of torchrun (`FOLDER/attempt_N/RANK/error.json`, torch 2.15 elastic/multiprocessing/api.py). The ranks
of the next attempt read it and end at once, before they import torch.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from kfjob.base.parsing import ParseError, parse_json, read_document

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_PERMANENT = "kfjob_permanent"


def write_error_file(message: str, *, permanent_reason: str = "") -> None:
    """Make torchrun show `message` as the root cause, in the format of its `record` decorator (torch 2.15 errors/).

    With a `permanent_reason`, the reason of the outcome, the next attempts end with the same failure.
    """
    if path := os.environ.get(_ERROR_FILE):
        extra_info = {"py_callstack": message, "timestamp": str(int(time.time())), _PERMANENT: permanent_reason}
        Path(path).write_text(json.dumps({"message": {"message": message, "extraInfo": extra_info}}))


def read_previous_failure() -> tuple[str, str] | None:
    """Return the message and the reason of a permanent failure in the attempt before this one; None without one."""
    folder = Path(os.environ.get(_ERROR_FILE, "")).parent.parent
    if not (match := re.fullmatch(r"attempt_(\d+)", folder.name)):
        return None
    for file in sorted(folder.with_name(f"attempt_{int(match[1]) - 1}").glob("*/error.json")):
        try:
            message = parse_json(read_document(file))["message"]
            if reason := message["extraInfo"].get(_PERMANENT):
                return str(message["message"]), str(reason)
        except (OSError, ParseError, LookupError, TypeError, AttributeError):
            continue
    return None
