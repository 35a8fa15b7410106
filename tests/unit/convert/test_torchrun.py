"""Conversion of torchrun command lines to specs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.convert.torchrun import from_torchrun
from kfjob.spec.job import JobSpec


def convert(line: str, read: Callable[[str], Conversion] = from_torchrun):
    conversion = read(line)
    JobSpec.model_validate(conversion.spec)
    return conversion.spec, [note.item for note in conversion.notes]


def test_command_line_of_a_plain_cluster():
    line = (
        "NCCL_DEBUG=INFO torchrun --nnodes 4 --nproc_per_node=4 --rdzv-backend c10d --rdzv-endpoint=$HOST:1 --rdzv_id 7 \\\n"
        "  recipes/finetuning.py --enable_fsdp --lr 1e-5"
    )
    assert convert(line) == (
        {
            "name": "finetuning",
            "nodes": 4,
            "processes_per_node": 4,
            "resources": {"gpus": 4},
            "restarts": {"max": 0},
            "env": {"NCCL_DEBUG": "INFO"},
            "command": ["torchrun", "recipes/finetuning.py", "--enable_fsdp", "--lr", "1e-5"],
        },
        ["--nproc-per-node=4", "--rdzv-endpoint=$HOST:1", "--rdzv-id=7"],
    )


def test_elastic_job_with_a_shared_etcd():
    spec, notes = convert(
        "/opt/bin/torchrun --nnodes=2:8 --nproc-per-node=gpu --max-restarts=5 --rdzv-backend=etcd --rdzv-endpoint=etcd "
        "--rdzv-conf=timeout=60,last_call_timeout=5 -r 3 --log-dir /logs --monitor-interval=2 --shutdown-timeout 9 -m pkg.train"
    )
    assert (spec["nodes"], spec["elastic"], spec["restarts"]) == (8, {"min": 2, "max": 8}, {"max": 5})
    assert spec["rendezvous"] == {
        "backend": "etcd",
        "endpoint": "etcd:2379",
        "conf": {"timeout": "60", "last_call_timeout": "5"},
    }
    assert spec["torchrun"] == {"monitor_interval": 2.0, "log_dir": "/logs", "redirects": "3", "shutdown_timeout": 9}
    assert spec["command"] == ["torchrun", "-m", "pkg.train"]
    assert notes == []


def test_static_rendezvous_becomes_a_master_and_workers():
    spec, notes = convert("torchrun --nnodes=2 --node-rank=1 --master-addr=10.0.0.1 --master-port=29501 train.py")
    assert spec["rendezvous"] == {"backend": "static", "port": 29501}
    assert JobSpec.model_validate(spec).has_master
    assert notes == ["--master-addr=10.0.0.1", "--node-rank=1"]


def test_other_forms_of_the_command():
    assert convert("python3.11 -m torch.distributed.run --standalone x.py")[0]["command"] == ["torchrun", "x.py"]
    spec, notes = convert("python -m torch.distributed.launch --use-env --nproc-per-node=1 --node_rank 0 x.py -a")
    assert (spec["launcher"], spec["command"]) == ("launch", ["x.py", "-a"])
    assert notes == ["--node-rank=0", "--use-env"]
    assert convert("torchrun --no-python --numa-binding=node -- ./run.sh --nnodes=3")[0]["command"] == [
        "torchrun",
        "--no-python",
        "--numa-binding=node",
        "./run.sh",
        "--nnodes=3",
    ]


def test_options_may_be_abbreviated():
    assert convert("torchrun --nproc=2 --rdzv_b=etcd-v2 t.py")[0]["rendezvous"] == "etcd-v2"


def test_own_trainer_becomes_a_train_section():
    spec, _ = convert("torchrun -m kfjob.trainer --model=llama-3-8b --data=/d/x --max-steps=10 --lr 0.001")
    assert "command" not in spec
    assert spec["train"]["max_steps"] == 10
    assert spec["train"]["lr"] == 0.001


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("python train.py", "not a torchrun command line"),
        ("", "not a torchrun command line"),
        ("torchrun", "has no program"),
        ("torchrun --nproc-per-cat=8 train.py", "torchrun has no option `--nproc-per-cat`"),
        ("torchrun --n 8 train.py", "could be any of nnodes, no_python"),
        ("torchrun --nnodes", "`--nnodes` needs a value"),
        ("torchrun --nnodes=$NUM_NODES train.py", "not a number of nodes"),
        ("torchrun --monitor-interval=soon train.py", "not a number"),
        ("torchrun 'open", "cannot split the command line into words"),
    ],
)
def test_invalid_command_line_is_an_error(line, message):
    with pytest.raises(SpecError) as raised:
        from_torchrun(line)
    assert message in str(raised.value)


@pytest.mark.trainer
def test_options_equal_those_of_torch():
    from torch.distributed.run import get_args_parser

    from kfjob.convert import torchrun

    flags = {flag for action in get_args_parser()._actions for flag in action.option_strings if flag.startswith("--")}
    names = {flag.removeprefix("--").replace("-", "_") for flag in flags} - {"help", "print_completion"}
    assert names == (torchrun._WITH_VALUE | torchrun._SWITCHES) - {"use_env"}  # torch.distributed.launch's own
