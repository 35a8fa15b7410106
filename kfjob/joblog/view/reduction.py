"""The view of a job after each of its events: displays, reports and waits call `reduce(view, event)` for every event."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kfjob.base.text import describe_exit
from kfjob.base.units import SECOND
from kfjob.joblog.agents.agent_log import AgentLog
from kfjob.joblog.agents.agent_records import AgentEvent, AgentEventKind, AgentRecord, RendezvousResult
from kfjob.joblog.events import (
    Event,
    JobChanged,
    KubernetesEvent,
    LinesSkipped,
    LogGap,
    LogLine,
    OpenLine,
    PodChanged,
    PodPhase,
    StoreChanged,
    Tick,
    WorkloadStatus,
)
from kfjob.joblog.lines.line_text import shorten_line
from kfjob.joblog.master.printing_pod import choose_training
from kfjob.joblog.pods.pod_problems import add_event, describe_queue_status, is_news
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.pods.rounds import Member, add_member
from kfjob.joblog.progress import milestones
from kfjob.joblog.progress.exact_formats import progress_reader
from kfjob.joblog.progress.general.unread_lines import find_unread
from kfjob.joblog.progress.milestones import (
    Checkpoint,
    DamagedCheckpoint,
    DataMismatch,
    Evaluation,
    Milestone,
    Resume,
    Setback,
    Start,
    StepMetrics,
    TrainerOutcome,
)
from kfjob.joblog.progress.reading import LineReading
from kfjob.joblog.progress.training import Training, describe_bad_loss
from kfjob.joblog.progress.training_transitions import add_metrics, add_reading, add_setback
from kfjob.joblog.view.job_view import JobView, News, Restarts, WorkerFailure

MAX_NEWS = 50
"""News of a job in a view."""
RECENT_NEWS = 16
"""Newest news in which a line of another rank is looked for, so that it is reported once."""
MAX_REPORTED_LAYOUTS = 8
"""Layouts of progress lines that news name."""
MIN_REPORTED_LINES = 20
"""Lines of one layout that look like progress before news say that they are not read: programs may still begin."""
MAX_PART_LENGTH = 16 * 1024
"""Length of a line whose timestamp is exact. containerd splits longer lines, and the kubelet joins the parts; they keep the
time of the first part."""
_REPORTED_KINDS = {
    AgentEventKind.WORKER_FAILED,
    AgentEventKind.RESTARTING,
    AgentEventKind.MEMBERSHIP,
    AgentEventKind.SIGNAL_RECEIVED,
    AgentEventKind.FAILED,
    AgentEventKind.SUCCEEDED,
}


def reduce(view: JobView, event: Event) -> JobView:
    """Return the view after one more event."""
    match event:
        case LogLine() | OpenLine():
            view = _add_line(view, event)
        case PodChanged():
            view = _change_pod(view, event)
        case StoreChanged(state=state):
            view = _add_pod_news(_with_time(replace(view, store=state), state.time), state, before=view.store)
        case JobChanged():
            view = _with_time(replace(view, job=event, is_current=view.is_current and not event.phase.ended), event.newest_time)
        case LinesSkipped():
            view = _skip_lines(view, event)
        case LogGap():
            view = _add_gap(view, event)
        case KubernetesEvent():
            view = _add_cluster_event(view, event)
        case WorkloadStatus():
            view = _change_workload(view, event)
        case Tick():
            has_ended = view.phase is not None and view.phase.ended  # its time stands still
            now = view.now if has_ended else max(view.now or event.time, event.time)
            view = replace(view, now=now, is_current=event.is_current)
    return view


def reduce_all(view: JobView, events: Iterable[Event]) -> JobView:
    """Return the view after all of these events."""
    for event in events:
        view = reduce(view, event)
    return view


def _with_time(view: JobView, time: int | None) -> JobView:
    if time is None:
        return view
    return replace(view, now=max(view.now or time, time), reference_time=max(view.reference_time or time, time))


def _with_pod(view: JobView, pod: PodView) -> JobView:
    return replace(view, pods=view.pods.with_pod(pod))


def _with_news(view: JobView, *news: News) -> JobView:
    return replace(view, news=(*view.news, *news)[-MAX_NEWS:])


_PULL_REASONS = {"ErrImagePull", "ImagePullBackOff"}


def _change_pod(view: JobView, event: PodChanged) -> JobView:
    pod = view.pods.get(event.pod, PodView(event.pod))
    view = _with_time(_with_pod(view, pod.with_state(event)), event.time or event.started or event.created)
    return _add_pod_news(view, event, before=pod.state)


def _add_pod_news(view: JobView, event: PodChanged, *, before: PodChanged | None) -> JobView:
    """Report a new state of a pod, or that of the job's own etcd."""
    if before and (before.phase, before.reason, before.restarts) == (event.phase, event.reason, event.restarts):
        return view
    if before and {before.reason, event.reason} == _PULL_REASONS:
        return view  # the kubelet alternates between them, with the same cause
    text = _describe_state(event)
    if before and event.restarts > before.restarts and event.phase is PodPhase.RUNNING and not event.reason:
        text = _describe_restart(event)
    return _with_news(view, News(event.time, event.pod, "pod", text))


def _describe_state(event: PodChanged) -> str:
    """Return `Running`, `Failed: Error (message)` or `Ended, because …`, which is no failure of this pod."""
    reason = f"{event.reason} ({event.message})" if event.reason and event.message else event.reason or event.message
    text = f"{event.phase}: {reason}" if reason else str(event.phase)
    if event.ended_by_kfjob and event.phase.ended and event.message:
        text = event.message[0].upper() + event.message[1:]
    return f"{text}; {event.loss}" if event.loss else text


def _describe_restart(event: PodChanged) -> str:
    """Return `Running again (restart 2, after exit code 5)`."""
    end = "" if event.exit_code is None else f", after {describe_exit(event.exit_code)}"
    if event.last_reason == "OOMKilled":
        end += f", {event.last_reason}"
    return f"{event.phase} again (restart {event.restarts}{end})"


def _add_gap(view: JobView, event: LogGap) -> JobView:
    pod = view.pods.get(event.pod, PodView(event.pod))
    # a block that was cut by the gap must not continue with fields of the next one
    view = _with_pod(view, replace(pod, gaps=pod.gaps + 1, log=replace(pod.log, agent=AgentLog())))
    return _with_news(view, News(event.after, event.pod, "gap", event.reason or "lines of the log were rotated away"))


def _add_cluster_event(view: JobView, event: KubernetesEvent) -> JobView:
    news = is_news(view.cluster_events, event, view.pods.get(event.name))
    view = _with_time(replace(view, cluster_events=add_event(view.cluster_events, event)), event.time)
    return _with_news(view, News(event.time, event.name, "event", f"{event.reason}: {event.message}")) if news else view


def _change_workload(view: JobView, event: WorkloadStatus) -> JobView:
    before, view = view.workload, _with_time(replace(view, workload=event), event.time)
    if before and (before.admitted, before.message) == (event.admitted, event.message):
        return view
    return _with_news(view, News(event.time, event.name, "queue", describe_queue_status(event)))


def _skip_lines(view: JobView, event: LinesSkipped) -> JobView:
    pod = view.pods.get(event.pod) or PodView(event.pod)
    if event.container_id and event.container_id in pod.previous_ids:
        return replace(view, lines=view.lines + event.count)
    pod = pod.in_container(event.container_id)
    pod = pod.with_log(pod.log.skip(event))
    return replace(view, lines=view.lines + event.count, pods=view.pods.with_pod(pod))


def _add_line(view: JobView, event: LogLine | OpenLine) -> JobView:
    """Add a log line; for nearly all lines only the counters change."""
    redrawn = len(event.text) > MAX_PART_LENGTH and "\r" in event.text
    event = shorten_line(event)
    pod = view.pods.get(event.pod) or PodView(event.pod)
    if event.container_id and event.container_id in pod.previous_ids:
        return replace(view, lines=view.lines + isinstance(event, LogLine))  # rest of a log whose container is gone
    pod = pod.in_container(event.container_id)
    restarted = pod.log.reading is None or pod.log.result != pod.log.result_at_reading
    formats = progress_reader(view.config.trainer, view.config.progress_pattern)
    before = pod.log
    log, records, line_readings = before.feed(event, view.lines, formats)
    pod = pod.with_log(log)
    time = event.time or (log.reading_line.time if line_readings and log.reading_line else None)
    view = replace(
        view,
        pods=view.pods.with_pod(pod),
        lines=view.lines + isinstance(event, LogLine),
        now=max(view.now or 0, event.time) if event.time is not None else view.now,
        reference_time=max(view.reference_time or 0, time) if time is not None else view.reference_time,
    )
    for record in records:
        view = _add_record(view, pod, record)
    if line_readings:
        for number, line_reading in enumerate(line_readings):
            is_first = restarted and not number
            view = _add_reading(view, pod, line_reading, redrawn=redrawn, restarted=is_first)
        return view
    if log.general is not before.general and not view.training.lines and not view.unread_reported:
        return _report_unread(view, pod, event.time)
    milestone = milestones.parse_milestone(event.text)
    return _add_milestone(view, event, *milestone) if milestone else view


def _report_unread(view: JobView, pod: PodView, time: int | None) -> JobView:
    """Report once that lines look like progress although none counts."""
    lines = find_unread(pod.log.general, min_lines=MIN_REPORTED_LINES)
    if lines is None:
        return view
    return _with_news(replace(view, unread_reported=True), News(time, pod.name, "unread", f"no progress is read; {lines}"))


def _add_record(view: JobView, pod: PodView, record: AgentRecord) -> JobView:
    if isinstance(record, AgentEvent):
        view = _add_failure(view, pod, record) if record.kind is AgentEventKind.WORKER_FAILED else view
        reported = record.kind in _REPORTED_KINDS
        if record.kind is AgentEventKind.RESTARTING and record.attempts is not None and record.attempts_left is not None:
            view = replace(view, restarts=Restarts(record.attempts - record.attempts_left + 1, record.attempts))
        return _with_news(view, News(record.time, pod.name, str(record.kind), str(record))) if reported else view
    if isinstance(record, RendezvousResult) and pod.log.result_line:
        member = Member(pod=pod.name, container=pod.log.id, result=record, line=pod.log.result_line)
        return replace(view, rounds=add_member(view.rounds, member))
    return view


_REPORT_DELAY = 10 * SECOND
"""Time within which the agents of a round report that their processes failed."""
_OWN_SIGNALS = (-6, -15)
"""Exit codes of processes that a library aborted, such as NCCL's watchdog, or that their agent ended."""


def _add_failure(view: JobView, pod: PodView, event: AgentEvent) -> JobView:
    """Keep the first failure of a round: the others of the same time are its consequences."""
    if event.exit_code is None or event.local_rank is None:
        return view
    ranks, before = pod.global_ranks, view.failure
    failure = WorkerFailure(
        pod=pod.name,
        local_rank=event.local_rank,
        rank=ranks[event.local_rank] if event.local_rank < len(ranks) else None,
        exit_code=event.exit_code,
        line=event.line,
        time=event.time,
    )
    if before is None or before.time is None or failure.time is None:
        return replace(view, failure=before or failure)
    round_start = view.rounds[-1].first_line.resolve_time(view.reference_time) if view.rounds else None
    is_earlier = _precedes(failure, before) and (round_start is None or failure.time >= round_start)
    is_later_round = round_start is not None and before.time < round_start <= failure.time
    return replace(view, failure=failure) if is_earlier or is_later_round else view


def _precedes(failure: WorkerFailure, other: WorkerFailure) -> bool:
    """Return whether this process failed first. Others may fail before its agent reports it, but not by a signal."""
    if failure.time is None or other.time is None:
        return False
    is_killed, is_other_killed = (item.exit_code < 0 and item.exit_code not in _OWN_SIGNALS for item in (failure, other))
    if is_killed is not is_other_killed and abs(failure.time - other.time) < _REPORT_DELAY:
        return is_killed
    return failure.time < other.time


def _add_reading(view: JobView, pod: PodView, line_reading: LineReading, *, redrawn: bool, restarted: bool) -> JobView:
    """Add a progress line if its pod is the one that prints, or takes over from it."""
    reading = line_reading.reading
    time = None if redrawn else reading.line_time if line_reading.line.time is None else line_reading.line.time
    if not reading.conclusive and view.training.format and view.training.pod != pod.name:
        return view
    training: Training | None = view.training
    printer = view.pods.get(view.training.pod)
    gives_way = printer is None or (not printer.live and pod.live)  # an ended pod, to one that goes on
    if printer and printer.name != pod.name and not gives_way and printer.log.reading:
        training = choose_training(
            view.training, pod=pod, printer=printer, reading=reading, time=time, workers=view.config.workers
        )
    if training is None:
        return view
    begins_again = restarted or view.training.position.begins_again
    has_new_start = begins_again and (len(view.rounds) > 1 or bool(pod.previous_ids)) and not view.config.trainer
    restarted = restarted or training.pod != pod.name
    if restarted and training.lines:
        reading = replace(reading, late=False)  # the program began again, so these lines are the newest ones
    after = replace(view, training=add_reading(training, reading, pod=pod.name, time=time, restarted=restarted))
    if has_new_start and (text := _describe_new_start(view.training, after.training)):
        after = _with_news(after, News(time, pod.name, "progress", text))
    if after.training.not_finite_since is not None and view.training.not_finite_since is None:
        line = replace(line_reading.line, time=time, text=line_reading.line.text.strip())
        after = replace(after, training=replace(after.training, not_finite_line=line))
        after = _with_news(after, News(time, pod.name, "loss", describe_bad_loss(after.training)))
    return _report_layout(after, pod.name, after.training.template, time)  # that of an extra reading is not kept


def _describe_new_start(before: Training, after: Training) -> str:
    """Return at which step a restarted program began, if that is a step that it had passed; "" if it had not."""
    if before.run_step is None or after.run_step is None or after.run_step >= before.run_step:
        return ""
    first = before.first_run_step
    if first == 0 and before.position.is_bar:
        first = before.step_interval  # the bar was empty
    begins_anew = first is not None and after.run_step <= first
    reason = ": it has not resumed from a checkpoint" if begins_anew else ""
    return f"the program was restarted after step {before.run_step} and goes on at step {after.run_step}{reason}"


def _report_layout(view: JobView, pod: str, layout: str, time: int | None) -> JobView:
    """Report a new layout of progress lines once: many programs print one layout for steps and another at each epoch's end."""
    if not layout or layout in view.reported_layouts or len(view.reported_layouts) >= MAX_REPORTED_LAYOUTS:
        return view
    view = replace(view, reported_layouts=(*view.reported_layouts, layout))
    return _with_news(view, News(time, pod, "progress", f"progress is read from lines like `{layout}`"))


def _add_milestone(view: JobView, event: LogLine | OpenLine, milestone: Milestone, line_time: int | None) -> JobView:
    """Add a line of kfjob's trainer other than progress."""
    if isinstance(milestone, StepMetrics):
        is_current = view.training.step == milestone.step
        return replace(view, training=add_metrics(view.training, milestone)) if is_current else view
    text = event.text.partition(milestones.MARKER)[2].partition("] ")[2].strip()
    if isinstance(milestone, Setback):
        training = add_setback(view.training, milestone) if view.training.pod in {"", event.pod} else view.training
        repeated = training is view.training
        view = replace(view, training=training)
    else:
        is_printed_by_all = isinstance(milestone, DamagedCheckpoint | DataMismatch)
        repeated = is_printed_by_all and any(news.text == text for news in view.news[-RECENT_NEWS:])
    if repeated:  # every rank prints it
        return view
    view = _with_news(view, News(event.time or line_time, event.pod, text.partition(" ")[0].lower(), text))
    return _with_milestone(view, milestone)


def _with_milestone(view: JobView, milestone: Milestone) -> JobView:
    match milestone:
        case Start():
            return replace(view, start=milestone, outcome=None)
        case Resume():
            return replace(view, resume=milestone)
        case Checkpoint():
            return replace(view, checkpoint=milestone)
        case Evaluation():
            return replace(view, evaluation=milestone)
        case TrainerOutcome():
            return replace(view, outcome=milestone)
        case _:
            return view
