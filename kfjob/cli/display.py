"""Displays of a followed job: plain lines on standard error, or JSON lines on standard output for programs."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from kfjob.api.reader import describe_ref
from kfjob.base.errors import KfjobError
from kfjob.base.text import plural
from kfjob.base.units import SECOND
from kfjob.cli.diagnose import diagnosis_json
from kfjob.cli.formatting import local_clock
from kfjob.cli.output import print_json
from kfjob.cli.reminders import SilenceReminder, StageReminder
from kfjob.cli.summary import read_program_lines, summarize
from kfjob.cli.view_json import progress_json, view_json
from kfjob.cli.view_text import news_text, progress_line
from kfjob.joblog.agents.agent_records import AgentEventKind
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.diagnose.rule import Role
from kfjob.joblog.events import JobChanged, PodPhase, Tick
from kfjob.joblog.program_output import OutputLine, ProgramOutput
from kfjob.joblog.view.job_view import JobView, News

if TYPE_CHECKING:
    from kfjob.api.reader import LiveReader
    from kfjob.joblog.events import Event

PROGRESS_EVERY = 5.0
"""Seconds between two progress lines of the plain display."""
CAUSE_AFTER = 5 * SECOND
"""Time after a failure in which the job may end."""
CATCH_UP_SECONDS = 3.0
"""Time after the end of the job in which every line is still shown; after it only the newest ones are."""


class Display:
    """Prints the events of a job as plain lines: one per event, and a progress line every few seconds."""

    def __init__(self, reader: LiveReader, output: ProgramOutput | None = None, *, has_ended: bool = False) -> None:
        """Show the job of `reader`, and the program's `output` if it is given; `has_ended`: the job ended before."""
        self._has_ended = has_ended
        self._backlog: list[tuple[int, tuple[int | None, str, str]]] = []  # with a time to sort by
        self.reader = reader
        self._output = output
        self._causes: set[tuple[str, str]] = set()
        self._pending: list[tuple[int | None, str, str]] = []  # messages about a failure that may end the job
        self._stages, self._silences = StageReminder(), SilenceReminder()
        self._symptoms = SymptomCollector()
        self._last_news: News | None = None
        self._last_progress = 0.0
        self._headline: str | None = None
        self._is_stalled = False  # in the headline
        self._place: tuple[float | None, int | None] = (None, None)  # epoch and step of the newest progress
        self._end: float | None = None  # when the end of the job was seen, in seconds of a monotonic clock
        self._is_cut = False  # lines of the logs were not read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def update(self, view: JobView, event: Event, now: float) -> None:
        """Process one event; `now` is in seconds of a monotonic clock."""
        if self._end is None and view.phase and view.phase.ended and not self._has_ended:
            self._end = now
        self._symptoms.feed(event, view)  # at once: the operator may delete the pods and their logs
        if self._output:
            self._show_output(self._output.feed(view, event), view.now)
        headline = view.headline if view.phase and (view.phase.ended or not view.pod_problems) else view.state
        if view.phase and headline != self._headline and not view.remark:  # the summary has the remark, news have the problems
            if not (view.stalled and self._is_stalled):  # the same with more minutes: the reminder of the silence says more
                self._announce(_find_time(event) or view.now, self.reader.ref.name, headline)
            self._headline, self._is_stalled = headline, view.stalled
        for news in self._take_news(view):
            self._announce(news.time, news.pod, news_text(news))
            pod = view.pods.get(news.pod)
            has_failed = pod and (pod.phase is PodPhase.FAILED or (pod.state and pod.state.restarts))
            if news.kind == AgentEventKind.WORKER_FAILED or (news.kind == "pod" and has_failed):
                self._show_cause(news, view)
        self._show_pending(view)
        if not self._has_ended:
            self.show_stage(view)
        if isinstance(event, Tick) and (text := self._silences.announce(view)):
            self._announce(view.now, self.reader.ref.name, text)
        place = (view.training.epoch, view.training.step)
        if place != self._place:
            self._place = place
            self.show_progress(view, now)

    def finish(self, view: JobView) -> None:
        """Print the messages of a job that had ended before, by time, and the summary."""
        for _, message in sorted(self._backlog, key=lambda entry: entry[0]):
            self.show_message(*message)
        if self._is_cut:
            view = self._read_again(view)
        self.show_summary(view)

    def set_cut(self) -> None:
        """Note that the end of the logs was not read in time: the summary needs another look at them."""
        self._is_cut = True

    def _read_again(self, view: JobView) -> JobView:
        """Return what the state and the whole logs show: progress may be in the lines that were not read."""
        from kfjob.api.view import read_view

        with suppress(KfjobError):
            return read_view(self.reader)
        return view

    def _announce(self, time: int | None, subject: str, text: str) -> None:
        """Print a message now, or with the others by time if the job had ended before: its state is read before its logs."""
        if self._has_ended:
            last = self._backlog[-1][0] if self._backlog else 0
            self._backlog.append((last if time is None else time, (time, subject, text)))
        else:
            self.show_message(time, subject, text)

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Print a line about the job or one of its pods."""
        clock = local_clock(time) if time else " " * 8
        print(f"{clock}  {subject}  {text}", file=sys.stderr, flush=True)  # noqa: T201 - this is the output

    def show_line(self, text: str) -> None:
        """Print a line of the program."""
        print(text, flush=True)  # noqa: T201 - this is the output

    def show_stage(self, view: JobView) -> None:
        """Print what the job does before its first step, and how long it has done so."""
        if text := self._stages.announce(view, job=self.reader.ref.name):
            self.show_message(view.now, self.reader.ref.name, text)

    def reads_all(self, pod: str) -> bool:
        """Return whether the display needs every line of the pod's log."""
        if self._output is None:
            return False
        self._output.is_late = self._end is not None and time.monotonic() - self._end > CATCH_UP_SECONDS
        return not self._output.is_late and self._output.needs(pod)

    def _show_output(self, lines: list[OutputLine], time: int | None) -> None:
        for line in lines:
            if line.pod:
                self.show_message(time, line.pod, "the program's output is that of this pod from here on")
            self.show_line(line.text)

    def _show_cause(self, news: News, view: JobView) -> None:
        """Note the cause of the first failure, once. It is printed if the job goes on; the summary of its end has it, too."""
        pod = view.pods.get(news.pod)
        if pod and pod.state and pod.state.ended_by_kfjob:
            return  # what it reports now is no cause
        issue = self.diagnosis(view).first_cause
        if issue is None or issue.role is Role.SYMPTOM or (issue.rule, issue.title) in self._causes:
            return
        self._causes.add((issue.rule, issue.title))
        texts = [f"cause: {issue.title} [{issue.rule}]", *([f"hint: {issue.remedy}"] if issue.remedy else [])]
        self._pending += [(news.time or view.now, issue.pod or news.pod, text) for text in texts]

    def _show_pending(self, view: JobView) -> None:
        """Print the causes of failures after which the job has gone on for a moment."""
        if view.phase and view.phase.ended:
            return
        ready = [message for message in self._pending if (view.now or 0) - (message[0] or 0) >= CAUSE_AFTER]
        self._pending = self._pending[len(ready) :]
        for message in ready:
            self._announce(*message)

    def show_progress(self, view: JobView, now: float) -> None:
        """Print the progress after a new step."""
        if now - self._last_progress >= PROGRESS_EVERY:
            self._last_progress = now
            self._announce(view.training.last_time, view.training.pod, progress_line(view))

    def show_summary(self, view: JobView) -> None:
        """Print the summary of a job that has ended."""
        print("\n" + "\n".join(self.end_output(view)), file=sys.stderr, flush=True)  # noqa: T201 - this is the output

    def end_output(self, view: JobView) -> list[str]:
        """Print the rest of the program's output, and return the lines of the summary."""
        left_out = 0
        if self._output:
            self._show_output(self._output.flush(), view.now)
            self._show_newest(self._output, view)
            left_out = self._output.warnings.count
        shown = self._output.pod if self._output and not self._output.left_out and not self._is_cut else ""
        return summarize(self.reader, view, self.diagnosis(view), left_out=left_out, shown=shown)

    def _show_newest(self, output: ProgramOutput, view: JobView) -> None:
        """Print the last lines of the program if lines before them were left out."""
        if not output.left_out and not self._is_cut:
            return
        lines: list[str] = []
        with suppress(KfjobError):
            lines = read_program_lines(self.reader, output.pod)
        name = shlex.quote(self.reader.ref.name)
        count = output.left_out - len(lines)
        left_out = "lines" if self._is_cut else plural(count, "line")
        if self._is_cut or count > 0:
            self.show_message(view.now, output.pod, f"… {left_out} left out; `kfjob logs {name}` shows them")
        for text in lines:
            self.show_line(text)

    def diagnosis(self, view: JobView) -> Diagnosis:
        """Return the diagnosis from the events so far."""
        return diagnose(self._symptoms, view, job=self.reader.ref.name)

    def _take_news(self, view: JobView) -> list[News]:
        unseen: list[News] = []
        for news in reversed(view.news):
            if news is self._last_news:
                break
            unseen.append(news)
        if view.news:
            self._last_news = view.news[-1]
        return unseen[::-1]


def _find_time(event: Event) -> int | None:
    """Return when the event happened; None if it does not say so."""
    return event.newest_time if isinstance(event, JobChanged) else getattr(event, "time", None)


class JsonDisplay(Display):
    """One JSON object per line on stdout, of kind `news` or `progress`, and at the end `end` with the whole view."""

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Print an object of kind `news`."""
        print_json({"kind": "news", "time": time, "subject": subject, "text": text})

    def _announce(self, time: int | None, subject: str, text: str) -> None:
        """Print the object at once: programs sort by its time."""
        self.show_message(time, subject, text)

    def show_stage(self, view: JobView) -> None:
        """Do nothing."""

    def _show_cause(self, news: News, view: JobView) -> None:
        """Do nothing: the last object holds the diagnosis."""

    def show_progress(self, view: JobView, now: float) -> None:  # noqa: ARG002 - programs get every step
        """Print an object of kind `progress`."""
        print_json({"kind": "progress"} | progress_json(view))

    def show_summary(self, view: JobView) -> None:
        """Print the object of kind `end`."""
        diagnosis = {"diagnosis": diagnosis_json(self.diagnosis(view))}
        print_json({"kind": "end"} | describe_ref(self.reader.ref) | view_json(view) | diagnosis)
