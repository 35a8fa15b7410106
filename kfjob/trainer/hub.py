"""Files of the Hugging Face hub, in its library's own cache. HF_ENDPOINT, HF_TOKEN and HF_HOME are the library's to read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kfjob.errors import KfjobError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
"""What a repository of the hub can be called."""


def folder_of(place: Path | str, files: Sequence[str], *, what: str, revision: str | None = None) -> Path:
    """A folder of this machine, or where `place` is none and can be a repository's name, its `files` (patterns) brought here.

    All ranks of a node may ask at once: the library locks what it writes.

    Raises:
        KfjobError: it can only be a repository, and the hub has none by that name, or cannot be reached.
    """
    folder = Path(place).expanduser()
    if folder.exists() or not NAME.fullmatch(str(place)):
        return folder
    import huggingface_hub

    try:
        # what Meta's and Mistral's repositories hold besides is the same weights once more, in another form
        found = huggingface_hub.snapshot_download(
            str(place), revision=revision, allow_patterns=list(files), ignore_patterns=["*/*", "consolidated*"]
        )
    except Exception as error:  # the library's and its transports' have no common ancestor
        cause = f"no such folder, and the hub says: {said(error)}"
        hint = "HF_ENDPOINT and HF_TOKEN say where the hub is and who asks"
        raise KfjobError(f"no {what} at `{place}`", location=what, cause=cause, hint=hint) from error
    return Path(found)


def said(error: Exception) -> str:
    """The first line of an error of the library's, which may be a KeyError and then stands in quotes."""
    return next((line.strip("\"'") for line in str(error).splitlines() if line.strip()), repr(error))
