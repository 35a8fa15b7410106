"""Standard output and error: colours, JSON, waits; text of others is cleaned here, and messages, tables and JSON are redacted.

`clean_output` replaces both streams while a command runs. Messages and tables lose terminal sequences, control characters,
direction marks and secrets. `print_json` redacts the fields of JSON. `write_data` keeps secrets: manifests, specs and logs.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from kfjob.base.errors import UsageError
from kfjob.base.printable import clean_text
from kfjob.cli.formatting import format_json, wrap
from kfjob.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path

MIN_WIDTH = 40
"""Columns of the narrowest terminal in which lines are wrapped; one of unknown size has none."""
_MARKS = {"error": "red", "warning": "yellow", "hint": "cyan"}
_MARK = r"(?m)^([ \t]*)(error|warning|hint):"
_STATES = {
    "Succeeded": "green", "Failed": "red", "Error": "red", "CrashLoopBackOff": "red", "OOMKilled": "red",
    "ImagePullBackOff": "red", "ErrImagePull": "red", "Restarting": "yellow", "Stopped": "yellow",
}  # fmt: skip
_STATE = rf"(?<![\w`/-])({'|'.join(_STATES)})(?![\w`/-])"


_COMMAND = (
    r"(?<=\bkfjob )(status|watch|wait|logs|master|progress|diagnose|report|archive|history|compare|list"
    r"|stop|exec|suspend|resume|scale|relaunch)"
    r"(?=[ `])(?![^`·\n]* (?:-n|--from)\b)"
)
_rewrite: Callable[[str], str] | None = None
_repeated = ""
"""Options of this command that the commands in its messages need too: ` -n team-a`."""


def repeat_options(*options: tuple[str, str | None]) -> None:
    """Give the commands that messages suggest these options of this command; None: not given."""
    global _repeated, _rewrite  # noqa: PLW0603 - one command runs in a process
    _rewrite = None
    _repeated = "".join(f" {option} {shlex.quote(value)}" for option, value in options if value)


def repeat_backend(name: str) -> None:
    """Give the commands that messages suggest this backend, too."""
    global _repeated  # noqa: PLW0603 - one command runs in a process
    _repeated += f" --backend {name}"


def repeat_namespace(namespace: str) -> None:
    """Give the commands that messages suggest the namespace of a spec, unless this command was given one."""
    global _repeated  # noqa: PLW0603 - one command runs in a process
    if " -n " not in _repeated:
        _repeated += f" -n {namespace}"


def rewrite_messages(rewrite: Callable[[str], str]) -> None:
    """Change every message and table of this command."""
    global _rewrite  # noqa: PLW0603 - one command runs in a process
    _rewrite = rewrite


def _adapt(text: str) -> str:
    """Return a message in the words of this command."""
    text = _rewrite(text) if _rewrite else text
    return re.sub(_COMMAND, lambda match: match[1] + _repeated, text) if _repeated and "kfjob " in text else text


class LostOutput(Exception):
    """Standard output cannot be written. Not an OSError, because click ends the process with code 1 after a broken pipe."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _raise_lost_output() -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise LostOutput(err) from err


class CleanStream:
    """A text stream that cleans what is written to it."""

    def __init__(self, stream: TextIO, redactor: Redactor | None = None, *, keeps_colours: bool = False) -> None:
        """Write to `stream`, without the secrets that `redactor` finds. Colours stay where it is a terminal."""
        self.stream = stream
        self.redactor = redactor
        self.keeps_colours = keeps_colours or stream.isatty()

    def write(self, text: str) -> int:
        """Write text for people, without secrets."""
        clean = self.redactor.text(_adapt(text)) if self.redactor else text
        self.write_data(self._fit(clean))
        return len(text)

    def _fit(self, text: str) -> str:
        """Return the text wrapped at words if the stream is a terminal, which would cut words and commands."""
        if not self.stream.isatty():
            return text
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(self.stream.fileno()).columns
            return wrap(text, width) if width >= MIN_WIDTH else text
        return text

    def write_data(self, text: str) -> None:
        """Write text as it is, except for terminal sequences and control characters."""
        with _raise_lost_output():
            self.stream.write(clean_text(text, keep_colours=self.keeps_colours))

    def flush(self) -> None:
        """Write what is buffered."""
        with _raise_lost_output():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self.stream, name)


class MessageStream(CleanStream):
    """Standard error while a command runs: a message that cannot be written does not change the result of the command."""

    def write_data(self, text: str) -> None:
        """Write text, or drop it and all that follows."""
        try:
            super().write_data(text)
        except LostOutput:
            self._drop()
        self.flush()

    def flush(self) -> None:
        """Write what is buffered, or drop it."""
        try:
            super().flush()
        except LostOutput:
            self._drop()

    def _drop(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


@contextmanager
def clean_output() -> Iterator[None]:
    """Clean and redact standard output and error while the context is open, and the traceback of an error that leaves it."""
    messages = MessageStream(sys.stderr, Redactor())
    sys.excepthook = partial(_print_traceback, messages)
    with redirect_stdout(CleanStream(sys.stdout, Redactor())), redirect_stderr(messages):
        yield


def _print_traceback(stream: MessageStream, kind: type[BaseException], err: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, or with `--debug` of any: its message may quote a credential."""
    import traceback

    stream.write("".join(traceback.format_exception(kind, err, trace)))


def hide_secrets(known: Iterable[str]) -> None:
    """Redact these secrets of a job, too, until the command ends."""
    redactor = Redactor(known)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, CleanStream):
            stream.redactor = redactor


def redact(text: str) -> str:
    """Return a text for people, clean and without secrets, for programs that write to the terminal themselves."""
    return clean_text(_find_redactor().text(_rewrite(text) if _rewrite else text))


def write_data(text: str) -> None:
    """Write data to standard output: what a user wrote or a job printed, with its secrets."""
    write = sys.stdout.write_data if isinstance(sys.stdout, CleanStream) else sys.stdout.write
    write(text)


def write_bytes(data: bytes) -> None:
    """Write a whole file to standard output."""
    with _raise_lost_output():
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


def write_page(path: Path, html: str, *, option: str) -> None:
    """Write a page to the file that an option names.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        path.write_text(html, encoding="utf-8", errors="replace")
    except OSError as err:
        hint = f"name another file with `{option}`"
        raise UsageError(f"cannot write `{path}`", cause=err.strerror or str(err), hint=hint) from err


def print_json(value: Any, *, indent: int | None = None, err: bool = False) -> None:
    """Print JSON without secrets to standard output, or with `err` to standard error.

    Characters that could harm a terminal are escaped.
    """
    stream = sys.stderr if err else sys.stdout
    write = stream.write_data if isinstance(stream, CleanStream) else stream.write
    write(format_json(_find_redactor().value(value), indent=indent) + "\n")
    stream.flush()


def _find_redactor() -> Redactor:
    """Return the redactor of the command; a live display may have replaced one of the streams."""
    streams = (stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, CleanStream))
    return next((stream.redactor for stream in streams if stream.redactor), None) or Redactor()


def open_log_output(*, raw: bool, keeps_colours: bool) -> TextIO:
    """Return standard output for log lines, which keep their secrets. `raw` keeps every byte, unless it is a terminal."""
    stream = find_stream(sys.stdout)
    return stream if raw and not stream.isatty() else cast("TextIO", CleanStream(stream, keeps_colours=keeps_colours))


def find_stream(stream: TextIO) -> TextIO:
    """Return the stream itself, for programs that move the cursor and clean their text themselves."""
    return stream.stream if isinstance(stream, CleanStream) else stream


class WaitPrinter:
    """Prints each wait to stderr, once per command: a server that does not answer lets many requests wait."""

    def __init__(self) -> None:
        """Nothing has been printed yet."""
        self._printed: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, what: str, seconds: float | None) -> None:
        """Print `waiting for WHAT (at most 40s)`."""
        from kfjob.base.units import format_duration

        with self._lock:
            if what in self._printed:
                return
            self._printed.add(what)
        limit = "" if seconds is None else f" (at most {format_duration(round(seconds))})"
        click.echo(f"{click.style('note: ', dim=True, fg='cyan')}waiting for {what}{limit}", err=True)


def find_width() -> int | None:
    """Return the columns of the terminal that shows standard output; None for a file or a pipe, which has no width."""
    if not find_stream(sys.stdout).isatty():
        return None
    import shutil  # it imports bz2 and lzma, which take a twentieth of the time of `kfjob --help`

    return shutil.get_terminal_size().columns


def wants_colour() -> bool | None:
    """Return False if the user wants no colours (https://no-color.org); None leaves it to the terminal."""
    return False if os.environ.get("NO_COLOR") else None


def colour_marks(text: str) -> str:
    """Return a message with the words `error:`, `warning:` and `hint:` in colour where they begin a line."""
    return re.sub(
        _MARK, lambda match: f"{match[1]}{click.style(f'{match[2]}:', fg=_MARKS[match[2]], bold=match[2] != 'hint')}", text
    )


def colour_states(text: str) -> str:
    """Return a table or a headline with the states of jobs and pods in colour."""
    return re.sub(_STATE, lambda match: click.style(match[1], fg=_STATES[match[1]]), text)
