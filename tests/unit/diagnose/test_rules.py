"""Every rule matches its text, and no rule matches another's."""

from __future__ import annotations

import re
import string

import pytest
from msgspec.structs import replace

from kfjob.joblog.diagnose.engine.incident_reader import IncidentReader
from kfjob.joblog.diagnose.engine.incidents import Mark
from kfjob.joblog.diagnose.engine.matching import explain, match_rules
from kfjob.joblog.diagnose.engine.states import format_pod
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE, Role, Rule, Severity, Subject
from kfjob.joblog.diagnose.rules import BY_ID, RULES, check_ids
from kfjob.joblog.events import Event, JobChanged, JobPhase, KubernetesEvent, LogLine, PodChanged, PodPhase, WorkloadStatus
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from tests.unit.diagnose.cases import START, examine, find_cause
from tests.unit.diagnose.texts import EVENTS, JOBS, LINES, PODS, QUEUES

_EXTRA_GROUPS = {Subject.QUEUE: {"name"}, Subject.POD: {"image"}}  # values that texts may use without a group in the pattern


def match_pod(state: PodChanged) -> Rule | None:
    match = next(match_rules(Subject.POD, format_pod(state)), None)
    return match.rule if match else None


def explain_line(text: str) -> list[str]:
    reader = IncidentReader()
    incidents = [*reader.feed(text, Mark(1, Timestamp(), 1), lambda: iter(())), *reader.flush()]
    return [explanation.rule.id for incident in incidents if (explanation := explain(incident, pod="a-worker-0"))]


@pytest.mark.parametrize(("rule", "text"), [(line.rule, line.text) for line in LINES])
def test_line_matches_its_rule_and_passes_the_prefilter(rule: str, text: str):
    assert explain_line(text) == [rule]
    prefilter = Prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True)
    block = f"sample 7\n{text}\n".encode()
    assert text in "".join(block[start:end].decode() for start, end in prefilter.select(block))


@pytest.mark.parametrize(
    ("rule", "text"), [(line.rule, line.text) for line in LINES if BY_ID[line.rule].severity is Severity.ERROR]
)
def test_failed_job_with_this_line_is_diagnosed(rule: str, text: str):
    events: list[Event] = [
        PodChanged(pod="a-worker-0", phase=PodPhase.RUNNING, container_id="c", time=START),
        LogLine(pod="a-worker-0", text=text, time=START, container_id="c"),
        PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, container_id="c", exit_code=1, reason="Error", time=START + 9),
        JobChanged(phase=JobPhase.FAILED, time=START + 10),
    ]
    first = find_cause(events)
    assert (first.rule, first.line, first.evidence) == (
        rule,
        1,
        (text.strip(),),
    )
    assert UNKNOWN_VALUE not in first.title


@pytest.mark.parametrize(("rule", "state"), PODS)
def test_pod_state_matches_its_rule(rule: str, state: PodChanged):
    match = match_pod(state)
    assert match
    assert match.id == rule
    first = find_cause([state])
    assert first.rule == rule
    assert first.evidence[0]


@pytest.mark.parametrize(("rule", "state"), JOBS)
def test_job_state_matches_its_rule(rule: str, state: JobChanged):
    diagnosis, _ = examine([state])
    assert [issue.rule for issue in (diagnosis.first_cause, *diagnosis.warnings) if issue] == [rule]


@pytest.mark.parametrize(("rule", "event"), EVENTS)
def test_cluster_event_matches_its_rule(rule: str, event: KubernetesEvent):
    first = find_cause([event, JobChanged(phase=JobPhase.PENDING, reason="PyTorchJobCreated")])
    assert first.rule == rule
    assert first.pod == ("a-worker-0" if event.kind == "Pod" else "")
    assert first.evidence == (f"{event.reason}: {event.message}",)
    assert UNKNOWN_VALUE not in first.title + first.cause + first.remedy


@pytest.mark.parametrize(("rule", "status"), QUEUES)
def test_queue_status_matches_its_rule(rule: str, status: WorkloadStatus):
    diagnosis, _ = examine([status])
    issues = [issue for issue in (diagnosis.first_cause, *diagnosis.warnings) if issue]
    assert [issue.rule for issue in issues] == [rule]
    assert UNKNOWN_VALUE not in issues[0].title
    diagnosis, _ = examine([status, replace(status, admitted=True, reason="", message="")])
    assert diagnosis.healthy
    assert not diagnosis.warnings


@pytest.mark.parametrize("state", [
    PodChanged(pod="p", phase=PodPhase.PENDING, reason="ContainerCreating"),
    PodChanged(pod="p", phase=PodPhase.RUNNING, ready=True),
    PodChanged(pod="p", phase=PodPhase.SUCCEEDED, reason="Completed", exit_code=0),
    PodChanged(pod="p", phase=PodPhase.PENDING, reason="PodInitializing"),
])  # fmt: skip
def test_healthy_state_matches_no_rule(state: PodChanged):
    assert match_pod(state) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_is_complete(rule: Rule):
    texts = (rule.title, rule.cause, rule.remedy, rule.local_remedy)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.title
    assert not rule.title.endswith(".")
    assert rule.cause
    assert rule.remedy or rule.severity is Severity.HARMLESS or rule.role is Role.CONSEQUENCE
    assert all((*rule.unless, *rule.stack))
    assert rule.futile_after is None or (rule.futile_after >= 1 and rule.severity is Severity.ERROR)
    named = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
    if rule.subject not in {Subject.VIEW, Subject.EXCEPTION}:
        assert rule.subject is not Subject.LOG or rule.literals
        assert named <= {name.rstrip("0123456789") for name in rule.regex.names} | {
            "pod",
            "job",
            *(["package"] if "name" in rule.regex.names else []),
            *(["signal"] if {"number", "code"} & set(rule.regex.names) else []),
            *_EXTRA_GROUPS.get(rule.subject, ()),
        }


@pytest.mark.parametrize("text", [
    "2026-11-21 06:37:50 I [train.py:102] Batch 7 Loss: 2.00000, Speed: 8.00 samples/sec, lr: 0.000100",
    "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}",
    "Validation error: 0.12",
    "loading tokenizer, vocabulary of 32000 tokens",
    "Using bfloat16 for the parameters",
    "GPU_Count: 4",
])  # fmt: skip
def test_ordinary_lines_match_no_rule(text: str):
    assert explain_line(text) == []


def test_unknown_id_in_a_set_of_rules_is_an_error():
    assert check_ids("nccl-timeout") == ("nccl-timeout",)
    with pytest.raises(KeyError, match="ncl-timeout"):
        check_ids("ncl-timeout")
