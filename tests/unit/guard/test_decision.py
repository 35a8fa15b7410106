"""The decision of the guard as a table: facts, the expected action, words of its reason, nodes to avoid."""

import pytest

from kfjob.guard.decision import Facts, LostPod, Relaunch, decide
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.events import JobPhase
from kfjob.joblog.observe_config import RecoveryLimits
from kfjob.joblog.view.watchdog_limits import ExceededLimit


def issue(rule, *evidence: str, place="", pod="train-worker-0"):
    known = BY_ID[rule]
    return Issue(
        rule=rule, severity=known.severity, role=known.role, title=known.title, cause="c", remedy="r",
        evidence=evidence, place=place, pod=pod,
    )  # fmt: skip


def relaunch(**fields):
    return Relaunch(launch="l", **fields)


BUG = issue("exception", "ValueError: bad batch 17", place="train.py:7")
BUG_AGAIN = issue("exception", "ValueError: bad batch 99", place="train.py:7")
BUG_ID = "exception|train.py:7|ValueError: bad batch 1"
NETWORK = issue("exception", "ConnectionResetError: connection reset by peer", place="net.py:1")
NETWORK_ID = "exception|net.py:1|ConnectionResetError: connection reset by peer"
DELETED = LostPod(pod="train-worker-1", why="Killing: Stopping container pytorch", node="a")
PREEMPTED = LostPod(pod="train-worker-1", why="Preempted: by pod x on node a", node="a")
DEAD_NODE = LostPod(pod="train-worker-1", why="NodeNotReady", node="a", is_node_fault=True)
STUCK = ExceededLimit("stall", "no progress for 21 s, and its watchdog allows 20 s")
LATE = ExceededLimit("deadline", "it has run for 61 s, and its watchdog allows 60 s")

CASES = {
    "runs": ({"phase": "Running"}, "nothing", "", ()),
    "succeeded": ({"phase": "Succeeded"}, "nothing", "", ()),
    "error that it survived": ({"phase": "Running", "first_cause": BUG}, "nothing", "", ()),
    "deleted pod": ({"lost_pods": (DELETED,)}, "relaunch", "`train-worker-1` was removed from the job", ()),
    "deleted pod, then errors of the others": ({"lost_pods": (DELETED,), "first_cause": BUG}, "relaunch", "was removed", ()),
    "two deleted pods": ({"lost_pods": (DELETED, PREEMPTED)}, "relaunch", "were removed", ()),
    "lost node": ({"lost_pods": (DEAD_NODE,)}, "relaunch", "lost with node `a`", ()),
    "node that does not answer": ({"phase": "Running", "lost_pods": (DEAD_NODE,)}, "nothing", "", ()),
    "lost node of a job that runs": (
        {"phase": "Running", "has_lost_node": True, "lost_pods": (DEAD_NODE,)}, "relaunch", "lost with node `a`", (),
    ),
    "node lost twice": ({"lost_pods": (DEAD_NODE,), "history": [relaunch(node="a")]}, "relaunch", "is avoided", ("a",)),
    "another node lost": ({"lost_pods": (DEAD_NODE,), "history": [relaunch(node="b")]}, "relaunch", "lost", ()),
    "nodes that failed before stay avoided": (
        {"lost_pods": (DELETED,), "history": [relaunch(node="a"), relaunch(node="a")]}, "relaunch", "removed", ("a",),
    ),
    "pod deleted twice on a node": ({"lost_pods": (DELETED,), "history": [relaunch()]}, "relaunch", "removed", ()),
    "broken GPU twice": (
        {"first_cause": issue("gpu-lost", "Xid 79"), "nodes": {"train-worker-0": "a"}, "history": [relaunch(node="a")]},
        "relaunch", "a GPU has failed", ("a",),
    ),
    "exception once": ({"first_cause": BUG, "step": 40}, "relaunch", "", ()),
    "exception again at the same step": (
        {"first_cause": BUG_AGAIN, "step": 40, "history": [relaunch(failure=BUG_ID, step=40)]},
        "stop", "ended two launches after step 40", (),
    ),
    "exception again before the first step": (
        {"first_cause": BUG_AGAIN, "history": [relaunch(failure=BUG_ID)]}, "stop", "before the first step", (),
    ),
    "exception again, further": (
        {"first_cause": BUG_AGAIN, "step": 60, "history": [relaunch(failure=BUG_ID, step=40)]}, "relaunch", "", (),
    ),
    "another exception at the same step": (
        {"first_cause": BUG, "step": 40, "history": [relaunch(failure="other", step=40)]}, "relaunch", "", (),
    ),
    "network error again at the same step": (
        {"first_cause": NETWORK, "step": 40, "history": [relaunch(failure=NETWORK_ID, step=40)]}, "relaunch", "", (),
    ),
    "every round of the launch ended alike": ({"first_cause": BUG, "futile": "it repeats"}, "stop", "it repeats", ()),
    "missing image": ({"phase": "Pending", "first_cause": issue("image-not-found", "not found")}, "stop", "image", ()),
    "registry that does not answer": ({"phase": "Pending", "first_cause": issue("registry-unreachable")}, "nothing", "", ()),
    "quota": ({"phase": "Pending", "first_cause": issue("quota-exceeded", "exceeded quota")}, "stop", "cannot help", ()),
    "missing secret": ({"phase": "Pending", "first_cause": issue("secret-missing")}, "stop", "cannot help", ()),
    "quota that refused an earlier pod of a job that trained": (
        {"first_cause": issue("quota-exceeded", "exceeded quota"), "step": 30}, "relaunch", "", (),
    ),
    "stall": ({"phase": "Running", "limit": STUCK}, "relaunch", "no progress for 21 s", ()),
    "deadline": ({"phase": "Running", "limit": LATE}, "stop", "has run for 61 s", ()),
    "no cause": ({}, "relaunch", "no cause was found", ()),
    "budget spent": (
        {"lost_pods": (DELETED,), "checkpoint": 20, "history": [relaunch(progress=20)] * 3},
        "stop", "3 relaunches made no progress since step 20, and `recovery.retries` allows 3", (),
    ),
    "budget renewed by a checkpoint": (
        {"lost_pods": (DELETED,), "checkpoint": 40, "history": [relaunch(progress=20)] * 3}, "relaunch", "", (),
    ),
    "progress of one launch is unknown": (
        {"lost_pods": (DELETED,), "history": [relaunch(progress=step) for step in (10, 20, 30, 40, 50)]}, "relaunch", "", (),
    ),
    "progress is unknown too often": (
        {"lost_pods": (DELETED,), "history": [relaunch(progress=10), *[relaunch(progress=20)] * 3]},
        "stop", "3 relaunches made no progress since step 20", (),
    ),
    "steps from the beginning do not renew the budget": (
        {"lost_pods": (DELETED,), "checkpoint": 8, "history": [relaunch(progress=step) for step in (30, 5, 6)]},
        "stop", "3 relaunches made no progress since step 30", (),
    ),
    "budget partly renewed": (
        {"lost_pods": (DELETED,), "checkpoint": 40, "history": [*[relaunch(progress=20)] * 3, *[relaunch(progress=40)] * 2]},
        "relaunch", "", (),
    ),
    "steps without a checkpoint do not renew the budget": (
        {"lost_pods": (DELETED,), "checkpoint": 20, "step": 39, "history": [relaunch(progress=20)] * 3}, "stop", "20", (),
    ),
    "no retries": ({"lost_pods": (DELETED,), "recovery": RecoveryLimits(retries=0)}, "stop", "allows 0", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_decision(name):
    given, action, reason, avoid = CASES[name]
    fields = {"phase": "Failed", **given}
    decision = decide(Facts(**{**fields, "phase": JobPhase(fields["phase"]), "history": tuple(fields.get("history", ()))}))
    assert (decision.action, decision.avoid) == (action, avoid), decision
    assert reason in decision.reason
    assert bool(decision.reason) == (action != "nothing")
    assert (decision.entry is not None) == (action == "relaunch")


def test_next_launch_remembers_the_failure():
    entry = decide(Facts(phase=JobPhase.FAILED, launch="l1", first_cause=BUG, step=45, checkpoint=40)).entry
    assert entry is not None
    assert entry == Relaunch(launch="l1", reason=entry.reason, failure=BUG_ID, step=45, progress=40)


def test_decision_quotes_its_evidence():
    assert decide(Facts(phase=JobPhase.FAILED, lost_pods=(DELETED,))).evidence == (
        "train-worker-1: Killing: Stopping container pytorch",
    )
