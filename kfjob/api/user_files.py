"""Files that users name: their text, new ones, and whether the file of a launch has changed since."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kfjob.base.errors import AlreadyExists, NotFound, UsageError
from kfjob.base.file_access import name_file, open_private
from kfjob.base.parsing import MAX_TEXT, ParseError, read_named_text
from kfjob.base.shells import is_name
from kfjob.base.units import MIB

_DIGITS = 16


def read_text(file: str, kind: str, *, newline: str | None = None) -> str:
    """Return the text of a file, or of standard input for `-`; `kind` names the file in messages.

    With the newline "", carriage returns of a file stay as they are.

    Raises:
        NotFound: the file does not exist or cannot be read.
        UsageError: it is too large.
    """
    try:
        return read_named_text(None if file == "-" else Path(file), newline=newline)
    except FileNotFoundError as err:
        raise NotFound(f"{kind} `{file}` does not exist", hint=_describe_spec(kind, job=file)) from err
    except IsADirectoryError as err:
        inside = sorted(Path(file).glob("*.y*ml"))[:1]
        hint = f"name a file in it, such as `{inside[0]}`" if inside else _describe_spec(kind) or "name a file in it"
        raise NotFound(f"{kind} `{file}` is a directory", hint=hint) from err
    except UnicodeDecodeError as err:
        start = err.object.rfind(b"\0", 0, err.start) + 1
        name, equals, _ = err.object[start : err.start].partition(b"=")
        title = f"cannot read {kind} `{file}`"
        if start and equals and is_name(name.decode("ascii", "replace")):  # the output of `env -0`
            hint = f"leave it out: `env -u {name.decode()} -0`"
            raise NotFound(f"{title}: the value of `{name.decode()}` is not UTF-8", hint=hint) from err
        raise NotFound(title, cause="it is not a text in UTF-8", hint=_describe_spec(kind)) from err
    except OSError as err:
        raise NotFound(f"cannot read {kind} `{file}`", cause=str(err)) from err
    except ParseError as err:
        raise UsageError(f"{kind} `{file}` is larger than {MAX_TEXT // MIB} MiB") from err


def _describe_spec(kind: str, *, job: str = "") -> str | None:
    """Return what a spec is. `job` is a word that may be meant as the name of a job."""
    from kfjob.source.foreign_formats import describe_spec

    if kind != "spec":
        return None
    may_be_job = job.replace("-", "").isalnum()
    return describe_spec() + (f"; `kfjob status {job}` shows a job of this name" if may_be_job else "")


def write_text(file: Path, text: str, *, force: bool = False, hint: str | None = None) -> None:
    """Write a new file, which only its owner may read because it may hold secrets; or with `force` any.

    Raises:
        AlreadyExists: the file exists; `hint` says what to do.
        NotFound: the folder does not exist, or is not writable.
    """
    try:
        with name_file(file), open_private(file, "w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as err:
        raise AlreadyExists(f"`{file}` already exists", hint=hint) from err
    except OSError as err:
        raise NotFound(f"`{err.filename}` cannot be written", cause=err.strerror or str(err)) from err


def record_file(path: Path, text: str) -> str:
    """Return what is recorded with a launch: the digest of the text, and the absolute path of its file."""
    return f"{_digest(text)} {path.absolute()}"


def find_changed_file(record: str) -> Path | None:
    """Return the file of a record if its text has changed; None if it has not, cannot be read, or if nothing is recorded."""
    digest, _, path = record.partition(" ")
    if not path:
        return None
    try:
        text = read_named_text(Path(path))
    except (OSError, ValueError):  # ValueError: it is too large now, or not UTF-8
        return None
    return Path(path) if _digest(text) != digest else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
