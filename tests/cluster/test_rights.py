"""Each right of manifests/rbac/submitter.yaml is needed: without it, a command ends with exit code 4 and names the right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.facts import Space, until
from tests.cluster.shell import Shell, set_role
from tests.role import leave_out, list_rights, read_role

ROLE = read_role("submitter")
RIGHTS = list_rights(ROLE)
JOBS = "pytorchjobs.kubeflow.org"
CASES = {
    (JOBS, "create"): "submit second.yaml",
    (JOBS, "get"): "diff first.yaml",
    (JOBS, "list"): "list",
    (JOBS, "watch"): "watch first",
    (JOBS, "update"): "apply changed.yaml",
    (JOBS, "patch"): "scale first 2",
    (JOBS, "delete"): "stop first --no-archive",
    ("pods", "create"): "submit second.yaml",
    ("pods", "get"): "logs first --tail 1",
    ("pods", "list"): "status first",
    ("pods", "watch"): "logs first -f",
    ("pods", "patch"): "diff first.yaml",
    ("services", "create"): "submit second.yaml",
    ("services", "get"): "diff first.yaml",
    ("services", "list"): "relaunch first",
    ("services", "patch"): "diff first.yaml",
    ("pods/log", "get"): "logs first --tail 1",
}
"""A command that needs the right, by the resource and the verb."""
ELSEWHERE = {
    ("pods", "delete"): "frees the pods of a failed job (test_guard), and --force those of a lost node",
    (
        f"{JOBS}/finalizers",
        "update",
    ): "for the plugin OwnerReferencesPermissionEnforcement, which this cluster does not run",
    ("events", "list"): "a command without this right leaves events out, and says so (test_diagnose)",
}
"""Rights that other tests cover, or that no command here needs, with the reason."""
OTHER_GROUPS = ("trainer.kubeflow.org", "kueue.x-k8s.io", "visibility.kueue.x-k8s.io")
"""API groups that the cluster has only in the tests of Kubeflow Trainer and of Kueue."""
PRINTS = "i=0; while :; do i=$((i+1)); echo step $i/1000 loss 1.$i; sleep 0.5; done"


def make_job(space: Space, name: str, *, nodes: int = 2) -> str:
    """Return a spec with an etcd of its own, so that it needs a pod and a service too."""
    return json.dumps(
        {
            "name": name,
            "image": space.facts.image,
            "elastic": {"min": 1, "max": nodes},
            "rendezvous": {"backend": "etcd-v2"},
            "command": ["sh", "-c", PRINTS],
            "pod": {"grace": 1},
        }
    )


@pytest.fixture(scope="module")
def submitter(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("rights")
    for file, text in {
        "first.yaml": make_job(space, "first"),
        "changed.yaml": make_job(space, "first", nodes=1),
        "second.yaml": make_job(space, "second"),
    }.items():
        (folder / file).write_text(text)
    env = {"KFJOB_ETCD_IMAGE": space.facts.etcd_image}
    shell = Shell(space, folder, kubeconfig=space.facts.kubeconfig_of("submitter", space.name), env=env)
    shell("submit", "first.yaml")
    shell("wait", "first", "--for", "progress", "--timeout", "120")
    return shell


@pytest.fixture
def grant(submitter: Shell) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Return a function that gives the submitter another role for one test."""

    yield lambda role: set_role(submitter.space, role, submitter.folder)
    set_role(submitter.space, ROLE, submitter.folder)


def test_every_right_has_a_command():
    needed = {(right.full_resource, right.verb) for right in RIGHTS if right.group not in OTHER_GROUPS}
    assert needed == {*CASES, *ELSEWHERE}


@pytest.mark.parametrize(("resource", "verb"), CASES, ids=map(" ".join, CASES))
def test_command_without_a_right_names_it(submitter: Shell, grant, resource: str, verb: str):
    grant(leave_out(ROLE, resource, verb))
    name, _, subresource = resource.partition("/")
    can_i = ("auth", "can-i", verb, name, *([f"--subresource={subresource}"] if subresource else []))
    until(lambda: submitter.lacks_right(verb, resource))
    error = submitter(*CASES[resource, verb].split(), code=4)
    assert f"not allowed to {verb} {resource.removesuffix('.kubeflow.org')} in namespace" in error
    assert f"`kubectl {' '.join(can_i)} -n {submitter.space.name}`" in error
    assert "Running" in replace(submitter, kubeconfig="")("status", "first")
