"""Failures that a machine without GPUs can have, provoked for real: each is named, at the place where it was printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kfjob.api import expectations
from kfjob.api.config import Settings
from kfjob.api.diagnose import Examined, examine
from kfjob.api.place import Place
from kfjob.api.run import Run
from kfjob.backends.base import JobRef
from kfjob.events import JobPhase
from kfjob.observe.diagnose.rule import NOT_SAID, Role
from tests.local.conftest import NAMESPACE, PATIENCE, Here

PROGRAMS = {
    "module-not-found": "import flash_attn",
    "import-error": "from json import nothing",
    "python-syntax": "def f(:",
    "argument-error": "import argparse\nargparse.ArgumentParser(prog='train.py').parse_args(['--lrr', '1'])",
    "host-memory": "bytearray(1 << 62)",
    "disk-full": "with open('/dev/full', 'w') as full:\n    full.write('x' * 100000)\n    full.flush()",
    "file-not-found": "open('/data/train.bin')",
    "permission-denied": "open('/sys/kernel/kfjob-test', 'w')",
    "exception": "def main():\n    raise RuntimeError('boom')\nmain()",
    "pod-killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "pod-crashed": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "forward-order": "import warnings\nwarnings.warn('Forward order differs from that of the first iteration on rank 1.')",
}
COMMANDS = {
    "module-not-found": [sys.executable, "-m", "kfjob_has_no_such_module"],
    "script-not-found": [sys.executable, "/nowhere/train.py"],
    "command-not-found": ["sh", "-c", "torchrnu train.py"],
}
TORCH = {
    "no-gpu": "torch.zeros(1).cuda()",
    "tokenizer-mismatch": "torch.nn.Embedding(4, 2)(torch.tensor([9]))",
    "checkpoint-shape": "torch.nn.Linear(4, 2).load_state_dict(torch.nn.Linear(5, 2).state_dict())",
    "checkpoint-damaged": (
        "torch.save(torch.ones(1000), 'c.pt'); half = open('c.pt', 'rb').read()[:2000]; open('c.pt', 'wb').write(half); "
        "torch.load('c.pt')"
    ),
    "launcher-environment": "torch.distributed.init_process_group('gloo')",
    "address-in-use": (
        "import socket; taken = socket.socket(); taken.bind(('', 0)); taken.listen(); port = taken.getsockname()[1]; "
        "torch.distributed.TCPStore('127.0.0.1', port, 1, True)"
    ),
}
TORCHRUN: dict[str, tuple[list[str], dict[str, str], str]] = {  # options, environment, the program
    "wrong-nproc": (["--nproc-per-node=gpus"], {}, ""),
    "loglevel-lower-case": ([], {"LOGLEVEL": "info"}, ""),
    "standalone-empty": ([], {"PET_STANDALONE": ""}, ""),
    "worker-killed": ([], {}, "import os; os.kill(os.getpid(), 9)"),
    "worker-crashed": ([], {}, "import os; os.kill(os.getpid(), 11)"),
    "bus-error": ([], {}, "import os; os.kill(os.getpid(), 7)"),
}
MISMATCH = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total) if dist.get_rank() == 0 else dist.broadcast(total, 0)
"""


def look_at(here: Here, ref: JobRef) -> Examined:
    at = Place(Settings(state=here.state, backend="local"), "local", NAMESPACE)
    return examine(Run(at, ref, expectations.of_snapshot(here.get(ref))))


def ended(here: Here, code: str | None = None, **spec: Any) -> Examined:
    ref = here.submit(code, **spec)
    here.end(ref)
    return look_at(here, ref)


def in_crash_loop(here: Here, ref: JobRef) -> bool:
    pod = here.get(ref).pods[0]
    return pod.restarts >= 1 and pod.reason == "CrashLoopBackOff"


@pytest.mark.local
@pytest.mark.parametrize("rule", sorted(PROGRAMS))
def test_a_program_that_fails(here: Here, rule: str):
    examined = ended(here, PROGRAMS[rule])
    first = examined.diagnosis.first
    assert first
    assert (first.rule, first.pod) == (rule, "job-worker-0")
    assert first.evidence[0]
    assert NOT_SAID not in first.title


@pytest.mark.local
@pytest.mark.parametrize("rule", sorted(COMMANDS))
def test_a_command_that_cannot_run(here: Here, rule: str):
    first = ended(here, command=COMMANDS[rule]).diagnosis.first
    assert first
    assert first.rule == rule
    assert NOT_SAID not in first.title + first.cause


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize("rule", sorted(TORCH))
def test_a_program_that_fails_in_torch(here: Here, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    first = ended(here, f"import os, torch, torch.distributed; os.chdir({str(tmp_path)!r})\n{TORCH[rule]}").diagnosis.first
    assert first
    assert first.rule == rule


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize("rule", sorted(TORCHRUN))
def test_an_agent_whose_settings_or_workers_are_at_fault(here: Here, tmp_path: Path, rule: str):
    options, env, code = TORCHRUN[rule]
    program = tmp_path / "program.py"
    program.write_text(code)
    examined = ended(here, command=["torchrun", *options, str(program)], env=env, restarts={"max": 0})
    first = examined.diagnosis.first
    assert first
    assert first.rule == rule
    assert all(finding.role in {Role.CONSEQUENCE, Role.SYMPTOM} for finding in examined.diagnosis.followed)


@pytest.mark.local
@pytest.mark.trainer
def test_ranks_that_call_different_collectives(here: Here, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(MISMATCH)
    command = ["torchrun", str(program)]
    examined = ended(here, command=command, nodes=2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, restarts={"max": 0})
    first = examined.diagnosis.first
    assert first
    assert first.rule == "collectives-differ"
    assert first.line
    assert first.rank in {0, 1}


@pytest.mark.local
def test_a_pod_that_was_killed_is_named_and_not_the_one_that_lost_it(here: Here, tmp_path: Path):
    """No torch: what gloo prints when its peer is gone."""
    code = f"""
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the job has failed when the other is dead, and this one still has to say so
met = pathlib.Path({str(tmp_path)!r}, "pid")
if os.environ["HOSTNAME"].endswith("1"):
    met.with_suffix(".new").write_text(str(os.getpid()))
    met.with_suffix(".new").rename(met)
    os.kill(os.getpid(), signal.SIGKILL)
while not met.exists() or pathlib.Path("/proc", met.read_text()).exists():
    time.sleep(0.01)
print("RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.2]:5", flush=True)
raise SystemExit(1)
"""
    diagnosis = ended(here, code, nodes=2).diagnosis
    assert diagnosis.first
    assert (diagnosis.first.rule, diagnosis.first.pod) == ("pod-killed", "job-worker-1")


@pytest.mark.local
def test_a_crash_loop_is_told_by_what_the_container_before_has_printed(here: Here):
    ref = here.submit("import flash_attn", restarts={"policy": "OnFailure"})
    here.until(lambda: in_crash_loop(here, ref))
    examined = look_at(here, ref)
    assert examined.view.phase is not JobPhase.FAILED
    assert examined.diagnosis.first
    assert examined.diagnosis.first.title == "module `flash_attn` is not in the image"
    assert [finding.rule for finding in examined.diagnosis.followed if finding.rule == "crash-loop"]
    here.backend.stop(ref, timeout=PATIENCE)


@pytest.mark.local
def test_a_healthy_job_has_nothing(here: Here):
    diagnosis = ended(here, "print('done')", nodes=2).diagnosis
    assert diagnosis.healthy
    assert diagnosis.warnings == diagnosis.recovered == diagnosis.harmless == ()
