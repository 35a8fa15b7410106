"""The output of the program as a display shows it: the lines of one pod, the one that prints for the job.

The reports of kfjob's own trainer are left out: the display shows them as progress and as news.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from kfjob.base.patterns import Pattern
from kfjob.base.units import SECOND
from kfjob.joblog.agents.program_lines import ProgramLines
from kfjob.joblog.diagnose.engine.matching import match_rules
from kfjob.joblog.diagnose.rule import Severity, Subject
from kfjob.joblog.events import Event, JobChanged, LinesSkipped, LogLine, PodChanged, PodPhase, Tick
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.master.printing_pod import predict_printer
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER, progress_reader
from kfjob.joblog.progress.milestones import parse_milestone
from kfjob.joblog.view.job_view import JobView

SILENT = 5 * SECOND
"""Silence of the shown pod after which another pod that prints takes over."""
FEW_PODS = 8
"""Pods of which every line is read."""
HELD_LINES = 200
"""Newest lines of a pod that are shown if it turns out to be the one that prints."""
OLD_LINES = 10
"""Lines to show from before the display began."""


class OutputLine(Struct, frozen=True):
    """One line of the program; `pod` is the pod that prints from here on, "" if that has not changed."""

    text: str
    pod: str = ""


class _PodReader:
    """The program's lines of one container, and those that have not been shown."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.lines = ProgramLines()
        self.held: deque[tuple[int | None, str]] = deque(maxlen=HELD_LINES)


class ProgramOutput:
    """Selects the lines of the pod that prints. Another pod takes over only if it prints and the shown pod does not."""

    def __init__(self, *, since: int | None = None) -> None:
        """Show all lines, or with `since` (nanoseconds) the last lines before that time and all after it."""
        self.pod = ""
        """The pod whose lines are shown."""
        self.is_late = False
        """Whether the job has ended and its lines come too slowly: after the first gap no line is shown."""
        self.left_out = 0
        """Lines of the shown pod that were left out because they came too late."""
        self.warnings = LibraryWarnings()
        """The warnings of libraries, which are left out."""
        self._readers: dict[str, _PodReader] = {}
        self._since = since
        self._old: deque[OutputLine] = deque(maxlen=OLD_LINES)
        self._last_line: int | None = None
        self._evidence: object = None
        self._shown_pod = ""
        self._has_few_pods = True

    def feed(self, view: JobView, event: Event) -> list[OutputLine]:
        """Read an event, with the view after it; return the lines to show."""
        self._has_few_pods = len(view.pods) <= FEW_PODS
        held = self._choose_pod(view, event)
        if isinstance(event, Tick):
            return [*self._select(view, held), *self.flush()]
        if self.is_late and isinstance(event, LinesSkipped) and event.pod == self.pod:
            self.left_out += event.count
        if not isinstance(event, LogLine):
            return self._select(view, held)
        if self.left_out and event.pod == self.pod:
            self.left_out += 1
            return []
        texts = self._read(event)
        if event.pod != self.pod:
            return self._select(view, held)
        self._last_line = event.time if texts else self._last_line
        lines = self._select(view, [*held, *texts])
        if self._since is None:
            return lines
        self._old.extend(lines)
        return self.flush() if event.time is not None and event.time >= self._since else []

    def needs(self, pod: str) -> bool:
        """Return whether every line of the pod may be shown: of few pods each may turn out to be the one that prints."""
        return pod == self.pod or self._has_few_pods

    def _read(self, event: LogLine) -> list[str]:
        """Return the program's lines that are now complete; those of a pod that is not shown are held as well."""
        reader = self._readers.get(event.pod)
        if reader is None or reader.container != event.container_id:
            reader = self._readers[event.pod] = _PodReader(event.container_id)
        texts = reader.lines.feed(event.text)
        if event.pod != self.pod:
            reader.held.extend((event.time, text) for text in texts)
        return texts

    def _select(self, view: JobView, texts: list[str]) -> list[OutputLine]:
        """Return the lines to show."""
        return self._number([text for text in texts if self.warnings.accepts(text) and not _is_trainer_report(view, text)])

    def flush(self) -> list[OutputLine]:
        """Return the lines that wait: nothing else happens at present."""
        reader = self._readers.get(self.pod)
        lines = [*self._old, *self._number(reader.lines.flush() if reader else [])]
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

    def _choose_pod(self, view: JobView, event: Event) -> list[str]:
        """Choose the pod again where something has changed: the search costs too much for every line.

        Returns the lines that another pod has printed since the newest line that was shown, if it takes over.
        """
        evidence = (view.training.pod, len(view.pods), view.rounds[-1:])
        if evidence == self._evidence and not isinstance(event, PodChanged | JobChanged | Tick):
            return []
        self._evidence = evidence
        pod = find_printing_pod(view)
        if pod == self.pod or not self._may_take_over(view, pod):
            return []
        self.pod = pod
        reader = self._readers.get(pod)
        if reader is None:
            return []
        shown = self._last_line
        texts = [text for time, text in reader.held if shown is None or time is None or time > shown]
        reader.held.clear()
        return texts

    def _may_take_over(self, view: JobView, pod: str) -> bool:
        before = view.pods.get(self.pod)
        if before is None or self._shown_pod != self.pod or pod == view.training.pod:
            return True  # the shown lines are those of the pod whose progress is read
        if self.pod == view.training.pod and before.state is not None and before.state.phase is PodPhase.SUCCEEDED:
            return self._last_line is None or (view.now or 0) - self._last_line > SILENT  # the others end a moment later
        if not before.live:
            return True
        has_rank = pod in view.pods and view.pods[pod].group_rank == 0 and before.group_rank not in {None, 0}
        return has_rank or self._last_line is None or (view.now or 0) - self._last_line > SILENT


def _is_trainer_report(view: JobView, text: str) -> bool:
    """Return whether a display shows the line as progress or as news, as a report of kfjob's trainer is."""
    if parse_milestone(text) is not None:
        return True
    return view.config.trainer == KFJOB_TRAINER and progress_reader(KFJOB_TRAINER).read(text) is not None


def find_printing_pod(view: JobView) -> str:
    """Return the pod that prints for the job; before anything shows it, the one with the lowest name; "" without pods."""
    if isinstance(view.master, Master):
        return view.master.pod
    return predict_printer(view.pods.values(), view.config.workers)


_RANK = r"(?:\[[\w:/ -]{1,40}\]:? ?)?"
_TIME = r"\d{4} \d\d:\d\d:\d\d[.\d]*"
_NATIVE = Pattern(
    rf"{_RANK}\[[IWV]{_TIME} \S+:\d+\]"  # c10: [W1121 06:37:49.644 socket.cpp:752] …
    rf"|{_RANK}[IWV]{_TIME} +(?:\d+ +)?\S*/?torch/\S+\]"
    r"|\[Gloo\] Rank \d+ is connected to "
    r"|(?:\d{4}-\d\d-\d\d \S+: )?[IW] ?(?:\d{4} \S+ +\d+ )?(?:tensorflow|external|xla)/\S+\]"
    r"|WARNING: All log messages before absl::InitializeLog"
)
_PYTHON = Pattern(rf"{_RANK}(?:\S*/(?:site-packages|dist-packages|lib/python3\.\d+)/|<frozen )\S.*?:\d+: \w*Warning: ")
"""Python's form of a warning in a file of a library: `/venv/lib/python3.12/site-packages/x.py:3: UserWarning: …`."""
_SOURCE_INDENT = "  "
_LAUNCH = "The module torch.distributed.launch is deprecated"
_LAUNCH_TEXT = Pattern(
    r"and will be removed in future|Note that --use-env is set|If your script expects "
    r"|change it to read from `os\.environ"
    r"|https://pytorch\.org/docs/stable/distributed\.html#launch-utility|further instructions|$"
)
"""The further lines of that warning (torch 2.15, distributed/launch.py)."""


class LibraryWarnings:
    """Tells the warnings of libraries from the other lines of one log, and counts them."""

    def __init__(self) -> None:
        """Begin where the log begins."""
        self.count = 0
        self._may_have_source = False  # the line after a Python warning may quote its source
        self._is_launch = False  # the lines of the launcher's warning follow

    def accepts(self, text: str) -> bool:
        """Return whether the line is worth showing."""
        if self._may_have_source and text.startswith(_SOURCE_INDENT):
            self._may_have_source = False
            self.count += 1
            return False
        if self._is_launch and _LAUNCH_TEXT.match(text):
            self.count += 1
            return False
        is_python = _PYTHON.match(text) is not None
        self._may_have_source = is_python
        self._is_launch = is_python and _LAUNCH in text
        if not is_python and _NATIVE.match(text) is None:
            return True
        if any(match.rule.severity is Severity.ERROR for match in match_rules(Subject.LOG, text)):
            self._may_have_source = False
            return True
        self.count += 1
        return False
