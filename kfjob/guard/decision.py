"""What to do with a job that has failed, exceeds a limit or cannot start: one pure decision from facts.

The guard collects the facts and carries the decision out. The relaunches before this launch are part of the facts: the job
carries them in an annotation, so that the guard needs no memory of its own.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from kfjob.base.common_types import TextEnum
from kfjob.base.text import join_names, plural
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.diagnose.engine.aftermath import TRANSIENT
from kfjob.joblog.diagnose.engine.matching import mask_numbers
from kfjob.joblog.diagnose.rule import Severity
from kfjob.joblog.diagnose.rules import BY_ID, check_ids, cluster_events, images
from kfjob.joblog.events import JobPhase
from kfjob.joblog.observe_config import RecoveryLimits
from kfjob.joblog.view.watchdog_limits import ExceededLimit

MAX_EVIDENCE = 3
"""Lines of evidence that a decision quotes."""
MAX_FAILURE = 300
"""Characters that identify a failure."""
FAILURES_OF_NODE = 2
"""Failures after which a node is avoided."""

_WAITS = frozenset(
    check_ids(
        *("registry-unreachable", "image-pull", "webhook-down", "pod-preempted", "pod-evicted-by-taint", "node-not-ready"),
        *("queue-waits", "queue-preempted", "claim-not-provided", "pods-refused"),
    )
)
PERMANENT = frozenset(
    rule.id for rule in (*images.RULES, *cluster_events.RULES) if rule.severity is Severity.ERROR and rule.id not in _WAITS
) | frozenset(
    check_ids(
        *("secret-missing", "config-map-missing", "container-config", "claim-missing", "no-node-so-large", "container-start"),
        *("deadline", "backoff-limit", "pod-not-executable"),
    )
)
"""Rules of faults that remain until a person changes the spec or the cluster."""
_NODE_FAULTS = frozenset(check_ids("node-lost", "node-not-ready", "gpu-lost"))
"""Rules of faults of a node; a pod that somebody deletes says nothing about its node."""


class Action(TextEnum):
    """What the guard does."""

    NOTHING = "nothing"
    RELAUNCH = "relaunch"
    STOP = "stop"


class Relaunch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One relaunch by the guard: the launch that had failed, how, and how far it had come."""

    launch: str
    time: int = 0  # nanoseconds since the epoch
    reason: str = ""
    failure: str = ""  # identifies the failure; "" if the program was not its cause
    step: int | None = None  # highest step of the launch
    progress: int | None = None  # step of the newest complete checkpoint, or the highest step of a program without checkpoints
    node: str = ""  # the node that failed


class LostPod(Struct, frozen=True, kw_only=True):
    """A pod that did not end by itself."""

    pod: str
    why: str  # what the cluster says about its end
    node: str = ""
    is_node_fault: bool = False


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that a decision depends on."""

    phase: JobPhase
    launch: str = ""
    recovery: RecoveryLimits = RecoveryLimits()
    first_cause: Issue | None = None  # of the diagnosis
    lost_pods: tuple[LostPod, ...] = ()
    has_lost_node: bool = False  # the job cannot go on: the node of one of its pods has not answered for some time
    limit: ExceededLimit | None = None
    futile: str = ""  # why a restart repeats the failure, by the rounds of this launch
    step: int | None = None  # highest step of this launch
    checkpoint: int | None = None  # step of the newest complete checkpoint
    nodes: dict[str, str] = {}  # by pod
    history: tuple[Relaunch, ...] = ()  # oldest first


class Decision(Struct, frozen=True, kw_only=True):
    """What to do, why, and what shows it."""

    action: Action
    reason: str = ""  # one sentence, without a final period
    evidence: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()  # nodes that the next launch must not use
    entry: Relaunch | None = None  # what the next launch remembers; only with RELAUNCH


def decide(facts: Facts) -> Decision:
    """Return what to do with the job."""
    cause = facts.first_cause
    has_started = facts.step is not None  # events about an earlier start may be left
    is_permanent = cause is not None and cause.rule in PERMANENT and not facts.lost_pods and not has_started
    is_dead = facts.phase is JobPhase.FAILED or facts.limit is not None or facts.has_lost_node
    if not is_dead and not (is_permanent and _is_starting(facts)):
        return Decision(action=Action.NOTHING)
    reason, evidence = _describe_failure(facts)
    stop_reason = _find_stop_reason(facts, is_permanent=is_permanent)
    if stop_reason:
        return Decision(action=Action.STOP, reason=stop_reason, evidence=evidence)
    entry = Relaunch(
        launch=facts.launch,
        reason=reason,
        failure=_identify_failure(facts),
        step=facts.step,
        progress=_find_progress(facts),
        node=_find_failed_node(facts),
    )
    avoid = _find_bad_nodes((*facts.history, entry))
    if entry.node in avoid:
        reason += f"; node `{entry.node}` has failed {FAILURES_OF_NODE} times and is avoided"
    return Decision(action=Action.RELAUNCH, reason=reason, evidence=evidence, avoid=avoid, entry=entry)


def _is_starting(facts: Facts) -> bool:
    return facts.phase is JobPhase.PENDING and facts.step is None


def _find_stop_reason(facts: Facts, *, is_permanent: bool) -> str:
    """Return why a relaunch is not useful or not allowed; "" if it is."""
    cause = facts.first_cause
    if facts.limit and facts.limit.name != "stall":
        return facts.limit.reason
    if cause and is_permanent:
        return f"a relaunch cannot help: {cause.title}"
    if facts.futile and not facts.lost_pods:
        return facts.futile
    if repeated := _find_repetition(facts):
        return repeated
    used = count_without_progress(facts.history, _find_progress(facts))
    if used >= facts.recovery.retries:
        known = [_find_progress(facts), *(entry.progress for entry in facts.history)]
        progress = max((value for value in known if value is not None), default=None)
        since = f" since step {progress}" if progress is not None else ""
        allowed = f"`recovery.retries` allows {facts.recovery.retries}"
        return f"{plural(used, 'relaunch', 'relaunches')} made no progress{since}, and {allowed}"
    return ""


def _find_repetition(facts: Facts) -> str:
    """Return that the last launch ended with the same failure and this one came no further; "" if it did not."""
    failure = _identify_failure(facts)
    last = facts.history[-1] if facts.history else None
    if not failure or last is None or last.failure != failure or facts.first_cause is None:
        return ""
    is_futile_at_start = facts.step is None and BY_ID[facts.first_cause.rule].futile_after is not None
    if not is_futile_at_start and TRANSIENT.search(" ".join(facts.first_cause.evidence)):
        return ""
    if (facts.step or 0) > (last.step or 0):
        return ""
    place = f"after step {facts.step}" if facts.step is not None else "before the first step"
    return f"the same failure ended two launches {place}: {facts.first_cause.title}"


def count_without_progress(history: tuple[Relaunch, ...], progress: int | None) -> int:
    """Return the number of relaunches since the best progress was first reached; that of a launch may be unknown (None).

    A pod that is gone may have taken the evidence of its progress along.
    """
    values = [entry.progress or 0 for entry in history] + [progress or 0]
    return len(history) - values.index(max(values))


def _find_progress(facts: Facts) -> int | None:
    return facts.step if facts.checkpoint is None else facts.checkpoint


def _identify_failure(facts: Facts) -> str:
    """Return a text that is equal for two failures of the program with the same cause; "" if the cluster ended the job."""
    cause = facts.first_cause
    if facts.lost_pods or facts.limit or cause is None:
        return ""
    line = mask_numbers(cause.evidence[-1]) if cause.evidence else ""
    return f"{cause.rule}|{cause.place}|{line}"[:MAX_FAILURE]


def _find_failed_node(facts: Facts) -> str:
    if lost := next((pod for pod in facts.lost_pods if pod.is_node_fault), None):
        return lost.node
    cause = facts.first_cause
    is_fault = cause is not None and cause.rule in _NODE_FAULTS and not facts.lost_pods
    return facts.nodes.get(cause.pod, "") if cause and is_fault else ""


def _find_bad_nodes(history: tuple[Relaunch, ...]) -> tuple[str, ...]:
    counts = Counter(entry.node for entry in history if entry.node)
    return tuple(sorted(node for node, count in counts.items() if count >= FAILURES_OF_NODE))


def _describe_failure(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """Return why the job ended, as a sentence, and its evidence."""
    if facts.lost_pods:
        pods = [pod.pod for pod in facts.lost_pods]
        verb = "was" if len(pods) == 1 else "were"
        nodes = join_names(sorted({f"`{pod.node}`" for pod in facts.lost_pods}))
        is_node_fault = all(pod.is_node_fault for pod in facts.lost_pods)
        kind = f"lost with node {nodes}" if is_node_fault else "removed from the job"
        evidence = tuple(f"{pod.pod}: {pod.why}" for pod in facts.lost_pods)
        return f"pod {join_names([f'`{pod}`' for pod in pods])} {verb} {kind}", evidence[:MAX_EVIDENCE]
    if facts.limit:
        return facts.limit.reason, ()
    cause = facts.first_cause
    if cause is None:
        return "the job failed, and no cause was found", ()
    place = f" in pod `{cause.pod}`" if cause.pod and cause.pod not in cause.title else ""
    return f"{cause.title}{place}", cause.evidence[-MAX_EVIDENCE:]
