"""What the real operator (v1.9.4) does with the pods of a job that exceeded its limit: it follows `cleanPodPolicy`."""

from __future__ import annotations

from typing import Any

import pytest

from kfjob.cluster import requests
from tests.cluster.facts import Space, submit, until
from tests.pytorchjobs import KIND

FIRST_FAILS = "import os, sys, time; 'worker-0' in os.uname().nodename and sys.exit(3); time.sleep(600)"


@pytest.mark.parametrize(("policy", "phases"), [("None", ["Running", "Running"]), ("Running", []), ("All", [])])
def test_backoff_limit_follows_the_clean_pod_policy(space: Space, name: str, policy: str, phases: list[str]):
    """The lint rule `unreliable-policy` says so. The pod that fails is Running, too: the kubelet restarts its container."""
    command = ["python3", "-c", FIRST_FAILS]
    run = {"backoff_limit": 1, "clean_pods": policy}
    plan = space.plan(name, command, nodes=2, restarts={"policy": "OnFailure"}, run=run, pod={"grace": 1})
    with space.open() as backend:
        ref = submit(backend, plan)
        until(lambda: "Failed" in condition_types(space, name))
        until(lambda: [pod["status"]["phase"] for pod in live_pods(space, name)] == phases)
        backend.stop(ref, timeout=120)


def condition_types(space: Space, job: str) -> set[str]:
    stored = space.client.call(requests.get_job(KIND, space.name, job))
    conditions = (stored.get("status") or {}).get("conditions") or ()
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


def live_pods(space: Space, job: str) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = space.client.call(requests.select_dependents(KIND, "pods", space.name, job).list_request())[
        "items"
    ]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
