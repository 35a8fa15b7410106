"""Failures that a machine without GPUs can have, provoked for real: each is named, at the place where it was printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.diagnose import Examination, examine
from kfjob.api.reader import open_snapshot
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE, Role
from kfjob.joblog.events import JobPhase
from kfjob.local.machine import free_port
from tests.hostile_server import Answer, serve
from tests.local import conftest
from tests.local.conftest import NAMESPACE, PATIENCE, Here
from tests.trainer import forked

PROGRAMS = {  # what `python -c` runs, or a whole command, by the rule
    "module-not-found": [sys.executable, "-m", "kfjob_has_no_such_module"],
    "name-missing": "from json import nothing",
    "python-syntax": "def f(:",
    "argument-error": "import argparse\nargparse.ArgumentParser(prog='train.py').parse_args(['--lrr', '1'])",
    "host-memory": "bytearray(1 << 62)",
    "disk-full": "with open('/dev/full', 'w') as full:\n    full.write('x' * 100000)\n    full.flush()",
    "file-not-found": "open('/data/train.bin')",
    "permission-denied": "open('/sys/kernel/kfjob-test', 'w')",
    "exception": "def main():\n    raise RuntimeError('boom')\nmain()",
    "pod-killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "pod-crashed": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    # a script that no program before it could have written is checked at submit
    "script-not-found": ["bash", "-c", f"mkdir -p out; {sys.executable} /nowhere/train.py"],
    "command-not-found": ["sh", "-c", "torchrnu train.py"],
}
LOADER = """
import os, torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        os.kill(os.getpid(), 9)
list(torch.utils.data.DataLoader(Data(), num_workers=1))
"""
TORCH = {
    "no-gpu": "torch.zeros(1).cuda()",
    "tokenizer-mismatch": "torch.nn.Embedding(4, 2)(torch.tensor([9]))",
    "checkpoint-shape": "torch.nn.Linear(4, 2).load_state_dict(torch.nn.Linear(5, 2).state_dict())",
    "checkpoint-damaged": (
        "torch.save(torch.ones(1000), 'c.pt'); half = open('c.pt', 'rb').read()[:2000]; open('c.pt', 'wb').write(half); "
        "torch.load('c.pt')"
    ),
    "loader-worker-killed": LOADER,
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
LONG_TORCHRUN = {"standalone-empty", "worker-crashed", "bus-error"}
"""Cases whose code path another case has: a setting of the agent, and a signal that ends a worker."""
WITHOUT_PAUSES = "import time\ntime.sleep = lambda seconds: None\n"
"""The hub's client tries again and again, for 23 s."""
MODEL = "import transformers\ntransformers.AutoConfig.from_pretrained('nobody/gpt')"
DATA_SET = "import datasets\ndatasets.load_dataset('nobody/text')"
HUB = {  # what the hub answers, the program, the rule, its title
    "gated model": ((403, "GatedRepo"), MODEL, "hub-gated", "the account of the hub's token has no access"),
    "gated data set": ((401, "GatedRepo"), DATA_SET, "hub-auth", "the hub refuses access"),
    "no such model": ((401, "RepoNotFound"), MODEL, "model-not-found", "`nobody/gpt` is neither"),
    "no such data set": ((404, "RepoNotFound"), DATA_SET, "dataset-not-found", "data set `nobody/text`"),
    "no way to it": (None, WITHOUT_PAUSES + MODEL, "hub-unreachable", "the hub cannot be reached"),
}
FULL = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.ones(1 << 22)
list(torch.utils.data.DataLoader(Data(), num_workers=1))
"""
EARLY = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
process = torch.tensor([os.getpid()])
dist.broadcast(process, LEAVES)
for step in range(1, 2 if dist.get_rank() == LEAVES else 3):
    while step == 2 and os.path.exists(f"/proc/{process.item()}"):  # until the agent of the other has seen its end
        time.sleep(0.05)
    dist.all_reduce(total)
    print(f"Batch {step} Loss: {3 - step}.0, Speed: 1.00 samples/sec, lr: 0.000100", flush=True)
os._exit(0)  # gloo's threads can abort a process that ends in the usual way
"""
TURNED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("gloo")
here = torch.device("cpu")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(FSDP(torch.nn.Linear(8, 8), device_id=here) for _ in range(2))
    def forward(self, x, turned):
        first, second = reversed(self.parts) if turned else self.parts
        return second(first(x))
model = FSDP(Model(), device_id=here)
for turned in (False, True, True):
    model(torch.ones(2, 8), turned).sum().backward()
"""
MISMATCH = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total) if dist.get_rank() == 0 else dist.broadcast(total, 0)
"""


def look_at(here: Here, ref: JobRef) -> Examination:
    target = Target(Settings(state=here.state, backend="local"), "local", NAMESPACE)
    return examine(open_snapshot(target, here.get(ref)))


def ended(here: Here, code: str | None = None, **spec: Any) -> Examination:
    ref = here.submit(code, **spec)
    here.end(ref)
    return look_at(here, ref)


def in_crash_loop(here: Here, ref: JobRef) -> bool:
    pod = here.get(ref).pods[0]
    return pod.restarts >= 1 and pod.reason == "CrashLoopBackOff"


@pytest.mark.local
@pytest.mark.parametrize("rule", sorted(PROGRAMS))
def test_a_program_that_fails(here: Here, rule: str):
    program = PROGRAMS[rule]
    first = ended(here, command=program if isinstance(program, list) else [sys.executable, "-c", program]).diagnosis.first_cause
    assert first
    assert (first.rule, first.pod) == (rule, "job-worker-0")
    assert first.evidence[0]
    assert UNKNOWN_VALUE not in first.title + first.cause


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize("rule", sorted(TORCH))
def test_a_program_that_fails_in_torch(here: Here, rule: str, tmp_path: Path):
    """The job prints what the program has printed in a forked process, which need not import torch."""
    code = f"import os, torch, torch.distributed; os.chdir({str(tmp_path)!r})\n{TORCH[rule]}"
    if rule not in {"no-gpu", "loader-worker-killed"}:  # CUDA refuses a fork, and a forked loader prints more
        program = forked.Program(code)
        output = program.communicate(PATIENCE)
        assert program.returncode == 1, output
        code = f"print({output!r}); raise SystemExit(1)"
    first = ended(here, code).diagnosis.first_cause
    assert first
    assert first.rule == rule


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.long] if rule in LONG_TORCHRUN else []) for rule in sorted(TORCHRUN)]
)
def test_an_agent_whose_settings_or_workers_are_at_fault(here: Here, tmp_path: Path, rule: str):
    options, env, code = TORCHRUN[rule]
    program = tmp_path / "program.py"
    program.write_text(code)
    examined = ended(here, command=["torchrun", *options, str(program)], env=env, restarts={"max": 0})
    first = examined.diagnosis.first_cause
    assert first
    assert first.rule == rule
    assert all(finding.role in {Role.CONSEQUENCE, Role.SYMPTOM} for finding in examined.diagnosis.consequences)


@pytest.mark.local
@pytest.mark.trainer
def test_ranks_that_call_different_collectives(here: Here, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(MISMATCH)
    command = [*conftest.TORCHRUN, str(program)]
    examined = ended(here, command=command, nodes=2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, restarts={"max": 0})
    first = examined.diagnosis.first_cause
    assert first
    assert first.rule == "collectives-differ"
    assert first.line
    assert first.rank in {0, 1}


@contextmanager
def hub(answer: tuple[int, str] | None) -> Iterator[str]:
    """The address of a stand-in for the hub that answers everything with this; of nobody where there is no answer."""
    if answer is None:
        yield f"http://127.0.0.1:{free_port()}"
        return
    status, code = answer
    with serve(lambda *_: Answer(status=status, headers=(("X-Error-Code", code), ("Content-Length", "0")))) as server:
        yield server.url


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize(
    "case",
    # tests/data/failure_lines.tsv has the texts of the other cases
    [name if name in ("gated model", "no such data set") else pytest.param(name, marks=pytest.mark.long) for name in HUB],
)
def test_what_the_hub_says(here: Here, tmp_path: Path, case: str):
    answer, code, rule, title = HUB[case]
    with hub(answer) as address:
        diagnosis = ended(here, code, env={"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub")}).diagnosis
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, [one.rule for one in diagnosis.other_causes]) == (rule, [])
    assert diagnosis.first_cause.title.startswith(title)


@pytest.mark.local
@pytest.mark.trainer
def test_shared_memory_that_is_too_small(here: Here):
    small = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", small, sys.executable, FULL]
    first = ended(here, command=command).diagnosis.first_cause
    assert first
    assert first.rule == "shm-too-small"


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.long), 1])  # tests/unit/diagnose has both rules
def test_rank_that_leaves_early(here: Here, tmp_path: Path, rank: int):
    program = tmp_path / "program.py"
    program.write_text(EARLY.replace("LEAVES", f"{rank}"))
    diagnosis = ended(here, command=["torchrun", str(program)], nodes=2, restarts={"max": 0}, grace=5).diagnosis
    assert diagnosis.first_cause
    rule = "rank-left-early" if rank else "rank0-left-early"
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.pod) == (rule, f"job-worker-{rank}")
    assert "peer-closed" in {one.rule for one in diagnosis.consequences}


@pytest.mark.local
@pytest.mark.trainer
def test_layers_that_are_called_in_another_order(here: Here, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(TURNED)
    checks = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    examined = ended(here, command=[*conftest.TORCHRUN, str(program)], processes_per_node=2, env=checks)
    first = examined.diagnosis.first_cause
    assert examined.view.phase is JobPhase.SUCCEEDED
    assert first
    assert first.rule == "forward-order"
    assert "on rank" in first.title


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
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.pod) == ("pod-killed", "job-worker-1")


@pytest.mark.local
def test_a_crash_loop_is_told_by_what_the_container_before_has_printed(here: Here):
    ref = here.submit("import flash_attn", restarts={"policy": "OnFailure"})
    here.until(lambda: in_crash_loop(here, ref))
    examined = look_at(here, ref)
    assert examined.view.phase is not JobPhase.FAILED
    assert examined.diagnosis.first_cause
    assert examined.diagnosis.first_cause.title == "module `flash_attn` is not installed"
    assert [finding.rule for finding in examined.diagnosis.consequences if finding.rule == "crash-loop"]
    here.backend.stop(ref, timeout=PATIENCE)


@pytest.mark.local
def test_a_healthy_job_has_nothing(here: Here):
    diagnosis = ended(here, "print('done')", nodes=2).diagnosis
    assert diagnosis.healthy
    assert diagnosis.warnings == diagnosis.recovered == diagnosis.harmless == ()
