"""The command line with read-only access: pods and their logs, nothing else (`manifests/rbac/reader.yaml`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.cluster.facts import Space, until
from tests.cluster.shell import Shell

PRINTS = """
import os, time
print('up', flush=True)
for step in range(1, 1000):
    if os.environ['HOSTNAME'].endswith('-1'):
        print(f'Batch {step} Loss: 1.50000, Speed: 2.50 samples/sec, lr: 0.000091', flush=True)
    time.sleep(0.2)
"""


def test_reader_finds_the_master_and_reads_logs(space: Space, name: str, tmp_path: Path):
    job = {"name": name, "image": space.facts.image, "nodes": 2, "command": ["python3", "-c", PRINTS]}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    submitter = Shell(space, tmp_path)
    reader = replace(submitter, kubeconfig=space.facts.kubeconfig_of("reader", space.name))
    submitter("submit", "job.yaml")

    assert reader("master", name, "--wait", "120", "-o", "name") == f"pod/{name}-worker-1\n"
    assert json.loads(reader("master", name, "--fresh", "-o", "json"))["evidence"]["kind"] == "progress line"
    rows = reader("master", name, "--all")
    assert f"\n*   {name}-worker-1" in rows
    assert f"\n    {name}-worker-0" in rows

    def status() -> dict[str, object]:
        progress: dict[str, object] = json.loads(reader("status", name, "-o", "json"))["progress"]
        return progress

    first_step = int(str(status()["step"]))
    until(lambda: int(str(status()["step"])) > first_step)
    assert reader("logs", name, "--pod", f"{name}-worker-0", "-o", "raw") == "up\n"
    assert "Batch" in reader("logs", name, "--master", "--tail", "1")
    assert "kubectl auth can-i list pytorchjobs.kubeflow.org" in reader("list", code=4)
    assert "kubectl auth can-i" in reader("stop", name, code=4)
    assert name in submitter("list")


FILLS_ITS_LOG = """
import itertools, time
for step in itertools.count(1):
    print(f'step {step} loss {9 - step * 1e-5:.5f} ' + 'x' * 400, flush=True)
    if step > 30000:  # 12 MB; the kubelet begins a new file after 10 MiB
        time.sleep(0.2)
"""


def test_first_loss_of_a_log_that_the_kubelet_rotated_has_its_step(space: Space, name: str, tmp_path: Path):
    job = {"name": name, "image": space.facts.image, "command": ["python3", "-c", FILLS_ITS_LOG]}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    shell = Shell(space, tmp_path)
    shell("submit", "job.yaml")
    shell("master", name, "--wait", "120", "-o", "name")

    def read_first_step() -> int:
        """The step of the log's first line; 0 while the kubelet's new file is empty, or has a part of a line."""
        words = shell("logs", name, "--pod", f"{name}-worker-0", "-o", "raw").partition("\n")[0].split()
        return int(words[1]) if len(words) > 1 else 0

    until(lambda: read_first_step() > 1)
    first_step = read_first_step()
    assert f"at step {first_step}, where the log begins" in shell("status", name)
