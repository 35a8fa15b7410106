"""Each right of the guard is needed: without it, the guard names it and leaves the job as it is; with it, the guard goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.fixture
def take_away(space: Space, guard_kubeconfig: Path, tmp_path: Path) -> Iterator[Callable[[str, str], None]]:
    """Return a function that takes a right from the guard until the end of the test."""
    user = Shell(space, tmp_path, kubeconfig=str(guard_kubeconfig))

    def take(resource: str, verb: str) -> None:
        set_role(space, leave_out(ROLE, resource, verb), tmp_path)
        until(lambda: not user.is_allowed(verb, resource))

    yield take
    set_role(space, ROLE, tmp_path)


def refusal(resource: str, verb: str) -> str:
    return f"not allowed to {verb} {resource.partition('.')[0]} in namespace"


def test_every_right_of_the_guard_has_a_case():
    rights = {(right.full_resource, right.verb) for right in list_rights(ROLE) if right.group not in OTHER_GROUPS}
    assert rights == {*START, *RELAUNCH, *STOP, *ELSEWHERE}


@pytest.mark.parametrize(("resource", "verb"), START, ids=map(" ".join, START))
def test_guard_ends_without_a_right_that_it_always_needs(
    space: Space, start_guard: Start, take_away: Callable[[str, str], None], resource: str, verb: str
):
    script("kubectl", "-n", space.name, "delete", "lease", "kfjob-guard", "--ignore-not-found")
    take_away(resource, verb)
    guard = start_guard()
    assert guard.process.wait(60) in {Forbidden.exit_code, LOST_LEASE}
    assert refusal(resource, verb) in guard.log.read_text()


@pytest.mark.long
@pytest.mark.parametrize(("resource", "verb"), RELAUNCH, ids=map(" ".join, RELAUNCH))
def test_guard_relaunches_once_it_has_the_right(
    space: Space,
    name: str,
    *,
    start_guard: Start,
    take_away: Callable[[str, str], None],
    tmp_path: Path,
    resource: str,
    verb: str,
):
    kfjob = Shell(space, tmp_path, env={"KFJOB_ETCD_IMAGE": space.facts.etcd_image})
    guard = start_guard(KFJOB_ETCD_IMAGE=space.facts.etcd_image)
    with running_job(space, name, kfjob, recovery={}, rendezvous={"backend": "etcd-v2"}):
        until(lambda: guard.says(f"{name}: supervises launch"))
        old = read_launch_id(space, name)
        take_away(resource, verb)
        delete_pod(space, f"{name}-worker-0")
        until(lambda: guard.says(refusal(resource, verb)))
        set_role(space, ROLE, tmp_path)
        until(lambda: guard.says(f"replaces {old}"))
        kfjob("stop", name)


@pytest.mark.long
@pytest.mark.parametrize(("resource", "verb"), STOP, ids=map(" ".join, STOP))
def test_guard_gives_a_job_up_once_it_has_the_right(
    space: Space,
    name: str,
    *,
    start_guard: Start,
    take_away: Callable[[str, str], None],
    tmp_path: Path,
    resource: str,
    verb: str,
):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={}, env={"FAIL_AT": "17"}):
        take_away(resource, verb)
        until(lambda: guard.says(refusal(resource, verb)))
        set_role(space, ROLE, tmp_path)
        until(lambda: "kfjob.dev/guard-decision" in read_job(space, name)["metadata"]["annotations"])
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        kfjob("stop", name)
