"""Views as text. Pure: callers pass the time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from kfjob.base.text import format_figure, join_names, plural
from kfjob.cli.formatting import format_age, format_duration, format_table, sparkline, utc_clock
from kfjob.joblog.agents.agent_records import RendezvousResult
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue
from kfjob.joblog.events import JobPhase, ReportedProgress
from kfjob.joblog.master.evidence import Master, format_ranks
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.progress.training import Training, describe_bad_loss, format_loss
from kfjob.joblog.view.job_view import JobView, News
from kfjob.joblog.view.progress_text import speed_text, step_text
from kfjob.joblog.view.silence import describe_last_lines, describe_next_step, describe_silence, find_silence
from kfjob.joblog.view.stages import find_stage

MAX_METRICS = 8
"""Metrics of a program's own report that are shown."""
MAX_ROUNDS = 5
"""Rendezvous rounds in a table; the newest ones are shown."""


def progress_line(view: JobView) -> str:
    """Return `step 120/300 · loss 4.2104 (7.61 at first) · 35.1 samples/s · lr 0.000812 · 12s left`; empty without progress."""
    training = view.training
    if training.step is None and training.epoch is None and training.loss is None:
        return ""
    parts = [step_text(view), loss_text(training), evaluation_text(view), speed_text(training)]
    parts += [lr_text(training), mfu_text(training), setbacks_text(training), remaining_text(view)]
    return " · ".join(part for part in parts if part)


def no_progress_text(view: JobView) -> str:
    """Return that no progress was read, with a pattern for lines that may be progress; "" without progress to expect."""
    if view.training.lines:
        return ""
    if suggestion := view.suggestion or (view.remark and view.unread_lines):
        return f"none was read; {suggestion[1]}"
    return "none was printed: no line of the program is read as training progress" if view.remark else ""


def restarts_text(view: JobView) -> str:
    """Return `1 of 3, after job-worker-0, rank 3, exit code 1`; "" for a job whose training processes were never restarted."""
    if view.restarts is None:
        return ""
    return f"{view.restarts}, after {view.failure}" if view.failure else str(view.restarts)


def reported_text(report: ReportedProgress, now: int | None) -> str:
    """Return `42 % · 2m00s left · loss 0.123 (12s ago)`: what the program has posted to the status of its TrainJob."""
    parts = [] if report.percent is None else [f"{report.percent} %"]
    if report.remaining_seconds is not None:
        parts.append(f"{format_duration(report.remaining_seconds)} left")
    parts += [f"{name} {value}" for name, value in list(report.metrics.items())[:MAX_METRICS]]
    age = f" ({format_age(report.time, now)} ago)" if report.time and now else ""
    return " · ".join(parts) + age


def guard_text(view: JobView) -> str:
    """Return `1 relaunch, the last after step 250: pod lost`, or why the guard gave the job up; "" if it did nothing."""
    if not view.relaunches and not view.guard_decision:
        return ""
    from kfjob.guard.facts import read_history

    parts = []
    if history := read_history(view.relaunches):
        last = history[-1]
        place = f" after step {last.step}" if last.step is not None else ""
        parts.append(f"{plural(len(history), 'relaunch', 'relaunches')}, the last{place}: {last.reason}")
    if view.guard_decision:
        parts.append(f"gave up: {view.guard_decision}")
    return "; ".join(parts)


def loss_text(training: Training) -> str:
    """Return `loss 4.2104 (7.61 at first)`."""
    return "" if training.loss is None else f"loss {format_loss(training.loss)}{first_loss_text(training)}"


def evaluation_text(view: JobView) -> str:
    """Return `eval loss 4.3120`."""
    return "" if view.evaluation_loss is None else f"eval loss {format_loss(view.evaluation_loss)}"


def first_loss_text(training: Training) -> str:
    """Return ` (7.61 at first)`, or the step where a log without its beginning begins; empty until the loss differs."""
    if training.first_loss is None or training.first_loss == training.loss:
        return ""
    place = f"at step {training.first_step}, where the log begins" if training.begins_late else "at first"
    return f" ({format_figure(training.first_loss)} {place})"


def lr_text(training: Training) -> str:
    """Return `lr 0.000812`."""
    return "" if training.lr is None else f"lr {format_figure(training.lr, 3)}"


def mfu_text(training: Training) -> str:
    """Return `MFU 41.0 %`."""
    return "" if training.mfu is None else f"MFU {100 * training.mfu:.1f} %"


def remaining_text(view: JobView) -> str:
    """Return `2m40s left` for a job that has steps left; with `~` the time to the end of an epoch, or to the end of a bar."""
    if not view.running:
        return ""
    if view.eta is not None and view.training.step == view.total and view.eta < 1:
        return ""  # the job evaluates or saves after its last step
    if view.eta is not None:
        duration = format_duration(view.eta)
        return f"~{duration} left to step {view.total}" if view.is_eta_of_bar else f"{duration} left"
    return "" if view.epoch_eta is None else f"~{format_duration(view.epoch_eta)} left in this epoch"


def setbacks_text(training: Training) -> str:
    """Return `2 steps skipped, 1 roll-back`; empty if every step counted."""
    skipped = f"{plural(training.skipped, 'step')} skipped" if training.skipped else ""
    rolled_back = plural(training.rolled_back, "roll-back") if training.rolled_back else ""
    return ", ".join(part for part in (skipped, rolled_back) if part)


def news_text(news: News) -> str:
    """Return the line of a piece of news, with its kind in front unless the text begins with it."""
    is_complete = news.kind == "pod" or news.text.lower().startswith(news.kind)
    return news.text if is_complete else f"{news.kind}: {news.text}"


def pods_table(view: JobView, now: int) -> str:
    """Return the columns of `kubectl get pods`, the node and the global ranks of every pod, the job's own etcd first."""
    rows = []
    for pod in (*((PodView(view.store.pod, view.store),) if view.store else ()), *view.pods.sort()):
        state = pod.state
        is_ready = state is not None and state.ready
        created = state.created if state else None
        rows.append(
            (
                pod.name,
                "1/1" if is_ready else "0/1",
                state.status if state else "Unknown",
                str(pod.restarts),
                format_age(created, now),
                pod.node or "-",
                format_ranks(pod.global_ranks) or "-",
            )
        )
    return format_table(("NAME", "READY", "STATUS", "RESTARTS", "AGE", "NODE", "RANKS"), rows)


def status_text(view: JobView, *, name: str, now: int, diagnosis: Diagnosis | None = None, source: str = "") -> str:
    """Return the output of `kfjob status`, with the headline, the first cause and the last lines of the diagnosis.

    `source` names the job on a command line, if it is not `name`.
    """
    created = view.job.created if view.job else None
    state = diagnosis.headline if diagnosis and view.is_end_unknown else view.state
    cause = diagnosis.first_cause if diagnosis and diagnosis.explained else None
    lines = [format_table(("NAME", "STATE", "AGE"), [(name, state, format_age(created, now))]), ""]
    lines.append(pods_table(view, now))
    rows = [
        f"{label:<10} {value}"
        for label, value in (
            *_status_rows(view, name),
            *last_line_rows(diagnosis),
            *_cause_rows(view, source or shlex.quote(name), cause),
        )
        if value
    ]
    return "\n".join([*lines, "", *rows] if rows else lines)


def _status_rows(view: JobView, name: str) -> Iterator[tuple[str, str]]:
    yield "reason", view.reason
    if isinstance(view.master, Master):
        yield "master", f"{view.master.pod} ({view.master.confidence})"
    yield "progress", progress_line(view) or no_progress_text(view)
    if view.job and view.job.reported and not view.training.lines:
        yield "reported", reported_text(view.job.reported, view.now)
    yield "stage", find_stage(view, job=name).text
    if silence := find_silence(view):
        yield "silent", describe_silence(silence)
        yield from (("", text) for text in describe_last_lines(silence))
        yield "next", describe_next_step(silence)
    yield "warning", describe_bad_loss(view.training)
    yield "read from", source_text(view)
    yield "restarts", restarts_text(view)
    yield "guard", guard_text(view)
    yield "lost", _lost_logs_text(view)
    yield "loss", sparkline([point.loss for point in view.training.curve])
    if view.checkpoint:
        yield "checkpoint", f"{view.checkpoint.name}  {view.checkpoint.path}"
    yield "outcome", outcome_text(view)


def last_line_rows(diagnosis: Diagnosis | None) -> Iterator[tuple[str, str]]:
    """Yield the program's last lines by pod if the success of the job is remarkable."""
    if diagnosis is None or not diagnosis.remark:
        return
    label = "last lines"
    for pod, texts in diagnosis.last_lines:
        for text in texts:
            yield label, f"{pod}  {text}"
            label = ""
    if not diagnosis.last_lines and not diagnosis.first_cause:  # a cause is shown instead of the last lines
        yield label, "the program has printed nothing"


def _lost_logs_text(view: JobView) -> str:
    """Return the pods whose log is incomplete, or of which no log of an earlier container is left; "" if there is none."""
    pods = view.pods.sort()
    names = [f"`{pod.name}`" for pod in pods if pod.restarts and not pod.previous_ids]
    losses = [f"`{pod.name}`: {pod.state.loss}" for pod in pods if pod.state and pod.state.loss]
    before = [f"no log is left of what {join_names(names)} printed before the restart"] if names else []
    return "; ".join([*losses, *before])


def _cause_rows(view: JobView, source: str, cause: Issue | None) -> Iterator[tuple[str, str]]:
    """Yield why a job has failed, and the command that shows more."""
    if view.phase is not JobPhase.FAILED and cause is None:
        return
    if cause is not None:
        places = (
            f"at {cause.place}" if cause.place else "",
            f"in {cause.pod}" if cause.pod and cause.pod not in cause.title else "",
        )
        yield "cause", " ".join(filter(None, (cause.title, *places)))
    if not view.is_end_unknown:
        yield "next", f"kfjob diagnose {source}"


def source_text(view: JobView) -> str:
    """Return from which lines the general reader took the progress."""
    return f"lines of {view.training.pod} like `{view.training.template}`" if view.training.template else ""


def outcome_text(view: JobView) -> str:
    """Return how the trainer ended, with its reason."""
    if not view.outcome:
        return ""
    if untrained := untrained_text(view):
        return f"{view.outcome.outcome}: {untrained}"
    return f"{view.outcome.outcome}: {view.outcome.reason}" if view.outcome.reason else view.outcome.outcome


def untrained_text(view: JobView) -> str:
    """Return that the run began at its last step, and how to train on; "" if it has trained."""
    resume, outcome = view.resume, view.outcome
    if not resume or not outcome or outcome.outcome != "finished" or view.training.lines:
        return ""
    if resume.path is None or outcome.checkpoint != resume.path:
        return ""
    steps = f"step {outcome.step} of {view.total or outcome.step}"
    advice = "`kfjob relaunch JOB --set train.max_steps=STEPS` trains on"
    return f"nothing was trained: checkpoint {resume.name} is at {steps}; {advice}"


def rounds_text(view: JobView) -> str:
    """Return a table of all pods: group rank and global ranks in each of the newest rounds; `*` marks the master."""
    rounds = view.rounds[-MAX_ROUNDS:]
    master = view.master.pod if isinstance(view.master, Master) else ""
    times = [utc_clock(round_.first_line.resolve_time(view.reference_time)) for round_ in rounds]
    rows = []
    for pod in view.pods.sort():
        status = pod.state.status if pod.state else "-"
        ranks = [
            next((_ranks_text(member.result) for member in round_.members if member.pod == pod.name), "-") for round_ in rounds
        ]
        rows.append(["*" if pod.name == master else "", pod.name, pod.node or "-", status, *ranks])
    table = format_table(("", "POD", "NODE", "STATUS", *times), rows)
    older = len(view.rounds) - len(rounds)
    return f"{table}\n{plural(older, 'older round')} not shown; `-o json` shows all" if older else table


def _ranks_text(result: RendezvousResult) -> str:
    """Return `0 (0-7)`: the group rank, then the global ranks."""
    group = "?" if result.group_rank is None else str(result.group_rank)
    return f"{group} ({format_ranks(result.global_ranks)})" if result.global_ranks else group
