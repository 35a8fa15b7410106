"""The trainer under torchrun, as users start it: two agents on loopback addresses, with signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from kfjob.local.machine import free_port
from kfjob.trainer.__main__ import main
from kfjob.trainspec.command_line import to_argv
from kfjob.trainspec.train_spec import TrainSpec

pytestmark = pytest.mark.local

PROGRESS = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d I \[train\.py:(\d+)\] "
    r"Batch (\d+) Loss: (\d+\.\d{5}), Speed: \d+\.\d\d samples/sec, lr: \d+\.\d{6}$",
    re.MULTILINE,
)
AGENT_LINE = re.compile(r"^[IEW]\d{4} ")


class Job:
    """Two agents with one process each, like two pods."""

    def __init__(self, spec, folder) -> None:
        port = free_port()
        rendezvous = [f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={uuid.uuid4()}", "--rdzv-backend=c10d"]
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *rendezvous]
        self.logs = [folder / f"{agent}.log" for agent in range(2)]
        self.agents = []
        for agent, log in enumerate(self.logs):
            environment = {"PET_LOCAL_ADDR": f"127.0.0.{agent + 2}", "GLOO_SOCKET_IFNAME": "lo", "LOGLEVEL": "INFO"}
            environment |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*command, "-m", "kfjob.trainer", *to_argv(TrainSpec(**spec))],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | environment,
                )
            self.agents.append(process)

    def wait_for(self, text, seconds=120):
        deadline = time.monotonic() + seconds
        while not any(text in log.read_text() for log in self.logs):
            assert time.monotonic() < deadline, self.tail()
            assert all(agent.poll() is None for agent in self.agents), self.tail()
            time.sleep(0.05)

    def tail(self):
        return "\n=====\n".join(log.read_text()[-5000:] for log in self.logs)

    def wait(self, seconds=120):
        return [agent.wait(seconds) for agent in self.agents]

    def trainer_lines(self, agent):
        """Return the lines of a log that the agent itself did not write."""
        return [line for line in self.logs[agent].read_text().splitlines() if not AGENT_LINE.match(line)]


@pytest.fixture
def job():
    jobs = []

    def start(spec, folder):
        folder.mkdir()
        jobs.append(Job(spec, folder))
        return jobs[-1]

    yield start
    for started in jobs:
        for agent in started.agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()


def test_two_agents_resume_and_end(job, workers, tiny, tmp_path):
    """The run goes on after its first step and takes 20 more. test_agents.py always stops such a run by a signal."""
    folder, step = tmp_path / "checkpoints", 1
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(folder), "checkpoint_every": 0, "log_every": 5}
    workers.run("run_training", {"spec": spec, "stop_after": 1}, world_size=2)
    (folder / "outcome.json").write_text("the outcome of an earlier run")
    second = job(spec | {"max_steps": step + 20, "eval_every": 10}, tmp_path / "second")
    assert second.wait() == [0, 0], second.tail()
    assert json.loads((folder / "outcome.json").read_text())["outcome"] == "finished"

    leader = next(agent for agent in range(2) if "group_rank=0" in second.logs[agent].read_text())
    lines = second.trainer_lines(leader)
    assert second.trainer_lines(1 - leader) == []
    assert all(
        re.match(
            r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d I \[(train|prepare|training_run|run|checkpoint_writer)\.py:\d+\] [A-Z][a-z]+ ",
            line,
        )
        for line in lines
    ), lines
    progress = PROGRESS.findall("\n".join(lines))
    multiples = [number for number in range(step + 1, step + 21) if number % 5 == 0 or number in (step + 1, step + 20)]
    assert [int(number) for _, number, _ in progress] == multiples
    assert "log.info(metrics.progress_line(" in source_line(int(progress[0][0]))
    assert any(line.endswith(f"] Resume step-{step:06d} {folder}/step-{step:06d}") for line in lines)
    assert any(f"] Evaluation step {step + 20} loss " in line for line in lines)
    last = re.fullmatch(r".* I \[run\.py:\d+\] Outcome finished step (\d+) loss (\d+\.\d{5}) checkpoint (.*)", lines[-1])
    assert last
    assert last.groups() == (str(step + 20), progress[-1][2], str(folder / f"step-{step + 20:06d}"))


@pytest.mark.long
def test_signal_in_a_long_step_stops_before_it(job, tiny, tmp_path):
    """The step takes more than 40 s, and torchrun kills its workers 30 s after a signal. The second step is dropped."""
    folder = tmp_path / "checkpoints"
    spec = tiny | {"strategy": "fsdp", "micro_batch_size": 1, "gradient_accumulation_steps": 2500, "max_steps": 9}
    run = job(spec | {"checkpoint_dir": str(folder)}, tmp_path / "logs")
    run.wait_for("] Batch 1 Loss", seconds=300)
    began = cpu_seconds(run.agents[0].pid)
    deadline = time.monotonic() + 60
    while cpu_seconds(run.agents[0].pid) < began + 0.5:
        assert time.monotonic() < deadline, run.tail()
        time.sleep(0.02)
    run.agents[0].send_signal(signal.SIGTERM)  # one pod is evicted; the other must not count as completed
    assert all(run.wait()), run.tail()
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["reason"], outcome["step"]) == ("stopped", "signal", 1), run.tail()
    assert outcome["checkpoint"] == str(folder / "step-000001")
    manifest = json.loads((folder / "step-000001" / "manifest.json").read_text())
    assert manifest["data_position"]["next"] == 2 * 2500


def test_id_and_agent_are_the_same_for_each_restart_of_a_launch(tmp_path):
    """torchrun's id is `none` without `--rdzv-id`. A shell may be between the agent and a rank."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "from kfjob.trainer.distributed import Ranks\n"
        "ranks = Ranks.join()\n"
        "(agent,) = ranks.agents\n"
        "print(os.environ['TORCHELASTIC_RUN_ID'], ranks.run_id, agent.pid, flush=True)\n"
        "ranks.leave()\n"
        "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n"
    )
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "torch.distributed.run", "--max-restarts=1", "--no-python"]
    shell = ["sh", "-c", f"{sys.executable} {program}; exit $?"]
    with subprocess.Popen(
        [*command, "--master-port=29611", *shell], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as launch:
        output, errors = launch.communicate(timeout=240)
    assert launch.returncode == 0, errors
    (first, second) = [line for line in output.splitlines() if line.startswith("none ")]
    assert first == second
    run_ids, _, agent = first.rpartition(" ")
    assert int(agent) == launch.pid
    assert re.fullmatch(r"none none-[0-9a-f]{16}", run_ids)


def cpu_seconds(agent):
    """Return the CPU time of an agent's worker."""
    (worker,) = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def source_line(number):
    import inspect

    from kfjob.trainer import train

    return inspect.getsource(train).splitlines()[number - 1]


def test_user_error_is_one_message(job, tiny, tmp_path):
    job_run = job(tiny | {"data": "/nowhere/text", "checkpoint_dir": str(tmp_path / "c")}, tmp_path / "logs")
    assert job_run.wait() == [1, 1]
    output = job_run.tail()
    assert output.count("error: no data at `/nowhere/text`\n  --> data\nhint: ") == 1
    assert output.count("  traceback : error: no data at `/nowhere/text`\n    --> data\n  hint: ") == 1  # torchrun's root cause
    assert "kfjob/trainer/run.py" not in output
    assert "SIGABRT" not in output
    assert output.count("Outcome failed") == 1
    assert json.loads((tmp_path / "c" / "outcome.json").read_text()) == {
        "outcome": "failed",
        "step": None,
        "loss": None,
        "checkpoint": None,
        "reason": "no data at `/nowhere/text`",
        "permanent": True,
    }


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("debug", [False, True])
def test_traceback_only_with_debug(tiny, tmp_path, capsys, debug):
    assert main(to_argv(TrainSpec(**tiny | {"data": str(tmp_path / "no"), "debug": debug}))) == 1
    output = capsys.readouterr()
    hint = f"`{tmp_path}` has no `no`; a job reads the path in the container that trains"
    assert output.err.endswith(f"error: no data at `{tmp_path}/no`\n  --> data\nhint: {hint}\n")
    assert ("Traceback" in output.err) is debug
    assert re.search(r"E \[run\.py:\d+\] Outcome failed step none loss none checkpoint none permanent reason ", output.out)


@pytest.mark.usefixtures("in_process")
def test_max_minutes_stops_the_run(tiny, tmp_path, capsys):
    spec = tiny | {
        "strategy": "none",
        "checkpoint_dir": str(tmp_path),
        "max_steps": 10**7,
        "max_minutes": 0.02,
        "log_every": 10**6,
    }
    assert main(to_argv(TrainSpec(**spec))) == 0
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert outcome["outcome"] == "stopped"
    assert outcome["reason"] == "max_minutes 0.02"
    assert outcome["checkpoint"] == str(tmp_path / f"step-{outcome['step']:06d}")
    output = capsys.readouterr()
    assert "] Resume none\n" in output.out
    assert "Outcome stopped step" in output.out
    assert output.err == ""


@pytest.mark.usefixtures("in_process")
def test_outcome_of_a_failed_run_names_its_last_step_and_checkpoint(tiny, tmp_path, capsys):
    """The first update after the resume overflows, so the loss of the next step is NaN."""
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path), "warmup_steps": 0}
    assert main(to_argv(TrainSpec(**spec | {"max_steps": 2}))) == 0
    assert main(to_argv(TrainSpec(**spec | {"lr": 1e30}))) == 1
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["step"], outcome["checkpoint"]) == ("failed", 3, str(tmp_path / "step-000002"))
    assert outcome["reason"].endswith("is nan at step 4")
    output = capsys.readouterr().out
    assert f"Outcome failed step 3 loss {outcome['loss']:.5f} checkpoint {tmp_path}/step-000002 reason " in output


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_with_a_checkpoint(tiny, tmp_path, capsys, number):
    metrics_file, finished = tmp_path / "metrics", threading.Event()
    spec = tiny | {
        "strategy": "none",
        "checkpoint_dir": str(tmp_path / "c"),
        "max_steps": 10**7,
        "metrics_file": str(metrics_file),
    }

    def send_signal():
        while not finished.wait(0.01):
            if metrics_file.exists() and metrics_file.read_text().count("\n") >= 3:
                os.kill(os.getpid(), number)
                return

    sender = threading.Thread(target=send_signal)
    sender.start()
    try:
        assert main(to_argv(TrainSpec(**spec))) == 128 + number
    finally:
        finished.set()
        sender.join()
    outcome = json.loads((tmp_path / "c" / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["reason"]) == ("stopped", "signal")
    assert outcome["step"] >= 3
    assert (tmp_path / "c" / f"step-{outcome['step']:06d}" / "manifest.json").exists()
    assert "Outcome stopped step" in capsys.readouterr().out


def test_argument_error_is_printed_by_rank_zero_only(capsys, monkeypatch):
    torchrun = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for rank, expected in (("0", 1), ("1", 0)):
        for name, value in (torchrun | {"RANK": rank, "LOCAL_RANK": rank}).items():
            monkeypatch.setenv(name, value)
        assert main(["--modl=x"]) == 2
        output = capsys.readouterr()
        assert output.err.count("did you mean `--model`?") == expected
        assert output.out.count("Outcome failed") == expected
