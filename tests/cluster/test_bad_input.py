"""Errors of the command line on a real cluster: exit codes and messages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cluster.facts import Space
from tests.kfjob_command import run_kfjob

SPEC = "name: train\nimage: a:1\ncommand: torchrun train.py\n"


def kfjob(space: Space, folder: Path, *argv: str, user: str = "admin", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
    kubeconfig = space.facts.kubeconfig if user == "admin" else space.facts.kubeconfig_of(user, space.name)
    env |= {"KUBECONFIG": kubeconfig, "KFJOB_STATE": str(folder), "KFJOB_NAMESPACE": space.name}
    (folder / "job.yaml").write_text(SPEC)
    return run_kfjob(argv, env=env, cwd=None, timeout=timeout)


def test_forbidden_is_exit_code_4_and_names_the_missing_right(space, tmp_path):
    result = kfjob(space, tmp_path, "status", "train", user="nobody")
    assert result.returncode == 4, result.stderr
    assert "pytorchjobs" in result.stderr
    assert "kubectl auth can-i" in result.stderr


def test_unknown_job_is_exit_code_3(space, tmp_path):
    for verb in ("status", "master", "logs", "stop", "wait", "relaunch"):
        result = kfjob(space, tmp_path, verb, "nothing-of-this-name")
        assert result.returncode == 3, f"{verb}: {result.stderr}"
        assert "nothing-of-this-name" in result.stderr


def test_refusal_quotes_the_api_server(space, tmp_path):
    job = str(tmp_path / "job.yaml")
    manager = "overrides={spec: {runPolicy: {managedBy: example.com/nobody}}}"  # the operator's webhook allows two others
    result = kfjob(space, tmp_path, "submit", job, "--set", manager)
    assert result.returncode == 1, result.stderr
    assert "managedBy" in result.stderr
    assert "example.com/nobody" in result.stderr
    assert kfjob(space, tmp_path, "list").stdout.count("train") == 0
