"""Commands use exactly the rights of manifests/rbac/submitter.yaml; without a right, one ends with exit code 4 and names it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.facts import Space, until
from tests.cluster.shell import Shell, set_role
from tests.kfjob_command import make_command
from tests.role import leave_out, list_rights, read_role

ROLE = read_role("submitter")
JOBS = "pytorchjobs.kubeflow.org"
REFUSED = {
    (JOBS, "create"): "submit second.yaml",
    (JOBS, "list"): "list",
    (JOBS, "patch"): "scale first 2",
    ("pods", "watch"): "logs first -f",
}
"""A command that needs the right, by the resource and the verb."""
COMMANDS = (
    "submit second.yaml",
    "diff first.yaml",
    "list",
    "apply changed.yaml",
    "scale first 1",
    "stop first --no-archive",
)
"""Commands that need all rights together, beside `watch` and `logs -f`."""
ELSEWHERE = {
    ("pods", "delete"): "frees the pods of a failed job (test_guard), and --force those of a lost node",
    (
        f"{JOBS}/finalizers",
        "update",
    ): "for the plugin OwnerReferencesPermissionEnforcement, which this cluster does not run",
}
"""Rights that other tests cover, or that no command here needs, with the reason."""
OTHER_GROUPS = ("trainer.kubeflow.org", "kueue.x-k8s.io", "visibility.kueue.x-k8s.io")
"""API groups that the cluster has only in the tests of Kubeflow Trainer and of Kueue."""
PRINTS = "i=0; while :; do i=$((i+1)); echo step $i/1000 loss 1.$i; sleep 0.5; done"
RECORDING = """
import os
from kfjob.cluster.transport import HttpTransport

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
send = HttpTransport.open

def open(self, request, limits):
    stream = send(self, request, limits)
    if stream.status < 400:
        _, api, group, *_ = request.path.split("/")
        resource = request.resource + (f".{group}" if api == "apis" else "")
        resource += f"/{request.subresource}" if request.subresource else ""
        with os.fdopen(os.open(os.environ["REQUESTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), "w") as file:
            file.write(f"{resource} {VERBS.get(request.method, request.verb)}\\n")
    return stream

HttpTransport.open = open
"""
"""Lets kfjob record the resource and the verb of every request that the API server allows."""


def make_job(space: Space, name: str, *, nodes: int = 1) -> str:
    """Return a spec with an etcd of its own, so that it needs a pod and a service too."""
    return json.dumps(
        {
            "name": name,
            "image": space.facts.image,
            "nodes": nodes,
            "elastic": {"min": 1, "max": 2},
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
        "changed.yaml": make_job(space, "first", nodes=2),
        "second.yaml": make_job(space, "second"),
    }.items():
        (folder / file).write_text(text)
    env = {"KFJOB_ETCD_IMAGE": space.facts.etcd_image, "REQUESTS": str(folder / "requests")}
    kubeconfig = space.facts.kubeconfig_of("submitter", space.name)
    shell = Shell(space, folder, kubeconfig=kubeconfig, env=env, setup=RECORDING)
    shell("submit", "first.yaml")
    shell("wait", "first", "--for", "progress", "--timeout", "120")
    return shell


@pytest.fixture
def grant(submitter: Shell) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Return a function that gives the submitter another role for one test."""

    yield lambda role: set_role(submitter.space, role, submitter.folder)
    set_role(submitter.space, ROLE, submitter.folder)


@pytest.mark.parametrize(("resource", "verb"), REFUSED, ids=map(" ".join, REFUSED))
def test_command_without_a_right_names_it(submitter: Shell, grant, resource: str, verb: str):
    grant(leave_out(ROLE, resource, verb))
    name, _, subresource = resource.partition("/")
    can_i = ("auth", "can-i", verb, name, *([f"--subresource={subresource}"] if subresource else []))
    until(lambda: submitter.lacks_right(verb, resource))
    error = submitter(*REFUSED[resource, verb].split(), code=4)
    assert f"not allowed to {verb} {resource.removesuffix('.kubeflow.org')} in namespace" in error
    assert f"`kubectl {' '.join(can_i)} -n {submitter.space.name}`" in error
    assert "Running" in replace(submitter, kubeconfig="", setup="")("status", "first")


def test_commands_use_exactly_the_rights_of_the_role(submitter: Shell):
    until(lambda: not any(submitter.lacks_right(verb, resource) for resource, verb in REFUSED))
    followers = [
        subprocess.Popen([*make_command(RECORDING), *argv], env=submitter.environment, stdout=subprocess.DEVNULL)
        for argv in (("watch", "first"), ("logs", "first", "-f"))
    ]
    try:
        for command in COMMANDS:
            submitter(*command.split())
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()
    used = {tuple(line.split()) for line in Path(submitter.env["REQUESTS"]).read_text().splitlines()}
    rights = {(right.full_resource, right.verb) for right in list_rights(ROLE) if right.group not in OTHER_GROUPS}
    assert used == rights - {*ELSEWHERE}
    assert rights >= {*ELSEWHERE}
