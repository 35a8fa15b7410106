"""`kfjob exec` and `kfjob archive` of a job on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import kfjob
from kfjob.api.settings import Settings
from kfjob.base.errors import Refused

STEPS = "i=0; while :; do i=$((i+1)); echo step $i/1000 loss 1.$i; sleep 0.2; done"


def test_command_has_the_environment_and_the_folder_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    spec = {"name": "prints", "nodes": 2, "command": ["sh", "-c", STEPS], "env": {"HF_TOKEN": "kf-hunter2-9431"}}
    run = kfjob.submit(spec, settings=Settings(state=tmp_path / "state", backend="local"))
    try:
        run.wait(goal="progress", timeout=60)
        result = run.execute(["sh", "-c", 'echo "$HF_TOKEN"; pwd; echo err >&2; exit 7'], pod="prints-worker-1")
        assert (result.returncode, result.stderr) == (7, b"err\n")
        assert result.stdout.decode().splitlines() == ["kf-hunter2-9431", str(tmp_path)]
        assert run.execute(["true"]).returncode == 0, "the pod that prints the progress"
        with pytest.raises(Refused, match="no-such-program"):
            run.execute(["no-such-program"], pod="prints-worker-0")
        file = run.archive(tmp_path / "b.zip")
        assert kfjob.attach("prints", settings=Settings(state=tmp_path / "state", backend="local")).status().phase == "Running"
        assert file.is_file()
    finally:
        run.stop()
