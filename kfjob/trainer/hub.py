"""Files of the Hugging Face hub, in the library's own cache. The library reads HF_ENDPOINT, HF_TOKEN and HF_HOME."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kfjob.base.errors import Unreachable
from kfjob.trainspec.train_rules import can_be_repository

MAX_LINE = 500
"""Characters of a message of the hub that are shown."""


def fetch_folder(location: Path | str, files: Sequence[str], *, kind: str, revision: str | None = None) -> Path:
    """Return the local folder `location`, or download the `files` (patterns) of the hub's repository of that name.

    All ranks of a node may call it at once: the library locks its cache.

    Raises:
        KfjobError: no folder exists, and the hub has no such repository or is unreachable.
    """
    folder = Path(location).expanduser()
    if folder.exists() or not can_be_repository(str(location)):
        return folder
    import huggingface_hub

    try:
        # the folders and consolidated files in Meta's and Mistral's repositories are the same weights in another format
        path = huggingface_hub.snapshot_download(
            str(location), revision=revision, allow_patterns=list(files), ignore_patterns=["*/*", "consolidated*"]
        )
    except Exception as error:  # the library and its transports share no base class
        cause = f"no such folder, and the hub answers: {first_line(error)}"
        hint = f"set `{kind}` to a folder that exists, or a name on the hub; HF_ENDPOINT selects the hub, HF_TOKEN the account"
        raise Unreachable(f"no {kind} at `{location}`", location=kind, cause=cause, hint=hint) from error
    return Path(path)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, cut, without the quotes that a KeyError adds."""
    return next((line.strip("\"'") for line in str(error).splitlines() if line.strip()), repr(error))[:MAX_LINE]
