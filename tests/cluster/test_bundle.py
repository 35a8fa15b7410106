"""`kfjob archive` on the real cluster: the file gives the verdict of the live job."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.cluster.facts import Space
from tests.cluster.shell import Shell

FAILS = "echo step 1/10 loss 2.5; echo 'ModuleNotFoundError: No module named flash_attn' >&2; exit 1"


def test_bundle_of_a_failed_job_is_diagnosed_on_another_machine(space: Space, name: str, tmp_path: Path):
    spec = {"name": name, "image": space.facts.image, "command": ["sh", "-c", FAILS], "env": {"HF_TOKEN": "kf-hunter2-9431"}}
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    shell = Shell(space, tmp_path)
    shell("submit", "job.yaml")
    shell("wait", name, "--timeout", "120", code=100)
    shell("archive", name, "-o", "b.zip")
    live = json.loads(shell("diagnose", name, "-o", "json"))
    elsewhere = Shell(space, tmp_path, kubeconfig="/dev/null", env={"KFJOB_STATE": str(tmp_path / "other")})
    saved = json.loads(elsewhere("diagnose", "--from", "b.zip", "-o", "json"))
    assert saved["headline"] == live["headline"]
    assert "step 1/10 loss 2.5" in elsewhere("logs", "--from", "b.zip", "-o", "raw")
    with zipfile.ZipFile(tmp_path / "b.zip") as packed:
        assert not [name for name in packed.namelist() if b"kf-hunter2" in packed.read(name)]
