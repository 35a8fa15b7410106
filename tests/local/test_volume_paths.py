"""A path of a volume in the code of a local job is a path of this machine: `submit` and `validate` say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.local.machine import Machine

pytestmark = pytest.mark.local
MOUNT = "/dev/kfjob-test-volume"  # kfjob mounts nothing in /dev


@pytest.fixture
def kfjob(tmp_path: Path) -> Machine:
    return Machine(tmp_path, cwd=tmp_path)


def warn(kfjob: Machine, command: str | list[str], **spec: object) -> str:
    """Return what `validate` says about a job with a claim at MOUNT."""
    volumes = [{"name": "other", "mount_path": "/elsewhere", "empty_dir": True}]
    volumes.append({"name": "work", "mount_path": MOUNT, "pvc": "claim"})
    (kfjob.folder / "job.json").write_text(
        json.dumps({"name": "paths", "command": command, "volumes": volumes, **spec}, indent=1)
    )
    result = kfjob.run("validate", "job.json")
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_a_folder_of_the_machine_that_should_be_read_only_is_a_warning(kfjob: Machine):
    folder = {"name": "corpus", "mount_path": "/corpus", "host_path": str(kfjob.folder), "read_only": True}
    (kfjob.folder / "job.json").write_text(json.dumps({"name": "reads", "command": "true", "volumes": [folder]}))
    result = kfjob.run("validate", "job.json")
    assert f"warning: `read_only` has no effect on this machine: the job can change `{kfjob.folder}`" in result.stderr


@pytest.mark.parametrize(
    "code",
    [
        f"open('{MOUNT}/last.pt', 'w')",
        f"import pathlib\n\nclass A:\n    folder = pathlib.Path('{MOUNT}')",
        f"import sys\nname = f'{MOUNT}/{{sys.argv[0]}}'",
    ],
)
def test_a_path_in_the_code_is_a_warning(kfjob: Machine, code: str):
    (kfjob.folder / "lib").mkdir()
    (kfjob.folder / "mine.py").touch()
    (kfjob.folder / "lib" / "save.py").write_text(code)
    text = warn(kfjob, "python3 mine.py")
    assert f"warning: `{MOUNT}" in text
    assert "in `save.py` is a path of this machine, which all jobs share, and not in volume `work`" in text
    line = code.count("\n") + 1
    assert f"lib/save.py:{line} names it; on this machine the volume is `{kfjob.folder}/state/volumes/claim`" in text
    assert "--> job.json:" in text
    assert "(volumes.1.mount_path)" in text


def test_shell_scripts_are_read(kfjob: Machine):
    (kfjob.folder / "run.sh").write_text(f"set -e\n# {MOUNT}\nmkdir -p {MOUNT}/out\n")
    assert "run.sh:3 names it" in warn(kfjob, "bash run.sh")
    assert f"`{MOUNT}/in` in the script of the command" in warn(kfjob, ["bash", "-c", f"ls {MOUNT}/in && true"])


@pytest.mark.parametrize(
    ("code", "command", "spec"),
    [
        ("print(1)", f"python3 mine.py --out {MOUNT}/run", {}),
        (f"default = '{MOUNT}/run'", f"python3 mine.py --out={MOUNT}/run", {}),
        (f"import os\nos.environ.get('OUT', '{MOUNT}/run')", "python3 mine.py", {"env": {"OUT": f"{MOUNT}/run"}}),
        (f"print('{MOUNT}-2/x', 'see {MOUNT}/x')", "python3 mine.py", {}),
        ("not Python", "python3 mine.py", {}),
    ],
)
def test_other_paths_are_none(kfjob: Machine, code: str, command: str, spec: dict[str, object]):
    (kfjob.folder / "mine.py").write_text(code)
    assert "path of this machine" not in warn(kfjob, command, **spec)


def test_a_folder_of_this_machine_at_its_own_path_is_the_volume(kfjob: Machine):
    (kfjob.folder / "mine.py").write_text(f"print('{kfjob.folder}/x')")
    folder = str(kfjob.folder)
    volumes = [{"name": "here", "mount_path": folder, "host_path": folder}]
    assert "path of this machine" not in warn(kfjob, "python3 mine.py", volumes=volumes)
