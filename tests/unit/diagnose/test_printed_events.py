"""Events of Kubernetes in a saved log: what `kubectl describe pod` and `kubectl get events` print."""

from __future__ import annotations

import pytest

from tests.unit.diagnose.cases import examine, find_cause, lines

EVICTED = "Pod ephemeral local storage usage exceeds the total limit of containers 5Gi."
DESCRIBED = f"""
Events:
  Type     Reason     Age                From               Message
  ----     ------     ----               ----               -------
  Normal   Scheduled  24m                default-scheduler  Successfully assigned ml/a-worker-0 to node-1
  Warning  Evicted    109s (x2 over 3m)  kubelet, node-1    {EVICTED}
  Normal   Killing    109s               kubelet            Stopping container pytorch
"""
LISTED = f"""
LAST SEEN   TYPE      REASON      OBJECT           MESSAGE
24m         Normal    Scheduled   pod/a-worker-0   Successfully assigned ml/a-worker-0 to node-1
109s        Warning   Evicted     pod/a-worker-0   {EVICTED}
"""


@pytest.mark.parametrize(("text", "number"), [(DESCRIBED, 5), (LISTED, 3)], ids=["described", "listed"])
def test_warning_that_kubectl_printed_is_the_cause(text: str, number: int):
    first = find_cause(lines(text))
    assert (first.rule, first.line) == ("ephemeral-storage-full", number)
    assert first.evidence == (f"Evicted: {EVICTED}",)


def test_problem_of_a_start_that_a_later_event_shows_as_overcome_is_no_error():
    diagnosis, _ = examine(
        lines("""
  Warning  FailedScheduling  5m   default-scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/gpu.
  Normal   Scheduled         4m   default-scheduler  Successfully assigned ml/a-worker-0 to node-1
  Normal   Pulled            3m   kubelet            Container image "r/a:1" already present on machine
""")
    )
    assert diagnosis.healthy


def test_line_of_a_program_is_no_event():
    diagnosis, _ = examine(lines("Warning Evicted 5 entries of the cache: Pod ephemeral local storage usage exceeds"))
    assert diagnosis.healthy


def test_reason_of_the_last_state_of_a_container_is_the_cause():
    first = find_cause(
        lines("""
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
""")
    )
    assert first.rule == "out-of-memory"


def test_reasons_of_a_healthy_pod_are_no_error():
    diagnosis, _ = examine(lines("    State:          Terminated\n      Reason:       Completed\n      Exit Code:    0"))
    assert diagnosis.healthy
