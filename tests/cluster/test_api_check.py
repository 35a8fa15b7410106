"""The checks of manifests compared with the real API server: it refuses what they refuse, and accepts what they accept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.cluster.facts import ROOT, Space
from tests.unit.template.test_api_check import ACCEPTED_OBJECTS, POD, REFUSED_IN_JOBS, REFUSED_OBJECTS, RUNS_IN_JOBS, make_job

NOT_ON_THE_CLUSTER = ("Widget", "Role")
"""Kinds of the table that this cluster does not have, or whose creation needs more than a namespace."""
FAILS_LATER = ("`memory` is not a medium", "`A_b` is not the name")
"""Problems of pods that the API server stores and that never start: the kubelet knows no such medium, no claim has the name."""
WITHOUT_CHECK = (f"{POD}.restartPolicy", f"{POD}.containers.0.livenessProbe")
"""Fields of a job whose value the operator replaces, or which the strict validation of unknown fields refuses in a pod."""


def make_pod(path: str, value: Any) -> Any:
    """Return the pod that the operator would make of a job with a value at a path."""
    spec = make_job(path, value)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def create(space: Space, objects: Iterable[Any]) -> list[str]:
    """Return what the API server says against each object, "" if it accepts it; nothing is stored."""
    command = ["scripts/cluster", "kubectl", "-n", space.name, "create", "--dry-run=server", "--validate=ignore", "-f", "-"]

    def send(value: Any) -> str:
        result = subprocess.run(
            command, cwd=ROOT, input=json.dumps(value), text=True, capture_output=True, check=False, timeout=120
        )
        return result.stderr.strip() if result.returncode else ""

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(send, objects))


def test_the_api_server_refuses_each_pod_that_the_check_refuses(space: Space):
    pods = [
        make_pod(path, value) for path, value, title, _ in REFUSED_IN_JOBS if path.startswith(POD) and title not in FAILS_LATER
    ]
    assert len(pods) > 25
    answers = create(space, pods)
    assert [pod["spec"] for pod, answer in zip(pods, answers, strict=True) if "is invalid" not in answer] == []


def test_the_api_server_refuses_each_object_that_the_check_refuses(space: Space):
    objects = [value for value, _ in REFUSED_OBJECTS]
    answers = create(space, objects)
    assert [value for value, answer in zip(objects, answers, strict=True) if not answer] == []


def test_the_api_server_accepts_what_the_check_accepts(space: Space):
    pods = [make_pod(path, value) for path, value in RUNS_IN_JOBS if path.startswith(POD) and path not in WITHOUT_CHECK]
    objects = [value for value in ACCEPTED_OBJECTS if value["kind"] not in NOT_ON_THE_CLUSTER]
    assert len(pods) > 4
    assert [answer for answer in create(space, [*pods, *objects]) if answer] == []
