"""Tell the user what a command waits for."""

from __future__ import annotations

import threading

import click


class WaitPrinter:
    """Prints each wait to stderr, once per command: a server that does not answer lets many requests wait."""

    def __init__(self) -> None:
        """Nothing has been printed yet."""
        self._printed: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, what: str, seconds: float | None) -> None:
        """Print `waiting for WHAT (at most 40s)`."""
        from kfjob.validation.written_numbers import format_duration

        with self._lock:
            if what in self._printed:
                return
            self._printed.add(what)
        limit = "" if seconds is None else f" (at most {format_duration(round(seconds))})"
        click.echo(f"{click.style('note: ', dim=True, fg='cyan')}waiting for {what}{limit}", err=True)
