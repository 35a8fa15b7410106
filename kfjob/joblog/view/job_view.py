"""The state of a job as its events show it, and what follows from the state: the master, stalls, problems, a headline.

A view is an immutable value, so it can be stored, compared and replayed. Its size does not grow with the logs. `reduction`
computes it from the events.
"""

from __future__ import annotations

from functools import cached_property
from html import escape

from msgspec import Struct, field

from kfjob.base.text import plural
from kfjob.base.units import SECOND
from kfjob.joblog.agents.agent_records import describe_exit_code
from kfjob.joblog.events import END_UNKNOWN, JobChanged, JobPhase, KubernetesEvent, PodChanged, WorkloadStatus
from kfjob.joblog.master.discovery import find_master
from kfjob.joblog.master.evidence import Master, NoMaster
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.pod_problems import PodProblem, find_pod_problems, missing_pods_reason
from kfjob.joblog.pods.pod_view import Pods, PodView
from kfjob.joblog.pods.rounds import Round
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER
from kfjob.joblog.progress.general.unread_lines import UnreadLines, find_unread, guess_unread
from kfjob.joblog.progress.milestones import Checkpoint, Evaluation, Resume, Start, TrainerOutcome
from kfjob.joblog.progress.training import Training, format_loss

ENDED_WITH_ERROR = "Ended with an error"
"""Headline of saved logs that show an error."""
ENDED_WELL = "Succeeded"
"""Headline of saved logs in which every agent reports success."""
UNKNOWN_END = "Unknown end"
"""Headline of saved logs that do not show how the job ended."""
LIMIT_EXCEEDED = "LimitExceeded"
"""Reason in the state of a job that was stopped because it exceeded a limit of its `watchdog`."""
GIVEN_UP = "GivenUp"
"""Reason in the state of a job that the guard stopped because it cannot start or another launch would fail too."""
MIN_LINES = 5
"""Progress lines after which the pauses between them say what is usual."""
STALL_PAUSES = 10
"""Times the longest pause so far: a checkpoint or an evaluation makes a pause too."""
MIN_STALL_SECONDS = 120
"""Shortest time without progress that counts as a stall."""


class News(Struct, frozen=True):
    """Something that a display reports in a line of its own."""

    time: int | None
    pod: str
    kind: str
    text: str


class Restarts(Struct, frozen=True):
    """How often torchrun has restarted the training processes after a failure, and how often it does so at most."""

    done: int  # restarts so far
    limit: int  # restarts that torchrun allows

    def __str__(self) -> str:
        """Return `1 of 3`."""
        return f"{self.done} of {self.limit}"


class WorkerFailure(Struct, frozen=True, kw_only=True):
    """The first training process that failed in a round, as its agent reports it."""

    pod: str  # the pod of the process
    local_rank: int  # rank within the pod
    rank: int | None  # the global rank
    exit_code: int  # negative for a signal
    line: int  # number of the line that reports it
    time: int | None  # time of the report

    def __str__(self) -> str:
        """Return `pod job-worker-0, rank 3, exit code 1`."""
        rank = f"local rank {self.local_rank}" if self.rank is None else f"rank {self.rank}"
        return f"{self.pod}, {rank}, {describe_exit_code(self.exit_code)}"


class JobView(Struct, frozen=True, kw_only=True, dict=True):
    """The observed state of a job. `JobView(config=…)` is the state before the first event; `reduce` returns the next ones."""

    config: ObserveConfig = field(default_factory=ObserveConfig)  # internal: what the logs are expected to show
    local: bool = False  # whether the job runs, or ran, on this machine
    job: JobChanged | None = None  # state of the job; None for logs alone
    pods: Pods = field(default_factory=Pods)  # the pods by name, with what their logs show
    store: PodChanged | None = None  # the pod of the job's own etcd on a cluster
    relaunches: str = ""  # the guard's relaunches before this launch (JSON)
    guard_decision: str = ""  # why the guard does not relaunch this launch any more
    training: Training = field(default_factory=Training)  # progress of the training
    rounds: tuple[Round, ...] = ()  # the newest rendezvous rounds by time
    start: Start | None = None  # first line of kfjob's trainer: model, strategy, batch
    resume: Resume | None = None  # checkpoint that kfjob's trainer resumed from
    checkpoint: Checkpoint | None = None  # newest checkpoint of kfjob's trainer
    evaluation: Evaluation | None = None  # newest evaluation of kfjob's trainer
    outcome: TrainerOutcome | None = None  # how kfjob's trainer ended
    restarts: Restarts | None = None  # restarts of the training processes by torchrun
    failure: WorkerFailure | None = None  # first failed process of the newest round that failed
    cluster_events: tuple[KubernetesEvent, ...] = ()  # the newest events of the job's objects by time
    workload: WorkloadStatus | None = None  # state of the job in a Kueue queue
    news: tuple[News, ...] = ()  # newest changes that a display reports in a line of their own
    unread_reported: bool = False  # internal: news say that lines look like progress although none counts
    reported_layouts: tuple[str, ...] = ()  # internal: layouts of progress lines that news name
    lines: int = 0  # log lines that were read
    is_current: bool = False  # whether all that the pods have printed was read; before, the view is one of the past
    now: int | None = None  # newest time in any event
    reference_time: int | None = None  # internal: newest time of a line or a state; gives a year to glog times

    def __repr__(self) -> str:
        """Return one line: the headline, the number of pods, and the newest step and loss."""
        training = self.training
        epoch = f", epoch {training.epoch:g}" if training.epoch is not None and training.counts_in_epoch else ""
        step = f"{epoch}, step {training.step}" if training.step is not None else ""
        loss = f", loss {format_loss(training.loss)}" if training.loss is not None else ""
        return f"<JobView {self.headline} ({plural(len(self.pods), 'pod')}{step}{loss})>"

    def _repr_html_(self) -> str:
        """Return the state for a notebook."""
        rows = (f"<tr><td>{escape(pod.name)}</td><td>{escape(str(pod.phase or ''))}</td></tr>" for pod in self.pods.values())
        return f"<b>{escape(repr(self)[1:-1])}</b><table>{''.join(rows)}</table>"

    @property
    def phase(self) -> JobPhase | None:
        """The job's phase, None if unknown."""
        return self.job.phase if self.job else None

    @property
    def running(self) -> bool:
        """Whether the job is known to exist and has not ended."""
        return self.phase is not None and not self.phase.ended

    @cached_property
    def master(self) -> Master | NoMaster:
        """The pod that prints progress, or the reasons why it is unknown."""
        return find_master(self.pods, self.config, running=self.running, near=self.reference_time, printer=self.training.pod)

    @property
    def total(self) -> int | None:
        """Steps of the whole run, from the progress lines, the first line of kfjob's trainer, or the spec.

        None for a total that the run has passed, as it counts something else.
        """
        total = self._planned_steps if self.training.total is None else self.training.total
        return total if total is None or (self.training.step or 0) <= total else None

    @property
    def _planned_steps(self) -> int | None:
        """The steps that the plan expects, where the lines count those of the run, and not those of one epoch."""
        training = self.training
        if training.per_epoch or (training.epoch is not None and not training.position.counts_on):
            return None
        return self.start.total_steps if self.start else self.config.expected_steps

    @property
    def epochs(self) -> int | None:
        """Epochs of the whole run, from the progress lines or the arguments of the command; None if the run has passed them."""
        epochs = self.training.epochs or self.config.expected_epochs
        return epochs if epochs is None or (self.training.epoch or 0) <= epochs else None

    @property
    def evaluation_loss(self) -> float | None:
        """The newest loss on validation data."""
        return self.evaluation.loss if self.evaluation else self.training.evaluation_loss

    @property
    def joining(self) -> tuple[str, ...]:
        """The pods that wait to join a rendezvous round, as after a restart; none if another one has printed progress since."""
        joining = [pod for pod in self.pods.values() if pod.log.is_joining and pod.live and not pod.has_succeeded]
        last = self.training.last_time
        return tuple(
            sorted(
                pod.name for pod in joining if last is None or pod.log.joining_since is None or pod.log.joining_since >= last
            )
        )

    @property
    def is_between_rounds(self) -> bool:
        """Whether the newest progress is that of an earlier round: pods wait to join, or have printed none since."""
        pod = self.pods.get(self.training.pod)
        if pod is None or not self.running:
            return False
        log = pod.log
        has_joined = log.has_rejoined or (log.reading is None and log.result is not None and pod.previous_log is not None)
        return bool(self.joining) or (has_joined and log.result != log.result_at_reading)

    @property
    def eta(self) -> float | None:
        """Seconds from now to the last step; None while the job is stalled, and from the end of a round to its first step."""
        if self.stalled or self.is_between_rounds:
            return None
        return self.training.subtract_elapsed(self.training.eta(self._planned_steps, self.epochs), self.now)

    @property
    def is_eta_of_bar(self) -> bool:
        """Whether `eta` is that of a progress bar, which may be one of several epochs."""
        return self.eta is not None and self.training.may_restart and self.total != self.config.expected_steps

    @property
    def epoch_eta(self) -> float | None:
        """Seconds from now to the end of the epoch; None where `eta` is left out, and if steps do not count in epochs."""
        return (
            None
            if self.stalled or self.is_between_rounds
            else self.training.subtract_elapsed(self.training.epoch_eta, self.now)
        )

    @property
    def seconds_since_progress(self) -> float | None:
        """Seconds since the newest progress line, or since the job started if no pod has printed anything; else None."""
        started = self.job.started if self.job and not self.lines else None
        since = self.training.last_time or started  # progress that kfjob cannot read is no stall
        return None if since is None or self.now is None else max(self.now - since, 0) / SECOND

    @property
    def stalled(self) -> bool:
        """Whether the job runs without progress for much longer than before."""
        return self.phase is JobPhase.RUNNING and (self.seconds_since_progress or 0) > self.stall_limit

    @property
    def stall_limit(self) -> float:
        """Seconds without progress that count as a stall.

        It is the watchdog's limit. Without one it is that of the configuration, or less if the job prints progress often.
        """
        if self.config.limits.stall is not None:
            return self.config.limits.stall
        limit = self.config.stall_after
        if self.training.longest_pause is None or self.training.lines < MIN_LINES:
            return limit
        return min(limit, max(STALL_PAUSES * self.training.longest_pause, MIN_STALL_SECONDS))

    @property
    def has_silent_success(self) -> bool:
        """Whether the job succeeded and its logs were read, but no line of them is training progress."""
        is_read = self.is_current and bool(self.pods) and (self.lines > 0 or not any(pod.gaps for pod in self.pods.values()))
        return self.phase is JobPhase.SUCCEEDED and is_read and not self.training.lines and self.outcome is None

    @property
    def unread(self) -> tuple[str, UnreadLines] | None:
        """The pod whose lines look like progress although none was read, and these lines."""
        return self._find_unread()

    def _find_unread(self, **limits: int) -> tuple[str, UnreadLines] | None:
        if self.training.lines:
            return None
        found = [(pod.name, lines) for pod in self.pods.values() if (lines := find_unread(pod.log.general, **limits))]
        return max(found, key=lambda item: item[1].lines, default=None)

    @property
    def suggestion(self) -> tuple[str, UnreadLines] | None:
        """The same as `unread`, or else the lines that may be progress because a number in them grows."""
        unread = self.unread
        is_trainer = self.config.trainer == KFJOB_TRAINER or self.outcome is not None
        if self.training.lines or is_trainer or (unread and "<step>" in (unread[1].pattern or "")):
            return unread
        found = [(pod.name, lines) for pod in self.pods.values() if (lines := guess_unread(pod.log.frequent))]
        return max(found, key=lambda item: item[1].lines, default=unread)

    @property
    def remark(self) -> str:
        """What is remarkable about the success of the job: it printed no training progress, or none that was read; else ""."""
        if not self.has_silent_success:
            return ""
        return "no progress was read" if self.unread_lines or self.suggestion else "no progress was printed"

    @property
    def unread_lines(self) -> tuple[str, UnreadLines] | None:
        """The same as `unread`, but also of a layout that has too few lines for a suggestion."""
        return self._find_unread(min_lines=1)

    @property
    def pod_problems(self) -> tuple[PodProblem, ...]:
        """Pods that crash, wait or have failed; the job's own phase may still be Running."""
        store = [PodView(self.store.pod, self.store)] if self.store else []
        return find_pod_problems((*store, *self.pods.values()), self.cluster_events)

    @property
    def awaits_restart(self) -> bool:
        """Whether a pod pauses before its next restart, which its state says: it cannot print anything."""
        return any(pod.live and pod.state is not None and pod.state.reason == "CrashLoopBackOff" for pod in self.pods.values())

    @property
    def is_end_unknown(self) -> bool:
        """Whether only logs of the job are known, which do not show how it ended."""
        return self.job is not None and self.job.reason == END_UNKNOWN

    @property
    def has_agents_success(self) -> bool:
        """Whether all pods with an agent report success; a folder of saved logs holds other files too."""
        agents = [pod for pod in self.pods.values() if pod.has_agent] or list(self.pods.values())
        return bool(agents) and all(pod.has_succeeded for pod in agents)

    @property
    def has_trained_since_failure(self) -> bool:
        """Whether training went on after `failure`: in the log of its pod, or in a round that began after it."""
        failure, near = self.failure, self.reference_time
        if failure is None:
            return False
        line = self.pods[failure.pod].log.reading_line if failure.pod in self.pods else None
        if line is not None and line.number > failure.line:
            return True
        starts = (item.first_line.resolve_time(near) for item in self.rounds)
        later = [start for start in starts if start is not None and failure.time is not None and start > failure.time]
        return bool(later) and (self.training.last_time or 0) > later[0]

    def describe_end_of_logs(self, *, has_error: bool) -> str:
        """Return the headline of saved logs; an error of a job whose agents all report success, such as a NaN, is no end."""
        if self.has_agents_success:
            return ENDED_WELL
        return ENDED_WITH_ERROR if has_error else UNKNOWN_END

    @property
    def state(self) -> str:
        """The state of the job in one or two words."""
        if self.is_end_unknown:
            return self.headline
        return str(self.phase or "unknown")

    @property
    def reason(self) -> str:
        """What the headline says besides the state."""
        return self.headline.removeprefix(self.state).removeprefix(", but ").lstrip(":, ")

    @property
    def headline(self) -> str:
        """The state of the job in one sentence."""
        if self.is_end_unknown:
            return self.describe_end_of_logs(has_error=self.failure is not None and not self.has_trained_since_failure)
        phase = str(self.phase or "unknown")
        if self.pod_problems and not (self.phase and self.phase.ended):
            first, count = self.pod_problems[0], len(self.pod_problems) - 1
            others = f" and {count} more" if count else ""
            return f"{phase}, but `{first.pod}`{others}: {first.reason}" + (f" ({first.message})" if first.message else "")
        if self.running and (reason := self.missing_pods):
            return f"{phase}, {reason}"
        if self.stalled:
            return f"{phase}, but no progress for {format_pause(self.seconds_since_progress or 0)}"
        if self.phase is JobPhase.STOPPED and self.job:
            return f"{phase}: {self.job.message}" if self.job.message else phase
        reason = self.job.message or self.job.reason if self.job and self.phase is JobPhase.FAILED else ""
        return f"{phase}, but {self.remark}" if self.remark else f"{phase}: {reason}" if reason else phase

    @property
    def missing_pods(self) -> str:
        """How many pods the job lacks and why; "" if it has all, or the reason is unknown."""
        total, pods = max(len(self.config.workers), 1), self.pods.values()
        reason = missing_pods_reason(self.workload, self.cluster_events, pods) if len(pods) < total else ""
        return f"{f'{len(pods)} of {total}' if pods else 'no'} pods: {reason}" if reason else ""


def format_pause(seconds: float) -> str:
    """Return `61 s` or `4 min`."""
    return f"{seconds // 60:.0f} min" if seconds >= MIN_STALL_SECONDS else f"{seconds:.0f} s"
