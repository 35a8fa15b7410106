"""Files that users name: their text, and whether the file of a launch has changed since."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kfjob.base.errors import NotFound, UsageError
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
        hint = "`kfjob init` writes a first spec" if kind == "spec" else None
        raise NotFound(f"{kind} `{file}` does not exist", hint=hint) from err
    except IsADirectoryError as err:
        raise NotFound(f"{kind} `{file}` is a directory", hint="name a file in it") from err
    except UnicodeDecodeError as err:
        start = err.object.rfind(b"\0", 0, err.start) + 1
        name, equals, _ = err.object[start : err.start].partition(b"=")
        title = f"cannot read {kind} `{file}`"
        if start and equals and is_name(name.decode("ascii", "replace")):  # the output of `env -0`
            hint = f"leave it out: `env -u {name.decode()} -0`"
            raise NotFound(f"{title}: the value of `{name.decode()}` is not UTF-8", hint=hint) from err
        raise NotFound(title, cause=str(err)) from err
    except OSError as err:
        raise NotFound(f"cannot read {kind} `{file}`", cause=str(err)) from err
    except ParseError as err:
        raise UsageError(f"{kind} `{file}` is larger than {MAX_TEXT // MIB} MiB") from err


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
