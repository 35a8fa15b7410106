"""The output of the program as a display shows it: the lines of one pod, the one that prints for the job.

The reports of kfjob's own trainer are left out: the display shows them as progress and as news.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from kfjob.events import Event, JobChanged, LogLine, PodChanged, Tick
from kfjob.observe.library_warnings import LibraryWarnings
from kfjob.observe.master import Master
from kfjob.observe.milestones import parse_milestone
from kfjob.observe.printers import predict_printer
from kfjob.observe.program_lines import ProgramLines
from kfjob.observe.progress import KFJOB_TRAINER, progress_reader
from kfjob.observe.view import JobView
from kfjob.units import SECOND

SILENT = 5 * SECOND
"""Silence of the shown pod after which another pod that prints takes over."""
OLD_LINES = 10
"""Lines to show from before the display began."""


class OutputLine(Struct, frozen=True):
    """One line of the program; `pod` is the pod that prints from here on, "" if that has not changed."""

    text: str
    pod: str = ""


class ProgramOutput:
    """Selects the lines of the pod that prints. Another pod takes over only if it prints and the shown pod does not."""

    def __init__(self, *, since: int | None = None) -> None:
        """Show all lines, or with `since` (nanoseconds) the last lines before that time and all after it."""
        self.pod = ""
        """The pod whose lines are shown."""
        self.warnings = LibraryWarnings()
        """The warnings of libraries, which are left out."""
        self._lines = ProgramLines()
        self._container = ""
        self._since = since
        self._old: deque[OutputLine] = deque(maxlen=OLD_LINES)
        self._last_line: int | None = None
        self._evidence: object = None
        self._shown_pod = ""

    def feed(self, view: JobView, event: Event) -> list[OutputLine]:
        """Read an event, with the view after it; return the lines to show."""
        self._choose_pod(view, event)
        if isinstance(event, Tick):
            return self.flush()
        if not isinstance(event, LogLine) or event.pod != self.pod:
            return []
        if event.container_id != self._container:
            self._container, self._lines = event.container_id, ProgramLines()
        texts = [text for text in self._lines.feed(event.text) if self.warnings.accepts(text)]
        self._last_line = event.time if texts else self._last_line
        lines = self._number([text for text in texts if not _is_trainer_report(view, text)])
        if self._since is None:
            return lines
        self._old.extend(lines)
        return self.flush() if event.time is not None and event.time >= self._since else []

    def flush(self) -> list[OutputLine]:
        """Return the lines that wait: nothing else happens at present."""
        lines = [*self._old, *self._number(self._lines.flush())]
        self._old.clear()
        self._since = None
        return lines

    def _number(self, texts: list[str]) -> list[OutputLine]:
        """Return lines of the shown pod; the first after another pod's lines names its pod."""
        lines = []
        for text in texts:
            is_handover = bool(self._shown_pod) and self._shown_pod != self.pod
            lines.append(OutputLine(text, self.pod if is_handover else ""))
            self._shown_pod = self.pod
        return lines

    def _choose_pod(self, view: JobView, event: Event) -> None:
        """Choose the pod again where something has changed: the search costs too much for every line."""
        evidence = (view.training.pod, len(view.pods), view.rounds[-1:])
        if evidence == self._evidence and not isinstance(event, PodChanged | JobChanged | Tick):
            return
        self._evidence = evidence
        pod = find_printing_pod(view)
        if pod != self.pod and self._may_take_over(view, pod):
            self.pod = pod
            self._lines = ProgramLines()

    def _may_take_over(self, view: JobView, pod: str) -> bool:
        before = view.pods.get(self.pod)
        if before is None or not before.live or self._shown_pod != self.pod:
            return True
        has_rank = pod in view.pods and view.pods[pod].group_rank == 0 and before.group_rank not in {None, 0}
        return has_rank or self._last_line is None or (view.now or 0) - self._last_line > SILENT


def _is_trainer_report(view: JobView, text: str) -> bool:
    """Return whether the line is a report of kfjob's trainer, which a display shows as progress or as news."""
    if view.config.trainer != KFJOB_TRAINER:
        return False
    return parse_milestone(text) is not None or progress_reader(KFJOB_TRAINER).read(text) is not None


def find_printing_pod(view: JobView) -> str:
    """Return the pod that prints for the job; before anything shows it, the one with the lowest name; "" without pods."""
    if isinstance(view.master, Master):
        return view.master.pod
    return predict_printer(view.pods.values(), view.config.workers)
