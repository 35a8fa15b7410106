"""Which processes that the kernel killed count, by the files of a faked /proc and of faked control groups."""

from pathlib import Path

import pytest

from kfjob.local import proc

MACHINE = 12


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which the kernel has killed `MACHINE` processes; this one is in the group /work of both versions."""
    root = tmp_path / "proc"
    (root / "self").mkdir(parents=True)
    (root / "vmstat").write_text(f"pgfault 5\noom_kill {MACHINE}\n")
    (root / "self/cgroup").write_text("4:cpu,memory:/work\n1:name=systemd:/\n0::/work\n")
    monkeypatch.setattr(proc, "_ROOT", root)
    return root


def mount(root: Path, *kinds: str) -> dict[str, Path]:
    folders = {kind: root.parent / kind for kind in kinds}
    options = {"cgroup2": "rw,nsdelegate", "cgroup": "rw,cpu,memory"}
    (root / "self/mountinfo").write_text(
        "".join(f"30 23 0:28 / {folders[kind]} rw,relatime - {kind} {kind} {options[kind]}\n" for kind in kinds)
    )
    for folder in folders.values():
        (folder / "work").mkdir(parents=True)
    return folders


def test_kills_of_other_control_groups_do_not_count(root: Path):
    group = mount(root, "cgroup2")["cgroup2"]
    (group / "work/memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert proc.count_out_of_memory_kills() == 2


def test_kills_of_a_control_group_of_version_1(root: Path):
    """Version 2 is mounted beside it and has no controllers, as systemd's hybrid hierarchy."""
    group = mount(root, "cgroup2", "cgroup")["cgroup"]
    (group / "work/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert proc.count_out_of_memory_kills() == 1


@pytest.mark.parametrize("kinds", [(), ("cgroup2",)])
def test_kills_of_the_machine_without_control_groups_of_memory(root: Path, kinds: tuple[str, ...]):
    mount(root, *kinds)
    assert proc.count_out_of_memory_kills() == MACHINE


def test_no_kills_without_proc(root: Path):
    (root / "vmstat").unlink()
    assert proc.count_out_of_memory_kills() == 0
