"""The summary of a job that has ended: its state, loss, files, next commands and first cause."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.backends import folder
from kfjob.backends.base import LogRange
from kfjob.base.errors import KfjobError
from kfjob.base.text import plural
from kfjob.cli.diagnose import first_cause
from kfjob.cli.formatting import format_age, sparkline
from kfjob.cli.view_text import last_line_rows, no_progress_text, outcome_text, progress_line
from kfjob.joblog.agents.program_lines import ProgramLines, condense_lines
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.events import JobPhase, LogLine
from kfjob.joblog.master.evidence import Confidence, Master, describe_ranks
from kfjob.joblog.progress.reading import FormatName
from kfjob.joblog.progress.training import format_loss
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.progress_text import speed_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfjob.api.reader import LiveReader

LOG_TAIL = 15
"""Lines of a failed pod's program in the summary."""
LOG_READ = 400
"""Lines to read of its log for them: the agent writes more lines than the program after a failure."""


def summarize(reader: LiveReader, view: JobView, diagnosis: Diagnosis, *, left_out: int = 0, shown: str = "") -> list[str]:
    """Return the summary of a job that has ended: state, master, loss, files, next commands, first cause.

    `shown` is a pod whose output the user has seen. What the first cause says is not repeated in other words.
    """
    duration = ""
    if view.job and view.job.created:
        duration = f" after {format_age(view.job.created, view.job.ended or view.now or view.job.created)}"
    phase, reason = str(view.phase or ""), ""
    if view.headline.startswith(f"{phase}: ") or view.remark:
        reason = view.headline.removeprefix(phase)
    told = "" if diagnosis.first_cause and view.phase is JobPhase.FAILED else reason
    lines = [f"{reader.ref.name}: {view.headline.removesuffix(reason)}{duration}{told}"]
    rows = list(_summary_rows(reader, view, diagnosis))
    if left_out:
        text = f"{plural(left_out, 'line')} with warnings of libraries; `kfjob logs {shlex.quote(reader.ref.name)}` shows them"
        rows.insert(-1, ("left out", text))
    lines += [f"  {label:<10} {value}" for label, value in rows]
    if diagnosis.first_cause:
        lines += ["", *first_cause(diagnosis)]
    if view.phase is JobPhase.FAILED and not (diagnosis.first_cause and diagnosis.first_cause.line):
        lines += _failed_log(reader, view, diagnosis, shown)
    return lines


def _summary_rows(reader: LiveReader, view: JobView, diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    if isinstance(view.master, Master) and (view.training.lines or view.master.confidence is not Confidence.PREDICTED):
        ranks = describe_ranks(view.master.global_ranks)
        yield "master", f"{view.master.pod} ({', '.join(filter(None, (view.master.confidence, ranks)))})"
    training = view.training
    if training.loss is not None:
        steps = f" in {plural(training.steps, 'step')}" if training.steps is not None else ""
        place = f" (step {training.first_step}, where the log begins)" if training.begins_late else ""
        first = f"{format_loss(training.first_loss)}{place} → " if training.first_loss is not None else ""
        epoch = f", epoch {training.epoch:g}" if training.epoch is not None else ""
        curve = sparkline([point.loss for point in training.curve])
        yield "loss", f"{first}{format_loss(training.loss)}{steps}{epoch}  {curve}"
    if training.loss is None and training.lines:
        yield "progress", progress_line(view)
    elif text := no_progress_text(view):
        yield "progress", "none was read" if view.unread_reported else text  # the news show the lines
    yield from last_line_rows(diagnosis)
    if training.format == FormatName.CUSTOM and (speed := speed_text(training)):
        yield "speed", speed
    if view.evaluation_loss is not None:
        yield "eval loss", format_loss(view.evaluation_loss)
    if view.outcome:
        yield "outcome", outcome_text(view)
    if view.checkpoint:
        yield "checkpoint", view.checkpoint.path
    if view.failure and view.phase is not JobPhase.SUCCEEDED and not view.has_trained_since_failure:
        yield "failed", f"{view.failure}"
    yield "logs", str(_logs_folder(reader) or f"kfjob logs {shlex.quote(reader.ref.name)}")
    is_stopped = view.phase is JobPhase.STOPPED
    commands = ["relaunch {}"] if is_stopped else ["status {}", "logs {} --master", "relaunch {}", "stop {}"]
    yield "next", " · ".join(f"kfjob {command.format(shlex.quote(reader.ref.name))}" for command in commands)


def _failed_log(reader: LiveReader, view: JobView, diagnosis: Diagnosis, shown: str) -> list[str]:
    """Return the end of the log of the pod that failed first, unless the user has seen it."""
    if not view.pod_problems:
        return []
    first_pod = diagnosis.first_cause.pod if diagnosis.first_cause else ""
    problem = next((problem for problem in view.pod_problems if problem.pod == first_pod), view.pod_problems[0])
    lines: list[str] | None = None
    with suppress(KfjobError):
        lines = read_program_lines(reader, problem.pod)
    lines = lines and ([] if problem.pod == shown else lines)
    state = view.pods[problem.pod].state if problem.pod in view.pods else None
    losses = [f"  {state.loss}"] if state and state.loss else []
    if lines or losses:
        return ["", f"last lines of `{problem.pod}` ({problem.reason}):", *(f"  {line}" for line in lines or ()), *losses]
    is_silent = lines is not None and problem.pod != shown
    return ["", f"`{problem.pod}` ({problem.reason}) printed nothing"] if is_silent else []


def read_program_lines(reader: LiveReader, pod: str) -> list[str]:
    """Return the last lines of the program in a pod's log; the log's last lines if the program printed none."""
    program, lines = ProgramLines(), []
    texts = [line.text for line in reader.logs(pod, LogRange(tail=LOG_READ)) if isinstance(line, LogLine)]
    for text in texts:
        lines += program.feed(text)
    return condense_lines([*lines, *program.flush()])[-LOG_TAIL:] or texts[-LOG_TAIL:]


def _logs_folder(reader: LiveReader) -> Path | None:
    """Return the folder of the log files, if they are on this machine and no stop has archived them."""
    if not reader.ref.capabilities.runs_on_this_machine:
        return None
    root, ref = reader.target.settings.state / "local", reader.ref
    path = folder.launch_folder(root, ref.namespace, ref.name, ref.launch)
    return path if path.is_dir() else None
