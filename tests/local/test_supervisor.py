"""A job on this machine lives and dies as it should, whatever happens around it."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.base.errors import AlreadyExists, BackendError, NotFound, Refused, WaitTimeout
from kfjob.joblog.events import JobPhase, PodPhase
from kfjob.local.backend import LocalBackend
from tests.local.conftest import NAMESPACE, PATIENCE, SUBMIT, Here

pytestmark = pytest.mark.local

SLEEP = "import time; print('asleep', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
WITH_CHILD = (  # as torchrun starts its workers: in a session of their own
    "import subprocess, sys; "
    f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True, stdout=subprocess.DEVNULL); "
) + SLEEP
DAEMON = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.execve(sys.executable, [sys.executable, "-c", code, os.environ["PID_FILE"]], {})
    os._exit(0)
os.wait()
while not os.path.exists(os.environ["PID_FILE"]):
    time.sleep(0.02)
print("forked", flush=True)
"""
"""A process that has left its parent, its session and its environment."""
WAIT_FOR = """
import os, time
print("waits", flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.02)
print("goes")
"""
SAVE = """
import signal, sys, time
def end(*_):
    print("saving", flush=True)
    time.sleep(0.3)
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
"""

SUBMITTER = f"""
import fcntl, sys, termios, time
if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
{SUBMIT}
time.sleep(600)
"""


def submitter(here: Here, spec: dict[str, object], *, stdin: int) -> tuple[subprocess.Popen[str], JobRef]:
    """A process that submits a job and stays, the leader of a session of its own."""
    argv = [sys.executable, "-c", SUBMITTER, str(here.state), json.dumps(spec)]
    process = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    uid = process.stdout.readline().strip()
    return process, JobRef(backend="local", namespace=NAMESPACE, name=str(spec["name"]), uid=uid, launch="l1")


def waiting(go: Path) -> dict[str, object]:
    return {"name": "job", "nodes": 2, "command": [sys.executable, "-c", WAIT_FOR], "env": {"GO": str(go)}}


def test_a_job_survives_the_death_of_its_submitter(here: Here, tmp_path: Path):
    process, ref = submitter(here, waiting(tmp_path / "go"), stdin=subprocess.DEVNULL)
    here.until_says(ref, "waits")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    (tmp_path / "go").touch()
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    assert here.texts(ref) == ["waits", "goes"]


def test_neither_ctrl_c_nor_a_closed_terminal_reaches_the_agents(here: Here, tmp_path: Path):
    terminal, side_of_the_job = pty.openpty()
    process, ref = submitter(here, waiting(tmp_path / "go"), stdin=side_of_the_job)
    os.close(side_of_the_job)
    here.until_says(ref, "waits")
    os.write(terminal, b"\x03")
    assert process.wait(PATIENCE) == -signal.SIGINT  # it did reach the submitter
    process.communicate()
    os.close(terminal)
    (tmp_path / "go").touch()
    snapshot = here.end(ref)
    assert snapshot.job.phase is JobPhase.SUCCEEDED
    assert [pod.exit_code for pod in snapshot.pods] == [0, 0]


def test_agents_inherit_no_file_and_no_terminal(here: Here, tmp_path: Path):
    with (tmp_path / "secret").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        ref = here.submit(
            "import os; print(sorted(os.path.realpath(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')))"
        )
    here.end(ref)
    (line,) = here.texts(ref)
    assert "/dev/null" in line
    assert not any(word in line for word in ("secret", "tty", "pts", "lock", "status"))


def test_nothing_outlives_a_supervisor_that_is_killed(here: Here):
    ref = here.submit(WITH_CHILD, nodes=2, grace=0.5)
    here.until(lambda: len(here.alive(ref)) == 4)
    here.until_says(ref, "asleep")
    os.kill(here.supervisor(ref), signal.SIGKILL)
    here.until(lambda: here.get(ref).job.phase.ended)
    snapshot = here.get(ref)
    assert (snapshot.job.phase, snapshot.job.reason) == (JobPhase.FAILED, "SupervisorDied")
    assert {pod.phase for pod in snapshot.pods} == {PodPhase.FAILED}
    assert [event.phase for event in here.backend.watch(ref)][-1] is JobPhase.FAILED
    assert here.texts(ref, follow=True) == ["asleep"]
    here.until(lambda: not here.alive(ref))
    here.backend.stop(ref, timeout=PATIENCE)
    assert folder.read_snapshot(here.archived(ref)).job.reason == "SupervisorDied"


def test_stop_ends_processes_left_by_a_killed_supervisor_and_guard(here: Here):
    ref = here.submit(WITH_CHILD, grace=0.5)
    here.until(lambda: len(here.alive(ref)) == 2)
    here.until_says(ref, "asleep")
    here.kill_supervisor(ref, with_reaper=True)
    here.until(lambda: here.get(ref).job.reason == "Unsupervised")
    assert here.get(ref).job.phase is JobPhase.RUNNING
    assert len(here.alive(ref)) == 2
    here.backend.stop(ref, timeout=PATIENCE)
    assert not here.alive(ref)


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", ["by itself", "stop", "killed supervisor"])
def test_daemon_without_environment_ends_with_the_job(here: Here, tmp_path: Path, end: str):
    file = tmp_path / "pid"
    bystander = subprocess.Popen([sys.executable, "-c", SLEEP], env={}, start_new_session=True, stdout=subprocess.DEVNULL)
    ref = here.submit(DAEMON + ("" if end == "by itself" else SLEEP), nodes=1, grace=0.5, env={"PID_FILE": str(file)})
    here.until_says(ref, "forked")
    pid = int(file.read_text())
    if end == "stop":
        here.backend.stop(ref, timeout=PATIENCE)
    elif end == "killed supervisor":
        assert is_running(pid)
        os.kill(here.supervisor(ref), signal.SIGKILL)
    else:
        assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    here.until(lambda: not is_running(pid))
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_ended_orphans_do_not_stay_as_zombies(here: Here, tmp_path: Path):
    orphan = "import os, subprocess, sys\nif not os.fork():\n    subprocess.Popen(['true'])\n    os._exit(0)\nos.wait()\n"
    ref = here.submit(orphan + SLEEP)
    here.until_says(ref, "asleep")
    supervisor = here.supervisor(ref)

    def list_names() -> list[str]:
        states = [file.read_text().rpartition(")") for file in Path("/proc").glob("[0-9]*/stat") if file.exists()]
        return [name for name, _, rest in states if int(rest.split()[1]) == supervisor]

    here.until(lambda: len(list_names()) == 1)  # the agent


def test_an_agent_uses_its_grace_time(here: Here):
    ref = here.submit(SAVE + SLEEP)
    here.until_says(ref, "asleep")
    here.backend.stop(ref, timeout=PATIENCE)
    assert [line.split(" ", 1)[1] for line in here.archived_log(ref).splitlines()] == ["asleep", "saving", "saved"]
    snapshot = folder.read_snapshot(here.archived(ref))
    assert snapshot.job.phase is JobPhase.STOPPED
    assert (snapshot.pods[0].phase, snapshot.pods[0].exit_code) == (PodPhase.SUCCEEDED, 0)
    assert snapshot.spec is not None
    assert not (here.archived(ref) / folder.RUN).exists()


def test_an_agent_that_ignores_sigterm_is_killed_after_its_grace_time(here: Here):
    ref = here.submit(STUBBORN, grace=3)
    here.until_says(ref, "asleep")
    with pytest.raises(WaitTimeout, match="has not ended in time"):
        here.backend.stop(ref, timeout=0.2)
    assert here.alive(ref)
    here.backend.stop(ref, timeout=PATIENCE)
    (pod,) = folder.read_snapshot(here.archived(ref)).pods
    assert (pod.phase, pod.exit_code, pod.reason) == (PodPhase.FAILED, 137, "Stopped")
    assert not here.alive(ref)


def test_one_agent_that_fails_ends_the_others(here: Here):
    ref = here.submit(f"import os, sys\nif os.environ['HOSTNAME'] == 'job-worker-1': sys.exit(7)\n{SLEEP}", nodes=3)
    snapshot = here.end(ref)
    assert (snapshot.job.phase, snapshot.job.message) == (
        JobPhase.FAILED,
        "pod `job-worker-1` has failed with exit code 7",
    )
    assert [(pod.exit_code, pod.reason) for pod in snapshot.pods] == [(143, "Stopped"), (7, "Error"), (143, "Stopped")]
    assert "job-worker-1" in snapshot.pods[0].message


def test_child_processes_of_an_agent_end_with_it(here: Here):
    code = WITH_CHILD.removesuffix(SLEEP) + "print('done')"
    ref = here.submit(code)
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    assert not here.alive(ref)


def test_an_agent_that_cannot_be_started(here: Here, tmp_path: Path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    ref = here.submit(command=[str(script)])
    (pod,) = here.end(ref).pods
    assert (pod.phase, pod.exit_code, pod.reason) == (PodPhase.FAILED, 128, "StartError")
    assert str(script) in pod.message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho no interpreter here >&2\nexit 1\n", "no interpreter here"),
        ("#!/no/such/interpreter\n", "No such file"),
    ],
)
def test_a_supervisor_that_cannot_be_started(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
):
    broken = tmp_path / "python"
    broken.write_text(script)
    broken.chmod(0o700)
    plan = here.plan(SLEEP)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(BackendError, match=words):
        here.backend.submit(plan)
    assert here.backend.list(namespace=NAMESPACE) == []
    assert [entry.name for entry in (here.state / "local" / NAMESPACE).iterdir()] == []


def test_a_job_keeps_its_name_and_cannot_be_changed_in_place(here: Here):
    here.submit(SLEEP)
    with pytest.raises(AlreadyExists, match="kfjob stop job"):
        here.submit("pass")
    with pytest.raises(Refused, match="kfjob relaunch job --spec FILE"):
        here.backend.apply(here.plan("pass"))


@pytest.mark.parametrize("name", ["../default/job", "..", ".", "", "job/l1", ".run"])
def test_a_job_name_with_a_path_is_not_found(here: Here, name: str):
    here.end(here.submit("pass"))
    with pytest.raises(NotFound):
        here.backend.get(name, namespace=NAMESPACE)


def test_a_module_in_the_working_directory_does_not_confuse_the_supervisor(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "asyncio.py").write_text("raise SystemExit('the wrong asyncio')")
    monkeypatch.chdir(tmp_path)
    ref = here.submit(command=["/bin/pwd"])
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    assert here.texts(ref) == [str(tmp_path)]


def test_a_state_folder_that_cannot_be_used(here: Here, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="KFJOB_STATE"):
        LocalBackend(state=tmp_path / "file" / "state").submit(here.plan(SLEEP))


def test_folders_and_files_of_a_job_are_for_its_owner_alone(here: Here):
    before = os.umask(0)
    try:
        ref = here.submit("print('hello')")
        here.end(ref)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (here.state, *here.state.rglob("*"))}
    assert [str(path) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)] == []
    assert {"pytorch.log", "supervisor.log", "status.json", "spec.json", "supervisor.json"} <= {path.name for path in modes}
