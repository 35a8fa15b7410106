"""The examples of the published systems on this machine: every line of their READMEs, as a user types it.

tests/cluster/test_llama2_eks.py runs the one about Kubernetes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kfjob.trainspec.model_shapes import PRESETS, count_parameters
from tests.readme_lines import ROOT, read_lines
from tests.trainer.forked import Program

pytestmark = [pytest.mark.local, pytest.mark.trainer]
FAILED_JOB = 100
"""Exit code of a command whose job has failed."""
FORK = "--set env.PET_START_METHOD=fork --set env.PET_RUN_PATH=1"
"""Options with which the agent of a script forks its ranks, so that torch is imported once."""
FORKED = """
import os, runpy, sys
from importlib.metadata import entry_points
os.chdir(sys.argv[1])
sys.argv[:2] = []
if sys.argv[:2] == ["python", "-m"]:
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    (program,) = entry_points(group="console_scripts", name=sys.argv[0])
    sys.exit(program.load()())
"""
"""`python -m MODULE …`, or an installed program, in a forked process, which need not import torch and transformers."""


@dataclass(frozen=True)
class Reader:
    """A reader of an example's README, in a copy of its folder."""

    folder: Path
    env: dict[str, str]

    def __call__(self, line: str, *, code: int = 0) -> str:
        """Run a line as a shell does, and return what it prints; with a job that fails, its exit code is another."""
        line = line.replace("/tmp/fabric-llama", str(self.folder / "files"))
        shell = ["bash", "-ec", line]
        done = subprocess.run(shell, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, f"{line} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def fork(self, line: str) -> str:
        """Run a line without a shell, and return what its program of the trainer prints."""
        words = shlex.split(line.replace("/tmp/fabric-llama", str(self.folder / "files")))
        program = Program(FORKED, str(self.folder), *words, env=self.env)
        output = program.communicate(timeout=300)
        assert program.returncode == 0, f"{line} -> {program.returncode}\n{output}"
        return output


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    """Return a reader of the example that the test names."""
    folder = tmp_path / "example"
    shutil.copytree(ROOT / "examples" / request.param, folder)
    for file in folder.glob("*.env"):
        file.write_text(file.read_text().replace("/tmp/fabric-llama", str(folder / "files")))
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
    env |= {"KFJOB_BACKEND": "local", "KFJOB_STATE": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path)}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "HF_HUB_OFFLINE": "1"}
    return Reader(folder, env)


def for_example(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("reader", [name], indirect=True, ids=[name])


@for_example("llama-recipes")
def test_llama_recipes(reader: Reader):
    copy, render, render_etcd, dry_run, preflight, submit, logs, diagnose, *notes = read_lines("llama-recipes")
    reader(copy)
    manifest = yaml.safe_load(reader(render).partition("note:")[0].partition("warning:")[0])
    assert manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert "rdzvBackend: etcd" in reader(render_etcd)
    assert "LlamaDecoderLayer" in reader.fork(dry_run)
    assert preflight == "kfjob preflight job.yaml --env-file .env --run"  # tests/local/test_preflight.py runs such a check
    reader(submit)
    assert "] Batch 10 Loss: " in reader(logs)
    reader(diagnose)
    assert [line.split()[-1] for line in notes[::2]] == list(RULES)
    check_note(reader, *notes[:2])


RULES = {
    "rendezvous": ("rendezvous-unresolvable", FAILED_JOB),
    "libcuda": ("libcuda-missing", FAILED_JOB),
    "old-import": ("shard-checkpoint-import", 0),
    "forward-order": ("forward-order", 0),
}
"""The rule that names each note of the guide, and the exit code of its job."""


def check_note(reader: Reader, provoke: str, named: str) -> None:
    rule, code = RULES[provoke.rsplit(maxsplit=1)[-1]]
    reader(provoke, code=code)
    assert f"[{rule}]" in reader(named)


@for_example("llama-recipes")
@pytest.mark.long  # test_preflight.py runs the check, test_diagnose.py other layers; failure_lines.tsv has the other notes
def test_preflight_and_other_notes_of_llama_recipes(reader: Reader):
    copy, _, _, _, preflight, _, _, _, *notes = read_lines("llama-recipes")
    reader(copy)
    reader(preflight)
    for provoke, named in zip(notes[2::2], notes[3::2], strict=True):
        check_note(reader, provoke, named)


def read_ddp(log: str) -> list[tuple[int, ...]]:
    lines = re.findall(r"GPU:(\d+) \| Epoch: (\d+) \| Batchsize: (\d+) \| Steps: (\d+)", log)
    return sorted(tuple(map(int, line)) for line in lines)


def check_ddp(reader: Reader, line: str, options: str = "") -> None:
    """Check that the job of a line prints the lines of four ranks, whose samples are all samples."""
    reader(f"{line} {options}")
    log = reader("kfjob logs ddp")
    assert log.count("GPU_Count: 4") == 1
    assert read_ddp(log) == sorted((rank, epoch, 32, 32) for rank in range(4) for epoch in range(2))
    assert "Samples: 4096 | Loss:" in log


def check_zero(reader: Reader, line: str) -> None:
    """Check the line of each rank, and that the communication is printed once."""
    stage = int(line.partition("zero_stage=")[2][0])
    reader(line)
    log = reader("kfjob logs zero")
    elements = count_parameters(PRESETS["tiny-llama"]) // (2 if stage else 1)
    description = f"ZeRO Stage: {stage} | Optimizer: lr=5e-05 | betas=(0.9, 0.999) | eps=1e-08 | parameter count={elements}"
    assert re.findall(r"Device \d \| .*", log) == [f"Device {rank} | {description}" for rank in range(2)]
    assert log.count("Comm. Op") == 1


@for_example("data-parallel")
def test_data_parallel(reader: Reader):
    lines = read_lines("data-parallel")
    assert "all nine collectives are correct, on 2 ranks with gloo" in reader(lines[0].replace(" -- ", f" {FORK} -- "))
    check_ddp(reader, lines[1], FORK)
    check_zero(reader, lines[5])
    assert "Qwen2ForCausalLM with 1543714304 parameters" in reader.fork(lines[9])


@for_example("data-parallel")
@pytest.mark.long  # the test above runs one launcher and one stage
def test_other_launchers_and_stages(reader: Reader):
    lines = read_lines("data-parallel")
    for line in lines[2:4]:
        check_ddp(reader, line)
    for line in (lines[4], *lines[6:9]):
        check_zero(reader, line)


@for_example("fabric-llama")
def test_fabric_llama(reader: Reader):
    text, tokenise, explain, submit, resume, export = read_lines("fabric-llama")
    files = reader.folder / "files"
    reader.fork(text)
    assert "tokens of" in reader(tokenise)
    assert "train.wrap" in reader(explain)
    reader(submit)
    log = reader("kfjob logs fabric-llama")
    assert [int(step) for step in re.findall(r"\] Batch (\d+) Loss", log)] == list(range(1, 9))
    rates = [float(rate) for rate in re.findall(r"lr: ([\d.e-]+)", log)]
    assert rates[0] == pytest.approx(2e-5)
    assert 2e-6 <= rates[-1] < 1e-5  # it decays
    assert {int(step) for step in re.findall(r"Evaluation step (\d+)", log)} >= {4, 8}
    assert (files / "checkpoints" / "step-000008" / "model.pt").is_file()  # the full state dict
    assert list((files / "wandb").glob("offline-run-*/*.wandb"))
    reader(resume)
    assert "] Resume step-000008" in reader("kfjob logs fabric-llama")
    reader.fork(export)
    config = json.loads((files / "model" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert list((files / "model").glob("*.safetensors"))


@for_example("accelerate-fsdp")
@pytest.mark.long  # CI measures each strategy in tests/trainer/test_memory.py and test_zero.py, without the README's table
def test_memory_of_the_strategies(reader: Reader):
    reader(f"{read_lines('accelerate-fsdp')[0]} {FORK}")
    rows = dict(re.findall(r"^(\S+) +([\d. ]+)$", reader("kfjob logs memory"), re.MULTILINE))
    measured = {name: " | ".join(values.split()) for name, values in rows.items()}
    readme = (ROOT / "examples" / "accelerate-fsdp" / "README.md").read_text(encoding="utf-8")
    assert list(measured) == ["DP", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP"]
    assert [name for name, values in measured.items() if f" {values} |" not in readme] == []


@for_example("accelerate-fsdp")
def test_accelerate_fsdp(reader: Reader):
    _, imported, launch, exported, ordinal = read_lines("accelerate-fsdp")
    reader(imported)
    assert "step 20/20 | loss" in reader(f"{launch} {FORK}")
    assert len(LAST_STEP.findall(reader("kfjob logs bert"))) == 1
    reader(exported)
    configs = [yaml.safe_load((reader.folder / name).read_text()) for name in ("accelerate.yaml", "again.yaml")]
    assert configs[0] == configs[1]
    assert "[invalid-device-ordinal]" in reader(ordinal)


LAST_STEP = re.compile(r"step 20/20 \| loss [\d.]+ \| DistributedDataParallel$", re.MULTILINE)


@for_example("accelerate-fsdp")
@pytest.mark.long  # the test above compares the two files
def test_exported_file_starts_two_ranks_without_kfjob(reader: Reader):
    _, imported, _, exported, _ = read_lines("accelerate-fsdp")
    reader(imported)
    reader(exported)
    own = "sed -i '/^use_cpu:/d' again.yaml; ACCELERATE_USE_CPU=true accelerate launch --config_file again.yaml train.py"
    assert len(LAST_STEP.findall(reader(own))) == 1  # with `use_cpu` its launcher starts one rank
