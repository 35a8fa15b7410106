"""Conversion of any command line to a spec."""

from __future__ import annotations

from functools import partial

import pytest

from kfjob.base.errors import SpecError
from kfjob.convert.command_line import from_command
from tests.unit.convert import test_torchrun

convert = partial(test_torchrun.convert, read=from_command)


def test_torchrun_is_converted_without_a_guess_about_gpus():
    spec, notes = convert("A=1 torchrun --nnodes=2 --nproc-per-node=4 --max-restarts=3 fit.py --epochs 3")
    assert spec == {
        "name": "fit",
        "nodes": 2,
        "processes_per_node": 4,
        "restarts": {"max": 3},
        "env": {"A": "1"},
        "command": ["torchrun", "fit.py", "--epochs", "3"],
    }
    assert notes == []


def test_numbers_of_accelerate_become_fields():
    line = (
        "accelerate launch --num_machines 2 --num-processes=4 --machine_rank 0 --main_process_port 1234 --mixed_precision bf16"
    )
    spec, notes = convert(f"{line} --multi_gpu fit.py --lr 1")
    assert spec == {
        "name": "fit",
        "launcher": "accelerate",
        "nodes": 2,
        "processes_per_node": 2,
        "rendezvous": {"port": 1234},
        "command": ["accelerate", "launch", "--mixed_precision", "bf16", "--multi_gpu", "fit.py", "--lr", "1"],
    }
    assert notes == ["--machine_rank=0"]


def test_launcher_module_does_not_name_the_job():
    spec, _ = convert("python -m accelerate.commands.launch --num_processes=2 -m pkg.fit")
    assert (spec["name"], spec["command"]) == ("pkg-fit", ["accelerate", "launch", "-m", "pkg.fit"])


def test_numbers_of_deepspeed_become_fields():
    spec, _ = convert("deepspeed --num_nodes=2 --num_gpus 8 train.py --deepspeed_config ds.json")
    assert (spec["nodes"], spec["processes_per_node"], spec["resources"]) == (2, 8, {"gpus": 8})
    assert spec["command"] == ["deepspeed", "train.py", "--deepspeed_config", "ds.json"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python -u src/My_Train.v2.py", "my-train-v2"),
        ("python -m pkg.train --x", "pkg-train"),
        ("uv run fit.py", "fit"),
        ("bash jobs/start.sh", "start"),
        ("bash -c 'cd x && torchrun fit.py'", "fit"),
        ("./program --x", "program"),
        ("/opt/bin/3d --x", "d"),
    ],
)
def test_other_commands_stay_as_they_are_and_name_the_job(line, name):
    spec, _ = convert(line)
    assert spec["name"] == name
    assert set(spec) == {"name", "command"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "there is no command to run"),
        ("A=1", "there is no command to run"),
        ("cd x && A=b torchrun fit.py", "needs a shell for `cd` and `&&`"),
        ("torchrun fit.py 'x", "cannot split"),
        ("torchrun", "has no program"),
        ("accelerate launch --num_machines 2 --num_processes 3 fit.py", "`--num_processes 3` is not a multiple"),
    ],
)
def test_command_that_cannot_be_converted_is_an_error(line, message):
    with pytest.raises(SpecError, match=message):
        convert(line)
