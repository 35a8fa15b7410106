"""Recorded logs of real agents: every failure has its cause, and successful runs have no error."""

from __future__ import annotations

import json

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.rules import BY_ID
from tests.unit.diagnose.cases import RECORDED, examine, find_cause, recorded
from tests.unit.diagnose.texts import LINES, Text

FAILED = {  # rule, pod, line
    "2.15.0-c10d-elastic-kill-rank0-rejoin": ("peer-lost", "fsdp-master-0", 44),
    "2.15.0-c10d-endpoint-noroute-rt10": ("rendezvous-no-route", "fsdp-worker-10", 21),
    "2.15.0-c10d-endpoint-refused-rt10": ("rendezvous-refused", "fsdp-worker-0", 21),
    "2.15.0-c10d-endpoint-unresolvable-rt10": ("rendezvous-unresolvable", "fsdp-worker-0", 21),
    "2.15.0-c10d-gloo-bogus-ifname": ("gloo-no-interface", "fsdp-master-0", 64),
    "2.15.0-c10d-loglevel-info-lower": ("loglevel-lower-case", "fsdp-master-0", 23),
    "2.15.0-c10d-nccl-nogpu": ("no-gpu", "fsdp-master-0", 66),
    "2.15.0-c10d-store-host-dies": ("store-host-lost", "fsdp-master-0", 44),
    "2.15.0-c10d-too-few-nodes-jt15": ("too-few-nodes", "fsdp-worker-0", 63),
    "2.15.0-c10d-worker-exception-norestart": ("exception", "fsdp-worker-0", 51),
    "2.15.0-etcd-no-python-etcd": ("python-etcd-missing", "fsdp-master-0", 55),
    "2.15.0-etcd-rerun-same-id": ("stale-rendezvous-id", "fsdp-master-0-rerun", 26),
    "2.15.0-etcd-server-without-v2": ("etcd-v2-disabled", "fsdp-worker-10", 63),
}
CASES = sorted(case["case"] for case in json.loads((RECORDED / "expected.json").read_text()))
TRAINED = [case for case in CASES if case not in FAILED]
RECOVERED = {"2.15.0-c10d-kill9-worker-rank0", "2.15.0-c10d-elastic-kill-rank0-rejoin-OPTOUT"}


def all_issues(diagnosis: Diagnosis):
    first = (diagnosis.first_cause,) if diagnosis.first_cause else ()
    return (*first, *diagnosis.other_causes, *diagnosis.consequences, *diagnosis.warnings)


@pytest.mark.parametrize("case", TRAINED)
def test_successful_recording_has_no_issue_but_those_it_recovered_from(case: str):
    diagnosis, _ = examine(recorded(case))
    assert diagnosis.healthy
    assert not all_issues(diagnosis)
    assert bool(diagnosis.recovered) is (case in RECOVERED)


@pytest.mark.parametrize("case", sorted(FAILED))
def test_first_cause_is_quoted_at_its_location(case: str):
    first = find_cause(recorded(case))
    assert (first.rule, first.pod, first.line) == FAILED[case]
    line = (RECORDED / case / f"{first.pod}.log").read_text(errors="replace").splitlines()[FAILED[case][2] - 1]
    assert first.evidence[-1] == line.strip()[:400]


def test_peer_of_a_failed_worker_is_a_consequence():
    diagnosis, _ = examine(recorded("2.15.0-c10d-worker-exception-norestart"))
    assert diagnosis.first_cause
    assert diagnosis.first_cause.title == "the program ended with `RuntimeError: boom`"
    assert (diagnosis.first_cause.rank, diagnosis.first_cause.pods) == (1, ("fsdp-worker-0",))
    assert diagnosis.first_cause.place == "/workspace/train.py:19"
    peers = {finding.rule: finding.pods for finding in diagnosis.consequences}
    assert peers["peer-closed"] == ("fsdp-master-0",)
    assert not diagnosis.other_causes


def test_torchrun_summary_dates_lines_without_a_time():
    assert find_cause(recorded("2.15.0-c10d-worker-exception-norestart")).time == 1795242772 * 10**9  # 2026-11-21 06:32:52


def test_stale_store_explains_the_loss_of_rank_0():
    diagnosis, _ = examine(recorded("2.15.0-c10d-elastic-kill-rank0-rejoin"))
    (stale,) = diagnosis.other_causes
    assert stale.rule == "stale-store"
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in stale.remedy


def test_equal_failures_are_one_issue():
    first = find_cause(recorded("2.15.0-c10d-gloo-bogus-ifname"))
    assert first.pods == ("fsdp-master-0", "fsdp-worker-0")
    assert first.title == "gloo finds no address for the interface `eth9`"


@pytest.mark.parametrize("text", [text for text in LINES if text.source.startswith("seen: 2")], ids=lambda text: text.rule)
def test_recording_that_an_example_names_shows_its_rule(text: Text):
    logs = [path.read_text(errors="replace") for path in (RECORDED / text.source.removeprefix("seen: ")).glob("*.log")]
    assert any(BY_ID[text.rule].match(line) for log in logs for line in log.splitlines())
