"""What the real operator (v1.9.4) does with the pods of a job that exceeded its limit: it follows `cleanPodPolicy`."""

from __future__ import annotations

from kfjob.cluster import requests
from kfjob.plan import JobPlan
from tests.cluster.facts import Space, submit, until
from tests.pytorchjobs import KIND

FIRST_FAILS = "import os, sys, time; 'worker-0' in os.uname().nodename and sys.exit(3); time.sleep(600)"


PHASES = {"None": ["Running", "Running"], "Running": [], "All": []}
"""Phases of the pods that are left, by the policy."""


def test_backoff_limit_follows_the_clean_pod_policy(space: Space, name: str):
    """The lint rule `unreliable-policy` says so. The pod that fails is Running, too: the kubelet restarts its container."""
    with space.open() as backend:
        refs = {policy: submit(backend, plan_job(space, f"{name}-{policy.lower()}", policy)) for policy in PHASES}
        for policy, ref in refs.items():
            until(lambda job=ref.name: "Failed" in condition_types(space, job))  # type: ignore[misc]
            until(lambda job=ref.name, policy=policy: list_phases(space, job) == PHASES[policy])  # type: ignore[misc]


def plan_job(space: Space, name: str, policy: str) -> JobPlan:
    command = ["python3", "-c", FIRST_FAILS]
    run = {"backoff_limit": 1, "clean_pods": policy}
    return space.plan(name, command, nodes=2, restarts={"policy": "OnFailure"}, run=run, pod={"grace": 1})


def condition_types(space: Space, job: str) -> set[str]:
    stored = space.client.call(requests.get_job(KIND, space.name, job))
    conditions = (stored.get("status") or {}).get("conditions") or ()
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


def list_phases(space: Space, job: str) -> list[str]:
    """Return the phases of the pods that nobody deletes."""
    pods = space.client.call(requests.select_dependents(KIND, "pods", space.name, job).list_request())["items"]
    return [pod["status"]["phase"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
