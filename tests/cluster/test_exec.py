"""`kfjob exec` and `kfjob list --watch` on the real cluster."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import kfjob
from kfjob.api.settings import Settings
from tests.cluster.facts import Space
from tests.cluster.shell import Shell
from tests.kfjob_command import KFJOB

NAME = "steps"
STEPS = "i=0; while :; do i=$((i+1)); echo step $i/1000 loss 1.$i; sleep 0.5; done"


@pytest.fixture(scope="module")
def shell(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return the command line, beside a job of two pods that print progress."""
    folder = tmp_path_factory.mktemp("exec")
    spec = {"name": NAME, "image": space.facts.image, "nodes": 2, "command": ["sh", "-c", STEPS], "pod": {"grace": 1}}
    (folder / "job.yaml").write_text(json.dumps(spec))
    shell = Shell(space, folder)
    shell("submit", "job.yaml")
    shell("wait", NAME, "--for", "running", "--timeout", "120")
    shell("master", NAME, "--wait", "120")
    return shell


def test_command_runs_in_a_pod_with_its_exit_code_and_output(
    shell: Shell, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert shell("exec", NAME, "--pod", f"{NAME}-worker-1", "--", "hostname") == f"{NAME}-worker-1\n"
    assert shell("exec", NAME, "--", "sh", "-c", "echo only stderr >&2; exit 7", code=7) == "only stderr\n"
    assert "executable file not found" in shell("exec", NAME, "--", "no-such-program", code=1)

    reader = replace(shell, kubeconfig=space.facts.kubeconfig_of("reader", space.name))
    err = reader("exec", NAME, "--pod", f"{NAME}-worker-0", "--", "hostname", code=4)
    assert f"error: not allowed to get pods/exec in namespace `{space.name}`" in err
    assert f"`kubectl auth can-i get pods --subresource=exec -n {space.name}`" in err

    monkeypatch.setenv("KUBECONFIG", space.facts.kubeconfig)
    run = kfjob.attach(NAME, settings=Settings(state=tmp_path / "state", backend="kubernetes", namespace=space.name))
    result = run.execute(["sh", "-c", "head -c 3000000 /dev/zero; echo done >&2; exit 3"])
    assert (result.returncode, len(result.stdout), result.stderr) == (3, 3_000_000, b"done\n")


def test_input_reaches_the_command_to_its_end(shell: Shell):
    data = bytes(range(256)) * 20_000
    command = [KFJOB, "exec", NAME, "-i", "--pod", f"{NAME}-worker-0", "--", "cat"]
    result = subprocess.run(command, env=shell.environment, input=data, capture_output=True, timeout=120, check=True)
    assert result.stdout == data


def test_watched_list_prints_each_new_step(shell: Shell):
    with subprocess.Popen(
        [KFJOB, "list", "--watch", "-o", "json"], env=shell.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lists = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    steps = [job["progress"]["step"] for jobs in lists for job in jobs if job["name"] == NAME]
    assert len(steps) == 2
    assert steps[0] < steps[1]
