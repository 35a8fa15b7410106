"""`kfjob init` writes a valid spec, and a schema beside it."""

from __future__ import annotations

import io
import json

import pytest

from kfjob.api.specs.init import Answers, format_spec
from kfjob.source.spec_text import load_spec


@pytest.mark.parametrize(
    "answers",
    [
        Answers(name="a"),
        Answers(name="a", image="1.dkr.ecr.eu-west-1.amazonaws.com/fsdp:pytorch2.2", nodes=8, instance="p4d.24xlarge"),
        Answers(name="on", image="yes", gpus=4, claim="fsx"),
        Answers(name="n", command='torchrun train.py --x "a: b # c" -- \'q"\' 1 true'),
        Answers(name="a", model="/models/llama: 3", data="/d/#x"),
    ],
    ids=range(5),
)
def test_written_spec_holds_the_answers(answers):
    spec = load_spec(format_spec(answers)).spec
    assert (spec.name, spec.image or "", spec.nodes, spec.instance or "") == (
        answers.name,
        answers.image,
        answers.nodes,
        answers.instance,
    )
    assert spec.resources.gpus == (answers.gpus or 0)
    if answers.command:
        assert spec.command == ("torchrun", "train.py", "--x", "a: b # c", "--", 'q"', "1", "true")
    else:
        assert spec.train is not None
        assert (spec.train.model, spec.train.data) == (answers.model, answers.data)


def test_init_writes_a_spec_and_a_schema_and_overwrites_only_with_force(kfjob, here):
    assert kfjob("init", "--name", "demo", "--image", "a:1", "--instance", "g5.12xlarge") == 0
    assert kfjob.out == "job.yaml\n"
    text = (here / "job.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=kfjob.schema.json\n")
    assert "properties" in json.loads((here / "kfjob.schema.json").read_text())
    assert kfjob("validate", "job.yaml") == 0
    assert kfjob("init", "--name", "other") == 1
    assert "`job.yaml` already exists" in kfjob.err
    assert (here / "job.yaml").read_text() == text
    assert kfjob("init", "--name", "other", "--force") == 0
    assert "name: other" in (here / "job.yaml").read_text()


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "the job has no name"),
        (("--name", "Bad"), 2, "not a DNS-1035 label"),
        (("--name", "a", "--instance", "p4d.24xlarg"), 2, "did you mean `p4d.24xlarge`"),
        (("--name", "a", "--command", "x 'y"), 2, "cannot be split"),
        (("no/such/job.yaml", "--name", "a"), 3, "cannot be written"),
    ],
)
def test_invalid_answers_write_no_file(kfjob, here, argv, code, message):
    assert kfjob("init", *argv) == code
    assert message in kfjob.err
    assert not (here / "job.yaml").exists()


def test_the_first_spec_needs_nothing_that_a_laptop_lacks(kfjob, here):
    assert kfjob("init", "-y", "--name", "first") == 0
    assert kfjob("submit", "job.yaml", "--backend", "local", "--dry-run", "client") == 0, kfjob.err
    assert "error" not in kfjob.err
    train = load_spec((here / "job.yaml").read_text()).spec.train
    assert train is not None
    assert (train.model, train.data, train.checkpoint_dir) == ("tiny-llama", "synthetic", "checkpoints/first")


def test_wrong_answer_gets_the_error_of_the_spec_and_the_question_again(kfjob, here, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    answers = ["My_Job", "chat", "", "two", "2", "p4d.24xlarg", "", "-1", "4", "a b", "fsx", "cd x && y", "torchrun t.py"]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(answers) + "\n"))
    assert kfjob("init") == 0
    spec = load_spec((here / "job.yaml").read_text()).spec
    assert (spec.name, spec.nodes, spec.resources.gpus, spec.volumes[0].pvc) == ("chat", 2, 4, "fsx")
    assert spec.command == ("torchrun", "t.py")
    assert kfjob.out == "job.yaml\n"
    errors = [line for line in kfjob.err.splitlines() if "rror:" in line]
    assert len(errors) == 6
    assert all("error: " in line for line in errors)
    assert "hint: did you mean `p4d.24xlarge`?" in kfjob.err
    assert "-->" not in kfjob.err


def test_yes_needs_no_name_and_says_how_to_give_one(kfjob, here):
    assert kfjob("init", "--yes") == 0
    assert load_spec((here / "job.yaml").read_text()).spec.name == "train"
    assert "the job is named `train`; `--name NAME` gives another name" in kfjob.err


LOCAL = "name: t\ntrain: {model: micro-llama, max_steps: 1, sequence_length: 64, data: DATA}\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("/nonexistent/dir", "there is no data at `/nonexistent/dir`"),
        ("synthetc", "did you mean `synthetic`?"),
        ("./texts", "needs a tokenizer, and a preset or a shape has none"),
    ],
)
def test_validate_and_a_local_submit_check_the_data(kfjob, here, data, message):
    (here / "texts").mkdir()
    (here / "texts" / "train.txt").write_text("a")
    (here / "job.yaml").write_text(LOCAL.replace("DATA", data))
    for command in (("validate", "job.yaml", "--backend", "local"), ("submit", "job.yaml", "--backend", "local")):
        assert kfjob(*command) == 2
        assert message in kfjob.err
        assert "job.yaml:2" in kfjob.err
    assert kfjob("validate", "job.yaml", "--backend", "local", "--set", "train.data=synthetic") == 0
    volume = "[{name: d, mount_path: /nonexistent, pvc: d}]"
    (here / "job.yaml").write_text(LOCAL.replace("DATA", "/nonexistent/dir") + f"volumes: {volume}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local") == 0


@pytest.mark.parametrize("field", ["data", "validation", "tokenizer"])
def test_validate_and_a_local_submit_name_a_missing_file(kfjob, here, field):
    """A name such as `nope.txt` would also be a valid one on the hub."""
    (here / "tokenizer").mkdir()
    (here / "texts.txt").write_text("a")
    paths = {"data": "texts.txt", "tokenizer": "tokenizer", field: "nope.json" if field == "tokenizer" else "nope.txt"}
    settings = "".join(f", {name}: {path}" for name, path in paths.items() if name != "data")
    (here / "job.yaml").write_text(LOCAL.replace("DATA", paths["data"] + settings))
    for command in ("validate", "submit"):
        assert kfjob(command, "job.yaml", "--backend", "local") == 2
        assert f"there is no {'tokenizer' if field == 'tokenizer' else 'data'} at `{here / paths[field]}`" in kfjob.err
        assert f"(train.{field})" in kfjob.err


HEADER = {"answers": False, "tokens": {"train": 6401}}
"""The header of 100 samples of 64 tokens."""


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        (
            "epochs: 2, max_steps: 51, micro_batch_size: 4",
            0,
            "`max_steps: 51` is never reached: 2 epochs of 100 samples end",
        ),
        ("epochs: 2, max_steps: 50, micro_batch_size: 4", 0, ""),
        ("epochs: 1, micro_batch_size: 101", 2, "1 epoch of 100 samples is less than a global batch of 101"),
        ("max_steps: 251, micro_batch_size: 2, spawn: 2", 0, "`max_steps: 251` reads each of 100 samples 10 times"),
        ("max_steps: 250, micro_batch_size: 2, spawn: 2", 0, ""),
        ("max_steps: 251, micro_batch_size: 4, packing: pad", 0, ""),
        ("max_steps: 251, micro_batch_size: 4, data_split: other", 0, ""),
    ],
)
def test_steps_and_epochs_are_compared_with_tokenised_data(kfjob, here, settings, code, message):
    (here / "tokens.json").write_text(json.dumps(HEADER))
    launcher = "launcher: python\n" if "spawn" in settings else ""
    train = f"{{model: micro-llama, sequence_length: 64, data: ., {settings}}}"
    (here / "job.yaml").write_text(f"name: t\n{launcher}train: {train}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local") == code
    assert message in kfjob.err
    assert ("train.max_steps" in kfjob.err or "train.epochs" in kfjob.err) == bool(message)
    strict = 2 if code or "never reached" in message else 0  # the others are notes
    assert kfjob("validate", "job.yaml", "--backend", "local", "--strict") == strict


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "there is no model at "),
        ("{", "cannot read `"),
        (
            (
                '{"model_type": "llama", "vocab_size": 8, "hidden_size": 28, "intermediate_size": 8, "num_hidden_layers": 1, '
                '"num_attention_heads": 4}'
            ),
            "an attention head has the width 7 (`hidden_size` 28 / `num_attention_heads` 4)",
        ),
        ('{"model_type": "bert"}', ""),
    ],
)
def test_validate_checks_the_configuration_in_a_model_folder(kfjob, here, config, message):
    if config is not None:
        (here / "m").mkdir()
        (here / "m" / "config.json").write_text(config)
    (here / "job.yaml").write_text("name: t\ntrain: {model: ./m, max_steps: 1, data: synthetic}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local") == (2 if message else 0)
    assert message in kfjob.err


def test_a_first_spec_is_not_valid_before_its_data_is_there(kfjob, here):
    assert kfjob("init", "-y", "--name", "demo", "--data", "/data/corpus.jsonl") == 0
    assert kfjob("validate", "job.yaml", "--backend", "local") == 2
    assert "there is no data at `/data/corpus.jsonl`" in kfjob.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("import", "ptj.yaml"), "hint: `kfjob import pytorchjob ptj.yaml`"),
        (("validate", "."), "error: spec `.` is a directory"),
        (
            ("init", "--name", "My_Job"),
            "begin with a lower-case letter; it may contain lower-case",
        ),
    ],
)
def test_usage_errors_name_the_right_command(kfjob, here, argv, message):
    (here / "job.yaml").write_text(LOCAL)
    assert kfjob(*argv) != 0
    assert message in kfjob.err


@pytest.mark.parametrize(
    "command", ["accelerate launch train.py", "deepspeed train.py", "python train.py", "torchrun train.py"]
)
def test_the_spec_of_one_node_sets_restarts_that_have_an_effect(kfjob, here, command):
    (here / "train.py").touch()
    assert kfjob("init", "--name", "a", "--command", command) == 0
    restarts = load_spec((here / "job.yaml").read_text()).spec.restarts
    assert (restarts.policy == "Never") is command.startswith("torchrun")
    assert kfjob("validate", "job.yaml", "--backend", "local") == 0
    assert "unused-restarts" not in kfjob.out + kfjob.err


@pytest.mark.parametrize(
    ("command", "launcher", "policy"),
    [
        ("accelerate launch train.py", "accelerate", "OnFailure"),
        ("deepspeed train.py --lr 1", "deepspeed", "OnFailure"),
        ("python train.py", "torchrun", "Never"),
        ("torchrun train.py", None, "Never"),
        ("bash run.sh", None, "Never"),
    ],
)
def test_the_spec_of_two_nodes_names_the_launcher_that_connects_them(kfjob, here, command, launcher, policy):
    (here / "train.py").write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n")
    (here / "run.sh").write_text("torchrun train.py\n")
    assert kfjob("init", "--name", "a", "--nodes", "2", "--command", command) == 0
    spec = load_spec((here / "job.yaml").read_text()).spec
    assert (spec.launcher, spec.restarts.policy) == (launcher, policy)
    assert kfjob("validate", "job.yaml", "--backend", "local") == 0


@pytest.mark.parametrize("command", [("validate",), ("submit", "--dry-run=client"), ("submit",)])
def test_gpus_that_this_machine_lacks_are_an_error_before_a_submit(kfjob, here, monkeypatch, command):
    monkeypatch.setattr("kfjob.local.machine.gpus", lambda: ("0",))
    (here / "train.py").touch()
    (here / "job.yaml").write_text("name: t\ncommand: torchrun train.py\nresources: {gpus: 2}\n")
    assert kfjob(*command, "job.yaml", "--backend", "local") in (1, 2)
    assert "error: job `t` needs 2 GPUs, this machine has 1" in kfjob.err
