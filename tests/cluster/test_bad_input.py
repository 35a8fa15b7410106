"""What can go wrong between a person and a real cluster, through the command line: exit codes and words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.facts import ROOT, Space

KFJOB = str(Path(sys.executable).with_name("kfjob"))
SPEC = "name: train\nimage: a:1\ncommand: torchrun train.py\n"


def kubeconfig(space: Space, user: str) -> str:
    if user == "admin":
        return space.facts.kubeconfig
    asked = [str(ROOT / "scripts" / "cluster"), "kubeconfig", "--user", user, "--namespace", space.name]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def kfjob(space: Space, folder: Path, *argv: str, user: str = "admin", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
    env |= {"KUBECONFIG": kubeconfig(space, user), "KFJOB_STATE": str(folder), "KFJOB_NAMESPACE": space.name}
    (folder / "job.yaml").write_text(SPEC)
    return subprocess.run([KFJOB, *argv], env=env, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.parametrize("argv", [["submit", "{folder}/job.yaml"], ["status", "train"], ["list"], ["stop", "train"]])
def test_forbidden_is_exit_code_4_and_says_which_right_is_missing(space, tmp_path, argv):
    done = kfjob(space, tmp_path, *(word.format(folder=tmp_path) for word in argv), user="nobody")
    assert done.returncode == 4, done.stderr
    assert "pytorchjobs" in done.stderr
    assert "kubectl auth can-i" in done.stderr


def test_an_unknown_job_is_exit_code_3(space, tmp_path):
    for verb in ("status", "master", "logs", "stop", "wait", "relaunch"):
        done = kfjob(space, tmp_path, verb, "nothing-of-this-name")
        assert done.returncode == 3, f"{verb}: {done.stderr}"
        assert "nothing-of-this-name" in done.stderr


def test_what_the_api_server_refuses_is_told_in_its_words(space, tmp_path):
    job = str(tmp_path / "job.yaml")
    manager = "overrides={spec: {runPolicy: {managedBy: example.com/nobody}}}"  # the operator's webhook knows two
    done = kfjob(space, tmp_path, "submit", job, "--set", manager)
    assert done.returncode == 1, done.stderr
    assert "managedBy" in done.stderr
    assert "example.com/nobody" in done.stderr
    assert kfjob(space, tmp_path, "list").stdout.count("train") == 0
