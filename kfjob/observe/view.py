"""Events in, one picture of the job out: `reduce(view, event)` is all that a display, a report or a wait needs.

A view is a value: it can be kept, compared and replayed. Its size does not grow with the logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.events import Event, JobChanged, JobPhase, KubernetesEvent, LogGap, LogLine, PodChanged, WorkloadStatus
from kfjob.observe import milestones
from kfjob.observe.agent_log import AgentLog
from kfjob.observe.agent_records import AgentEvent, AgentEventKind, AgentRecord, RendezvousResult
from kfjob.observe.config import ObserveConfig
from kfjob.observe.discovery import find_master
from kfjob.observe.master import Master, NoMaster
from kfjob.observe.milestones import (
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
from kfjob.observe.pod_problems import (
    PodProblem,
    add_event,
    describe_queue_status,
    find_pod_problems,
    is_news,
    missing_pods_reason,
)
from kfjob.observe.pods import Pods, PodView
from kfjob.observe.progress import Reading, reader
from kfjob.observe.rounds import Member, Round, joined
from kfjob.observe.training import Training
from kfjob.units import SECOND

KEPT_NEWS = 50
RANKS = 16
"""News among which one is looked for that another rank has told already."""
CUT = 16 * 1024
"""Characters of a line beyond which its time is that of its first part (containerd cuts there, and the kubelet puts the parts
together): when the newest state of a bar in it was drawn is not known."""
SILENT = 60 * SECOND
"""A printer that is silent for so long can be followed by another one whose rank is not known."""

_TOLD = {
    AgentEventKind.WORKER_FAILED,
    AgentEventKind.RESTARTING,
    AgentEventKind.MEMBERSHIP,
    AgentEventKind.SIGNAL_RECEIVED,
    AgentEventKind.FAILED,
    AgentEventKind.SUCCEEDED,
}


class News(Struct, frozen=True):
    """Something worth a line of its own in a display."""

    time: int | None
    pod: str
    kind: str
    text: str


class JobView(Struct, frozen=True, kw_only=True, dict=True):
    """What is known of a job. Made by `reduce`; the empty one is `JobView(config=…)`."""

    config: ObserveConfig = field(default_factory=ObserveConfig)
    job: JobChanged | None = None
    pods: Pods = field(default_factory=Pods)
    training: Training = field(default_factory=Training)
    rounds: tuple[Round, ...] = ()  # by time, the newest ones
    start: Start | None = None
    resume: Resume | None = None
    checkpoint: Checkpoint | None = None
    evaluation: Evaluation | None = None
    outcome: TrainerOutcome | None = None
    cluster_events: tuple[KubernetesEvent, ...] = ()  # what the cluster's controllers wrote down, by time, the newest ones
    workload: WorkloadStatus | None = None  # where the job stands in a queue
    news: tuple[News, ...] = ()
    lines: int = 0
    now: int | None = None  # the newest time that any event told
    reference_time: int | None = None  # the newest time of any line or state: it puts glog's times into a year

    @property
    def phase(self) -> JobPhase | None:
        """The job's phase; None: nobody told."""
        return self.job.phase if self.job else None

    @property
    def running(self) -> bool:
        """Whether the job is known to live."""
        return self.phase is not None and not self.phase.ended

    @cached_property
    def master(self) -> Master | NoMaster:
        """The pod that prints progress, or why there is no answer."""
        return find_master(self.pods, self.config, running=self.running, near=self.reference_time)

    @property
    def total(self) -> int | None:
        """Steps of the whole run: as the lines say, or our trainer's first line, or the spec."""
        if self.training.total is not None:
            return self.training.total
        return self.start.total_steps if self.start else self.config.expected_steps

    @property
    def eta(self) -> float | None:
        """Seconds to the last step, as seen now."""
        known = replace(self.training, total=self.total)
        return known.eta() if self.now is None else known.at(self.now)

    @property
    def silence(self) -> float | None:
        """Seconds since the newest progress line, or since the job began to run; None while nothing can be said."""
        since = self.training.last_time or (self.job.started if self.job else None)
        return None if since is None or self.now is None else max(self.now - since, 0) / SECOND

    @property
    def stalled(self) -> bool:
        """Whether the job runs and has been silent for too long."""
        return self.phase is JobPhase.RUNNING and (self.silence or 0) > self.config.stall_after

    @property
    def pod_problems(self) -> tuple[PodProblem, ...]:
        """Pods that crash, wait for something, or have failed: also where the job's own phase says Running."""
        return find_pod_problems(self.pods.values(), self.cluster_events)

    @property
    def headline(self) -> str:
        """The state of the job in one sentence."""
        phase = str(self.phase or "unknown")
        if self.pod_problems and not (self.phase and self.phase.ended):
            first, more = self.pod_problems[0], len(self.pod_problems) - 1
            others = f" and {more} more" if more else ""
            return f"{phase}, but `{first.pod}`{others}: {first.reason}" + (f" ({first.message})" if first.message else "")
        if self.running and not self.pods and (why := missing_pods_reason(self.workload, self.cluster_events)):
            return f"{phase}, no pods: {why}"
        if self.stalled:
            return f"{phase}, but no progress for {self.silence:.0f} s"
        why = self.job.message or self.job.reason if self.job and self.phase is JobPhase.FAILED else ""
        return f"{phase}: {why}" if why else phase


def reduce(view: JobView, event: Event) -> JobView:
    """The view after one more event."""
    if isinstance(event, LogLine):
        return _line(view, event)
    if isinstance(event, PodChanged):
        return _pod(view, event)
    if isinstance(event, JobChanged):
        return _timed(replace(view, job=event), event.time or event.ended or event.started or event.created)
    if isinstance(event, LogGap):
        pod = view.pods.get(event.pod, PodView(event.pod))
        # what a block lost in the gap must not be made up from the next one
        view = _with_pod(view, replace(pod, gaps=pod.gaps + 1, log=replace(pod.log, agent=AgentLog())))
        return _with_news(view, News(event.after, event.pod, "gap", event.reason or "lines of the log were rotated away"))
    if isinstance(event, KubernetesEvent | WorkloadStatus):
        return _recorded(view, event) if isinstance(event, KubernetesEvent) else _queued(view, event)
    return replace(view, now=max(view.now or event.time, event.time))


def reduce_all(view: JobView, events: Iterable[Event]) -> JobView:
    """The view after all of these events."""
    for event in events:
        view = reduce(view, event)
    return view


def _timed(view: JobView, time: int | None) -> JobView:
    if time is None:
        return view
    return replace(view, now=max(view.now or time, time), reference_time=max(view.reference_time or time, time))


def _with_pod(view: JobView, pod: PodView) -> JobView:
    return replace(view, pods=view.pods.with_pod(pod))


def _with_news(view: JobView, *news: News) -> JobView:
    return replace(view, news=(*view.news, *news)[-KEPT_NEWS:])


def _pod(view: JobView, event: PodChanged) -> JobView:
    before = view.pods.get(event.pod, PodView(event.pod))
    after = before.with_state(event)
    view = _timed(_with_pod(view, after), event.time or event.started or event.created)
    old = before.state
    if old and (old.phase, old.reason, old.restarts) == (event.phase, event.reason, event.restarts):
        return view
    why = " ".join(part for part in (event.reason, event.message) if part)
    return _with_news(view, News(event.time, event.pod, "pod", f"{event.phase}: {why}" if why else str(event.phase)))


def _recorded(view: JobView, event: KubernetesEvent) -> JobView:
    news = is_news(view.cluster_events, event, view.pods.get(event.name))
    view = _timed(replace(view, cluster_events=add_event(view.cluster_events, event)), event.time)
    return _with_news(view, News(event.time, event.name, "event", f"{event.reason}: {event.message}")) if news else view


def _queued(view: JobView, event: WorkloadStatus) -> JobView:
    before, view = view.workload, _timed(replace(view, workload=event), event.time)
    if before and (before.admitted, before.message) == (event.admitted, event.message):
        return view
    return _with_news(view, News(event.time, event.name, "queue", describe_queue_status(event)))


def _line(view: JobView, event: LogLine) -> JobView:
    """One log line: nearly all of them are counted and nothing else."""
    pod = view.pods.get(event.pod) or PodView(event.pod)
    if event.container_id and event.container_id in pod.past_ids:
        return replace(view, lines=view.lines + 1 + event.skipped)  # the rest of a log whose container is gone
    pod = pod.in_container(event.container_id)
    log, heard, reading = pod.log.feed(event, view.lines, reader(view.config.trainer, view.config.progress_pattern))
    pod = PodView(pod.name, pod.state, log, pod.past, pod.past_ids, pod.gaps)
    dated = event.time or (log.reading_line.time if reading and log.reading_line else None)
    view = replace(
        view,
        pods=view.pods.with_pod(pod),
        lines=view.lines + (not event.open) + event.skipped,
        now=max(view.now or 0, event.time) if event.time is not None else view.now,
        reference_time=max(view.reference_time or 0, dated) if dated is not None else view.reference_time,
    )
    for one in heard:
        view = _heard(view, pod, one)
    if reading:
        return _read(view, pod, reading, drawn_over=len(event.text) > CUT and "\r" in event.text)
    told = milestones.parse_milestone(event.text)
    return _reached(view, event, *told) if told else view


def _heard(view: JobView, pod: PodView, one: AgentRecord) -> JobView:
    if isinstance(one, AgentEvent):
        return _with_news(view, News(one.time, pod.name, str(one.kind), one.text)) if one.kind in _TOLD else view
    if isinstance(one, RendezvousResult) and pod.log.result_line:
        member = Member(pod=pod.name, container=pod.log.id, result=one, said=pod.log.result_line)
        return replace(view, rounds=joined(view.rounds, member))
    return view


def _read(view: JobView, pod: PodView, reading: Reading, *, drawn_over: bool) -> JobView:
    """A progress line counts if its pod is the one that prints, or takes over from it."""
    said = pod.log.reading_line
    time = said.time if said and not drawn_over else None
    if not reading.conclusive and view.training.format and view.training.pod != pod.name:
        return view
    if not _speaks(view, pod, time):
        return view
    return replace(view, training=view.training.read(reading, pod=pod.name, time=time))


def _speaks(view: JobView, pod: PodView, time: int | None) -> bool:
    """Whether this pod's progress is the job's: in some trainers every rank prints, and one curve is wanted."""
    printer = view.pods.get(view.training.pod)
    if printer is None or printer.name == pod.name or not printer.live or printer.log.reading is None:
        return True
    last = view.training.last_time
    if time is not None and last is not None and time < last:
        return False  # logs are read one after the other, and this one is the older
    if printer.log.result_line and printer.log.reading_line and printer.log.result_line.line > printer.log.reading_line.line:
        return True  # it has met the others anew since it printed
    if pod.group_rank is not None and printer.group_rank is not None and 0 in {pod.group_rank, printer.group_rank}:
        if pod.group_rank == printer.group_rank:  # the printer's word is old: it has not joined the newest round yet
            return True
        return pod.group_rank == 0
    return time is None or last is None or time - last > SILENT


def _reached(view: JobView, event: LogLine, milestone: Milestone, line_time: int | None) -> JobView:
    """A line of our trainer other than progress."""
    if isinstance(milestone, StepMetrics):
        return replace(view, training=view.training.figures(milestone)) if view.training.step == milestone.step else view
    said = event.text.partition(milestones.MARKER)[2].partition("] ")[2].strip()
    if isinstance(milestone, Setback):
        training = view.training.set_back(milestone) if view.training.pod in {"", event.pod} else view.training
        repeated, view = training is view.training, replace(view, training=training)
    else:
        repeated = isinstance(milestone, DamagedCheckpoint | DataMismatch) and any(
            one.text == said for one in view.news[-RANKS:]
        )
    if repeated:  # every rank says it
        return view
    view = _with_news(view, News(event.time or line_time, event.pod, said.partition(" ")[0].lower(), said))
    return _told(view, milestone)


def _told(view: JobView, milestone: Milestone) -> JobView:
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
