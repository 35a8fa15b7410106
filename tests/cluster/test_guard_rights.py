"""Each right of the guard is needed: without it, the guard names it and leaves the job as it is; with it, the guard goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kfjob.base.errors import Forbidden
from kfjob.guard.run import LOST_LEASE
from tests.cluster.facts import Space, script, until
from tests.cluster.guarded import Start, delete_pod, list_pods, read_job, read_launch_id, running_job
from tests.cluster.shell import Shell, set_role
from tests.role import MANIFESTS, leave_out, list_rights

ROLE = next(item for item in yaml.safe_load_all((MANIFESTS / "guard/guard.yaml").read_text()) if item["kind"] == "Role")
Right = tuple[str, str]
"""Resource with its group, and verb."""
JOBS, LEASES = "pytorchjobs.kubeflow.org", "leases.coordination.k8s.io"
START = [(JOBS, "list"), (JOBS, "watch"), (LEASES, "create"), (LEASES, "get"), (LEASES, "list"), (LEASES, "update")]
RELAUNCH = [
    (JOBS, "create"),
    (JOBS, "get"),
    (JOBS, "delete"),
    ("pods", "get"),
    ("pods", "list"),
    ("pods", "watch"),
    ("pods", "create"),
    ("services", "create"),
    ("services", "list"),
    ("pods/log", "get"),
    ("events", "create"),
    (LEASES, "delete"),
]
ALWAYS = ((JOBS, "list"), (LEASES, "get"))
"""Of the rights that it needs at the start, those whose cases always run: one of its own requests and one of its lease."""
STOP = [(JOBS, "patch"), ("pods", "delete")]
ELSEWHERE = {
    (JOBS, "update"): "a relaunch that completes one of a killed guard applies the objects",
    (f"{JOBS}/finalizers", "update"): "for the plugin OwnerReferencesPermissionEnforcement, which this cluster does not run",
    ("events", "list"): "without it the guard decides without events",
    ("pods", "patch"): "as update of jobs",
    ("services", "get"): "as update of jobs",
    ("services", "patch"): "as update of jobs",
}
"""Rights that no case here needs, with the reason."""
OTHER_GROUPS = ("trainer.kubeflow.org", "kueue.x-k8s.io")
"""API groups that the cluster has only in the tests of Kubeflow Trainer and of Kueue."""


@dataclass(frozen=True)
class GuardRights:
    """The rights of the guard of a namespace, and a folder for the test."""

    space: Space
    guard: Shell
    folder: Path

    def take(self, right: Right) -> None:
        resource, verb = right
        set_role(self.space, leave_out(ROLE, resource, verb), self.folder)
        until(lambda: self.guard.lacks_right(verb, resource))

    def give_back(self) -> None:
        set_role(self.space, ROLE, self.folder)


@pytest.fixture
def rights(space: Space, guard_kubeconfig: Path, tmp_path: Path) -> Iterator[GuardRights]:
    """Return all rights of the guard, which it has again after the test."""
    rights = GuardRights(space, Shell(space, tmp_path, kubeconfig=str(guard_kubeconfig)), tmp_path)
    yield rights
    rights.give_back()


def refusal(right: Right) -> str:
    resource, verb = right
    return f"not allowed to {verb} {resource.partition('.')[0]} in namespace"


def test_every_right_of_the_guard_has_a_case():
    rights = {(right.full_resource, right.verb) for right in list_rights(ROLE) if right.group not in OTHER_GROUPS}
    assert rights == {*START, *RELAUNCH, *STOP, *ELSEWHERE}


@pytest.mark.parametrize(
    "right", [pytest.param(right, marks=() if right in ALWAYS else pytest.mark.long, id=" ".join(right)) for right in START]
)
def test_guard_ends_without_a_right_that_it_always_needs(space: Space, start_guard: Start, rights: GuardRights, right: Right):
    script("kubectl", "-n", space.name, "delete", "lease", "kfjob-guard", "--ignore-not-found")
    rights.take(right)
    guard = start_guard()
    assert guard.process.wait(60) in {Forbidden.exit_code, LOST_LEASE}
    assert refusal(right) in guard.log.read_text()


@pytest.mark.long
@pytest.mark.parametrize("right", RELAUNCH, ids=map(" ".join, RELAUNCH))
def test_guard_relaunches_once_it_has_the_right(space: Space, name: str, start_guard: Start, rights: GuardRights, right: Right):
    kfjob = Shell(space, rights.folder, env={"KFJOB_ETCD_IMAGE": space.facts.etcd_image})
    guard = start_guard(KFJOB_ETCD_IMAGE=space.facts.etcd_image)
    with running_job(space, name, kfjob, recovery={}, rendezvous={"backend": "etcd-v2"}):
        until(lambda: guard.says(f"{name}: supervises launch"))
        old = read_launch_id(space, name)
        rights.take(right)
        delete_pod(space, f"{name}-worker-0")
        until(lambda: guard.says(refusal(right)))
        rights.give_back()
        until(lambda: guard.says(f"replaces {old}"))
        kfjob("stop", name)


@pytest.mark.long
@pytest.mark.parametrize("right", STOP, ids=map(" ".join, STOP))
def test_guard_gives_a_job_up_once_it_has_the_right(
    space: Space, name: str, start_guard: Start, rights: GuardRights, right: Right
):
    kfjob, guard = Shell(space, rights.folder), start_guard()
    with running_job(space, name, kfjob, recovery={}, env={"FAIL_AT": "17"}):
        rights.take(right)
        until(lambda: guard.says(refusal(right)))
        rights.give_back()
        until(lambda: is_given_up(space, name))
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        kfjob("stop", name)


@pytest.mark.long
def test_next_guard_frees_the_pods_of_a_job_that_was_given_up(space: Space, name: str, start_guard: Start, rights: GuardRights):
    kfjob, first = Shell(space, rights.folder), start_guard()
    with running_job(space, name, kfjob, recovery={}, env={"FAIL_AT": "17"}):
        rights.take(("pods", "delete"))
        until(lambda: first.says(refusal(("pods", "delete"))) and is_given_up(space, name))
        first.process.kill()
        first.process.wait(30)
        assert len(list_pods(space, name)) > 1
        rights.give_back()
        second = start_guard()
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        assert not second.says("supervises launch")
        kfjob("stop", name)


def is_given_up(space: Space, name: str) -> bool:
    return "kfjob.dev/guard-decision" in read_job(space, name)["metadata"]["annotations"]
