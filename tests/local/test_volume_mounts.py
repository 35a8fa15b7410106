"""A volume of a local job is at its mount path for the job's processes, and nowhere else on the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kfjob.backends import folder
from kfjob.joblog.events import JobPhase
from kfjob.local import child, volume_mounts
from kfjob.local.identity import read_identity
from kfjob.local.launch_spec import IDENTITY
from kfjob.local.volume_mounts import can_mount, locate, select_mounts
from tests.kfjob_command import KFJOB
from tests.local.conftest import Here
from tests.local.machine import Machine, wait_until

ENTER = """
import os, sys
from pathlib import Path
from kfjob.local import volume_mounts as mounts

folder, namespaces = Path(sys.argv[1]), sys.argv[2]
user, group = os.geteuid(), os.getegid()
mounts._call("unshare", mounts._CLONE_NEWUSER | mounts._CLONE_NEWNS)
Path("/proc/self/uid_map").write_text(f"1000 {user} 1")
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/gid_map").write_text(f"1000 {group} 1")
mounts._mount(None, Path("/"), mounts._MS_SLAVE | mounts._MS_REC)
mounts._mount(folder, folder, mounts._MS_BIND | mounts._MS_REC)
mounts._mount(None, Path("/"), mounts._MS_REMOUNT | mounts._MS_BIND | mounts._MS_RDONLY)
Path("/proc/sys/user/max_user_namespaces").write_text(namespaces)
os.chdir(folder)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Run a program as user 1000 without rights, who can write in one folder and make this number of user namespaces."""
CODE = """
import sys
from pathlib import Path
file = Path("{mount}/out.txt")
Path(sys.argv[1], "argument").touch()
print("before", file.read_text() if file.exists() else "nothing", (file.parent / "argument").exists(), Path.cwd())
file.write_text(sys.argv[2])
"""
SLOW = """
import os, signal, sys, time

def save(*_):
    open("{mount}/saved", "w").write("saved")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
open("{mount}/pid", "w").write(str(os.getpid()))
time.sleep(600)
"""


class UserMachine(Machine):
    """This machine for a user who is not root."""

    def __init__(self, folder: Path, *, namespaces: int) -> None:
        super().__init__(folder)
        (folder / "tmp").mkdir()
        self.env["TMPDIR"] = str(folder / "tmp")
        self._enter = [sys.executable, "-c", ENTER, str(folder), str(namespaces)]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, KFJOB, *argv], env=self.env, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture(params=["this user", "user without rights"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Machine, str]:
    """A machine, and a mount path: in a folder of the user, or at `/`, where the user can make nothing."""
    if request.param == "this user":
        return Machine(tmp_path, cwd=tmp_path), str(tmp_path / "new" / "workspace")
    return UserMachine(tmp_path, namespaces=50), "/kfjob-test-volume"


def write_spec(folder: Path, name: str, mount: str, command: list[str]) -> str:
    """Write a spec with two volumes, one in the other."""
    volumes: list[dict[str, object]] = [{"name": "work", "mount_path": mount, "pvc": f"claim-{name}"}]
    volumes.append({"name": "scratch", "mount_path": f"{mount}/scratch", "empty_dir": True})
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "command": command, "volumes": volumes}))
    return f"{folder}/{name}.json"


def start_slow_job(kfjob: Machine, mount: str) -> tuple[Path, Path]:
    """Start a job that runs until SIGTERM; return the folder of its process in /proc, and that of its volume."""
    kfjob("submit", write_spec(kfjob.folder, "slow", mount, ["python3", "-c", SLOW.format(mount=mount)]))
    claim = kfjob.folder / "state" / "volumes" / "claim-slow"
    wait_until(lambda: (claim / "pid").exists() and (claim / "pid").read_text())
    return Path("/proc") / (claim / "pid").read_text(), claim


def find_mounted(mount: str) -> bool:
    return f" {mount} " in Path("/proc/self/mountinfo").read_text()


@pytest.mark.local
def test_paths_in_the_code_are_in_the_volume_of_the_job(place: tuple[Machine, str]):
    kfjob, mount = place
    (kfjob.folder / "mine.py").write_text(CODE.format(mount=mount))
    for name in ("a", "b"):
        spec = write_spec(kfjob.folder, name, mount, ["python3", "mine.py", mount, f"by {name}"])
        result = kfjob.run("submit", spec, "--follow")
        assert (result.returncode, "warning" in result.stderr) == (0, False), result.stderr
        assert f"before nothing True {kfjob.folder}" in kfjob("logs", name)
    again = kfjob("relaunch", "a", "--set", f"command=python3 mine.py {mount} again", "--follow")
    assert "before by a True" in again + kfjob("logs", "a")
    files = {path.parent.name: path.read_text() for path in kfjob.folder.glob("state/volumes/*/out.txt")}
    assert files == {"claim-a": "again", "claim-b": "by b"}
    assert not Path(mount, "out.txt").exists()
    for name in ("a", "b"):
        kfjob("stop", name)


@pytest.mark.local
def test_stop_leaves_no_process_and_no_mount(place: tuple[Machine, str]):
    kfjob, mount = place
    process, claim = start_slow_job(kfjob, mount)
    assert f" {mount} " in (process / "mountinfo").read_text()
    assert f" {mount}/scratch " in (process / "mountinfo").read_text()
    assert not find_mounted(mount)
    assert "Running" in kfjob("status", "slow")
    kfjob("stop", "slow")
    assert (claim / "saved").read_text() == "saved"
    assert not process.exists()
    assert not find_mounted(mount)


@pytest.mark.local
def test_the_guard_ends_the_job_of_a_killed_supervisor(place: tuple[Machine, str]):
    kfjob, mount = place
    process, claim = start_slow_job(kfjob, mount)
    (identity,) = kfjob.folder.glob(f"state/local/*/slow/*/{folder.RUN}/{IDENTITY}")
    supervisor = read_identity(identity)
    assert supervisor is not None
    assert f"PPid:\t{supervisor.pid}\n" in (process / "status").read_text()
    assert supervisor.send(signal.SIGKILL)
    wait_until(lambda: not process.exists())
    assert (claim / "saved").read_text() == "saved"
    kfjob("stop", "slow")


@pytest.mark.local
def test_a_machine_that_forbids_namespaces_replaces_arguments_and_warns(tmp_path: Path):
    kfjob = UserMachine(tmp_path, namespaces=0)
    mount = str(tmp_path / "workspace")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "mine.py").write_text(CODE.format(mount=mount))
    spec = write_spec(tmp_path, "a", mount, ["python3", "mine.py", mount, "code"])
    result = kfjob.run("submit", spec, "--follow")
    assert result.returncode == 0, result.stderr
    assert f"warning: `{mount}/out.txt` in `mine.py` is a path of this machine" in result.stderr
    assert "but not in the code" in kfjob("explain", spec)
    assert "before nothing False" in kfjob("logs", "a")
    assert (tmp_path / "workspace" / "out.txt").read_text() == "code"
    assert (tmp_path / "state" / "volumes" / "claim-a" / "argument").exists()
    kfjob("stop", "a")


@pytest.mark.local
def test_a_script_of_a_volume_starts_from_a_shell(tmp_path: Path):
    kfjob, mount = Machine(tmp_path, cwd=tmp_path), str(tmp_path / "workspace")
    spec = write_spec(tmp_path, "a", mount, ["bash", "-c", f"cd {mount} && python3 mine.py"])
    assert f"is `{tmp_path}/state/volumes/claim-a` on this machine\n" in kfjob("explain", spec)
    assert "mine.py" in kfjob.run("submit", spec).stderr
    (tmp_path / "state" / "volumes" / "claim-a").mkdir(parents=True)
    (tmp_path / "state" / "volumes" / "claim-a" / "mine.py").write_text("print('from the volume')")
    result = kfjob.run("submit", spec, "--follow")
    assert result.returncode == 0, result.stderr
    assert "from the volume" in kfjob("logs", "a")
    kfjob("stop", "a")


@pytest.mark.local
def test_folders_and_files_of_the_machine_are_mounted_and_exit_codes_stay(here: Here, tmp_path: Path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text").write_text("words")
    (tmp_path / "vocabulary").write_text("tokens")
    code = f"print(open('{tmp_path}/in/text').read(), open('{tmp_path}/tokens.txt').read()); raise SystemExit(7)"
    ref = here.submit(
        code,
        volumes=[
            {"name": "in", "mount_path": f"{tmp_path}/in", "host_path": f"{tmp_path}/corpus"},
            {"name": "file", "mount_path": f"{tmp_path}/tokens.txt", "host_path": f"{tmp_path}/vocabulary"},
        ],
    )
    snapshot = here.end(ref)
    assert (snapshot.job.phase, snapshot.pods[0].exit_code) == (JobPhase.FAILED, 7)
    assert here.texts(ref) == ["words tokens"]


@pytest.mark.local
def test_two_folders_of_a_claim_stay_apart(here: Here, tmp_path: Path):
    code = f"[open(f'{tmp_path}/{{name}}/x', 'w').write(name) for name in ('in', 'out')]"
    claim = {"name": "data", "pvc": "claim"}
    folders = [claim | {"mount_path": f"{tmp_path}/{name}", "sub_path": f"run/{name}"} for name in ("in", "out")]
    assert here.end(here.submit(code, volumes=folders)).job.phase is JobPhase.SUCCEEDED
    files = {path.parent.name: path.read_text() for path in tmp_path.rglob("claim/run/*/x")}
    assert files == {"in": "in", "out": "out"}


def test_a_process_starts_without_mounts_that_fail(tmp_path: Path):
    reading, writing = os.pipe()
    process = child._start(["echo", "started"], {}, writing, "", {str(tmp_path / "a"): str(tmp_path / "missing")})
    os.close(writing)
    with os.fdopen(reading) as output:
        first, second = output.read().splitlines()
    assert process.wait() == 0
    assert first.startswith("kfjob: cannot mount the volumes at their paths")
    assert second == "started"
    assert not (tmp_path / "a").exists()


@pytest.mark.local
def test_a_mount_point_that_a_job_left_is_used_again(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("DATA_DIR", f"{tmp_path}/data")
    code = "import os; open(os.environ['DATA_DIR'] + '/x', 'w')"
    ref = here.submit(code, volumes=[{"name": "data", "mount_path": f"{tmp_path}/data", "pvc": "claim"}])
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    assert not list((tmp_path / "data").iterdir())
    assert list(tmp_path.rglob("claim/x"))


def test_a_path_where_the_volume_cannot_be_is_left_out(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    claim = f"{tmp_path}/claim"
    for path, source, fits in (
        ("file", claim, False), ("file/below", claim, False), ("folder", claim, True), ("new", claim, True),
        ("folder", f"{tmp_path}/file", False), ("new", f"{tmp_path}/file", True),
    ):  # fmt: skip
        assert bool(select_mounts({f"{tmp_path}/{path}": source}, [])) is fits, path


def test_nothing_is_probed_on_other_systems(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(volume_mounts, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(volume_mounts, "subprocess", SimpleNamespace())
    assert not can_mount(("/kfjob-test-volume",))


def test_a_volume_that_would_hide_a_path_of_the_job_is_not_mounted(tmp_path: Path):
    for name in ("bin", "cache/hub", "state/claim", "real/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin" / "python").symlink_to(tmp_path / "real" / "python")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    claim = f"{tmp_path}/state/claim"

    def is_mounted(path: str, folder: str = claim) -> bool:
        return bool(select_mounts({path: folder}, [f"{tmp_path}/bin/python", f"{tmp_path}/cache/hub"]))

    hiding = ("", "/bin", "/cache", "/cache/hub", "/state", "/state/claim", "/real", "/link", "/cache/")
    assert [name for name in hiding if is_mounted(f"{tmp_path}{name}")] == []
    assert all(is_mounted(f"{tmp_path}{name}") for name in ("/new", "/cache/hub/x", "/real/data", "/link/data", "/binary"))
    assert not any(is_mounted(path) for path in ("/", "/usr", "/lib", "/etc", "/dev", "/dev/shm", "/proc/x", "/sys/fs"))
    assert not is_mounted(f"{tmp_path}/link", f"{tmp_path}/real")
    assert is_mounted("/workspace")


def test_a_path_of_a_job_is_in_the_innermost_volume():
    mounts = {"/runs": "/state/a", "/runs/out": "/state/b", "/data/": "/state/c"}
    names = ("/runs/x/y", "/runs", "/runs/out/x", "/runner", "/data/x", "/")
    places = ["/state/a/x/y", "/state/a", "/state/b/x", "/runner", "/state/c/x", "/"]
    assert [str(locate(Path(name), mounts)) for name in names] == places
