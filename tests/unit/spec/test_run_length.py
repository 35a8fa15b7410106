"""The length of a run in the arguments of its command."""

from __future__ import annotations

from functools import partial

import pytest

from kfjob.joblog.observe_config import decode, encode
from kfjob.kinds.pytorchjob.observation import read_manifest
from kfjob.objects import names
from kfjob.plan import Context, resolve
from kfjob.shell.run_length import RunLength, find_run_length
from kfjob.spec.job import JobSpec


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ("train.py --epochs 10", RunLength(epochs=10)),
        ("train.py --num_train_epochs=3 --max_steps -1", RunLength(epochs=3)),
        ("train.py --num-train-epochs 3 --warmup_steps 100 --save_steps 50", RunLength(epochs=3)),
        ("-m package.train trainer.max_epochs=7", RunLength(epochs=7)),
        ("train.py --max_steps 5000", RunLength(steps=5000)),
        ("train.py --num-steps=200", RunLength(steps=200)),
        ("-m torchtitan.train --training.steps 1000", RunLength(steps=1000)),
        ("train.py --max_iters=600000", RunLength(steps=600_000)),
        ("train.py --epochs 3 --max_steps 100", RunLength()),
        ("train.py --epochs 3 --epochs 4", RunLength()),
        ("train.py --epochs $EPOCHS", RunLength()),
        ("train.py --epochs", RunLength()),
        ("train.py --max_steps 0", RunLength()),
        ("train.py --epochs-per-save 2 --steps_per_epoch 100 --eval_steps 5", RunLength()),
    ],
)
def test_length_is_read_from_the_arguments(words: str, length: RunLength):
    assert find_run_length(words.split()) == length
    assert find_run_length(["bash", "-c", f"cd /code && torchrun {words}  # --epochs 99"]) == length


def test_script_with_an_open_quote_has_no_length():
    assert find_run_length(["bash", "-c", "echo 'a; train.py --epochs 3"]) == RunLength()


def test_plan_and_record_have_the_length():
    spec = JobSpec.model_validate({"name": "a", "image": "i", "command": ["train.py", "--epochs", "10"]})
    config = resolve(spec, Context(backend="kubernetes", launch="x")).observe_config
    assert (config.expected_epochs, config.expected_steps) == (10, None)
    assert decode(encode(config), name_pods=partial(names.pod_names, "a")) == config


def test_length_is_read_from_a_manifest():
    container = {"command": ["torchrun", "train.py"], "args": ["--max_steps", "100"]}
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    job = {"metadata": {"name": "a"}, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    assert read_manifest(job).expected_steps == 100
