"""`kfjob run`: a command and options as a job, without a spec file."""

from __future__ import annotations

import json

import pytest
import yaml

from kfjob.api.lifecycle.preparation import _note_hidden_gpus
from kfjob.api.settings import Settings
from kfjob.api.spec_source import SpecSource
from kfjob.api.specs.command import name_options
from kfjob.api.target import find_target
from kfjob.base.common_types import JsonObject
from kfjob.local import machine
from kfjob.source.spec_text import LoadedSpec, Positions, load_spec
from kfjob.spec.job import JobSpec

LOCAL = ("--backend", "local")
CLUSTER = ("--backend", "kubernetes")


@pytest.fixture
def saved(kfjob):
    """Return a function that returns the fields which `kfjob run --save -` prints."""

    def read(*argv: str) -> JsonObject:
        assert kfjob("run", "--save", "-", *argv) == 0, kfjob.err
        load_spec(kfjob.out)
        fields: JsonObject = yaml.safe_load(kfjob.out)
        return fields

    return read


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that sets the number of GPUs of this machine."""

    def set_gpus(count: int) -> None:
        monkeypatch.setattr(machine, "gpus", lambda: tuple(map(str, range(count))))

    set_gpus(0)
    return set_gpus


def test_options_become_fields(saved, gpus):
    fields = saved(
        *(*LOCAL, "--nodes", "2", "--processes-per-node", "2", "--gpus", "1", "--cpu", "4", "--memory", "8Gi"),
        *("--image", "a:1", "--name", "trial", "-e", "A=b=c", "-v", "Data:/d:ro".lower(), "-v", "/mnt/x:/x", "-v", "data:/e"),
        *("--", "torchrun", "fit.py", "--lr", "1", "${HOME}"),
    )
    assert fields == {
        "name": "trial",
        "image": "a:1",
        "nodes": 2,
        "processes_per_node": 2,
        "resources": {"gpus": 1, "cpu": "4", "memory": "8Gi"},
        "env": {"A": "b=c"},
        "volumes": [
            {"name": "data", "mount_path": "/d", "pvc": "data", "read_only": True},
            {"name": "mnt-x", "mount_path": "/x", "host_path": "/mnt/x"},
            {"name": "data", "mount_path": "/e", "pvc": "data"},
        ],
        "restarts": {"max": 0},
        "command": "torchrun fit.py --lr 1 '$${HOME}'",
    }


def test_volumes_of_options_are_added_to_an_assigned_list(saved, gpus):
    given = "volumes=[{name: torch, mount_path: /t, host_path: /t}]"
    fields = saved(*LOCAL, "-v", "data:/d", "--set", given, "--set", "volumes.1.read_only=true", "--", "torchrun", "fit.py")
    assert [volume["name"] for volume in fields["volumes"]] == ["torch", "data"]
    assert fields["volumes"][1]["read_only"] is True


def test_saved_spec_is_the_job_that_would_run_and_never_overwrites(kfjob, here, on_machine, gpus):
    (here / "fit.py").write_text("print(1)\n")
    words = ("--", "torchrun", "fit.py", "--text", "a # b", "x" * 200, "two\nlines")
    assert kfjob("run", *LOCAL, "--nodes", "2", "--save", "job.yaml", *words) == 0
    assert kfjob.out == "job.yaml\n"
    assert "`kfjob submit job.yaml --follow` runs it" in kfjob.err
    text = (here / "job.yaml").read_text()
    assert (here / "job.yaml").stat().st_mode & 0o077 == 0  # it may hold secrets
    assert text.startswith("# Written by `kfjob run`. `kfjob submit job.yaml --follow` runs it.\n")
    assert "nodes: 2   # Number of pods, each with one agent\n" in text
    assert on_machine.calls == []
    assert load_spec(text).spec.command == words[1:]
    assert kfjob("run", *LOCAL, "--save", "job.yaml", *words) == 1
    assert "`job.yaml` already exists" in kfjob.err
    assert (here / "job.yaml").read_text() == text
    assert kfjob("run", *LOCAL, "-d", "--nodes", "2", *words) == 0
    assert kfjob("submit", *LOCAL, "job.yaml") == 0
    assert "runs already with this spec" in kfjob.err


def test_secret_of_an_option_is_in_no_message_wherever_it_stands_too(kfjob, gpus):
    assert (
        kfjob("run", *LOCAL, "-e", "DB_PASSWORD=Zq7secretvalueXk", "--", "torchrun", "--nnodes", "Zq7secretvalueXk", "a.py")
        == 2
    )
    assert "is not a number of nodes" in kfjob.err
    assert "Zq7secretvalueXk" not in kfjob.err


def test_run_submits_and_json_names_the_launch(kfjob, here, on_machine, gpus):
    (here / "fit.py").write_text("print(1)\n")
    assert kfjob("run", *LOCAL, "-d", "-o", "json", "torchrun", "fit.py") == 0
    assert json.loads(kfjob.out)["name"] == "fit"
    assert kfjob("run", *LOCAL, "-d", "--nodes", "2", "--", "torchrun", "fit.py") == 1
    assert "job `fit` runs already" in kfjob.err
    assert "nodes: 1 -> 2" in kfjob.err


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (0, "torchrun --nproc-per-node=2 fit.py", None),
        (1, "torchrun fit.py", 1),
        (1, "python fit.py", 1),
        (4, "torchrun --nproc-per-node=2 --nnodes=2 fit.py", 2),
        (3, "torchrun --nproc-per-node=2 --nnodes=2 fit.py", None),
        (3, "torchrun --nproc-per-node=gpu fit.py", None),
    ],
)
def test_gpus_of_this_machine_are_used_where_each_process_can_have_one(saved, gpus, count, words, expected):
    gpus(count)
    assert saved(*LOCAL, "--", *words.split()).get("resources", {}).get("gpus") == expected
    assert saved(*LOCAL, "--gpus", "0", "--", *words.split())["resources"]["gpus"] == 0


def test_too_few_gpus_of_this_machine_are_named(kfjob, gpus):
    gpus(1)
    assert kfjob("run", *LOCAL, "--save", "-", "--", "torchrun", "--nproc-per-node=2", "fit.py") == 0
    assert "the job has 2 processes and this machine 1 GPU: they use the CPU" in kfjob.err


def test_processes_on_a_cluster_have_a_gpu_each_unless_an_option_says_more(saved, kfjob):
    words = ("--", "torchrun", "--nproc-per-node=4", "fit.py")
    assert saved(*CLUSTER, *words)["resources"] == {"gpus": 4}
    assert "4 on each node; `--gpus 0` requests none" in kfjob.err
    assert saved(*CLUSTER, "--gpus", "0", *words)["resources"] == {"gpus": 0}
    fields = saved(*CLUSTER, "--gpus", "8", "--", "torchrun", "fit.py")
    assert JobSpec.model_validate(fields).processes_per_node is None  # one for each GPU


def test_set_reaches_every_field(saved, kfjob):
    fields = saved(*CLUSTER, "--set", "nodes=3", "--set", "watchdog.stall=5m", "--", "torchrun", "fit.py")
    assert (fields["nodes"], fields["watchdog"]) == (3, {"stall": 300})
    assert kfjob("run", *CLUSTER, "--set", "nods=3", "--", "torchrun", "fit.py") == 2
    assert "unknown field `nods`\n  --> --set nods=3" in kfjob.err


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("python train.py", "write it without quotes"),
        ("cd x && python train.py", "`kfjob run -- bash -c 'set -eo pipefail; cd x && python train.py'` starts a shell for it"),
        (r"DB_PASSWORD='it'\''smetoo123' python t.py", "`kfjob run -- bash -c '…'` starts a shell for it"),
    ],
)
def test_command_in_one_word_is_an_error(kfjob, word, hint):
    assert kfjob("run", *LOCAL, "--", word) == 2
    assert kfjob.err == f"error: the command is one word with spaces\nhint: {hint}\n"


@pytest.mark.parametrize(
    ("argv", "messages"),
    [
        ("", ["there is no command to run", "`kfjob run -- torchrun train.py`"]),
        ("job.yaml", ["`job.yaml` is a file", "`kfjob submit job.yaml --follow` runs a job spec"]),
        ("fit.py --lr 1", ["`fit.py` is a script", "`kfjob run -- torchrun fit.py --lr 1` starts it"]),
        ("x.bash 1", ["`kfjob run -- bash x.bash 1` starts it"]),
        (".", ["`.` is a folder"]),
        ("--nodes 2 -- torchrun --standalone fit.py", ["`--nodes 2` contradicts the command, which means `--nodes 1`"]),
        ("--processes-per-node 2 -- torchrun --nproc-per-node=4 fit.py", ["`--processes-per-node 2` contradicts"]),
        ("--gpus 1 -- deepspeed --num_gpus 2 fit.py", ["`--gpus 1` contradicts"]),
        ("-e A=secret1 -- A=secret2 torchrun fit.py", ["`--env A=…` contradicts the command, which sets `env.A`"]),
        ("--memory much -- torchrun fit.py", ["--> --memory much\n"]),
        ("--name A_b -- torchrun fit.py", ["--> --name\n"]),
        ("-v data -- torchrun fit.py", ["`--volume data` is not CLAIM:/PATH"]),
        ("-v ./data:/d -- torchrun fit.py", ["`--volume ./data:/d` is not"]),
        ("--nodes 2 --set nodes=3 -- torchrun fit.py", ["`--nodes 2` and `--set nodes=…` set the same field"]),
        ("-e A=secret1 --set env.A=secret2 -- torchrun fit.py", ["`--env A=…` and `--set env.A=…` set the same field"]),
        ("-v a:/a --set volumes=[{name:b} -- torchrun fit.py", ["--> --set volumes=[{name:b}"]),
        ("-v Claim_1:/d --set volumes=[] -- torchrun fit.py", ["--> --volume Claim_1:/d\n"]),
        ("-e HF_TOKEN -- torchrun fit.py", ['`--env HF_TOKEN="$HF_TOKEN"` passes the value']),
    ],
)
def test_wrong_command_line_names_the_option_and_the_way_out(kfjob, here, gpus, argv, messages):
    (here / "job.yaml").write_text("name: a\ncommand: b\n")
    assert kfjob("run", *LOCAL, *argv.split()) == 2
    for message in messages:
        assert message in kfjob.err
    assert "secret" not in kfjob.err


def test_cluster_without_an_image_names_the_option(kfjob, fake):
    assert kfjob("run", *CLUSTER, "--", "torchrun", "fit.py") == 2
    assert "error: `--image` is missing, and pods need one\n  --> --image\n" in kfjob.err


def test_an_error_names_options_and_no_fields(kfjob, gpus):
    assert kfjob("run", *LOCAL, "-d", "--gpus", "64", "--", "torchrun", "fit.py") == 1
    assert "hint: lower `--nodes` or `--gpus`, or run with" in kfjob.err
    assert kfjob("submit", "none.yaml") == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for example `volumes: [{name: a, pvc: b}]`", "for example `--set 'volumes=[{name: a, pvc: b}]'`"),
        ("or set `launcher: torchrun`", "or add `--set launcher=torchrun`"),
        ("change `resources` or `scheduling`", "change `--gpus` or `--cpu` or `--memory` or `--set scheduling=…`"),
        (r"`progress: '(?P<step>\d+)'` in the spec reads them", r"`--set progress='(?P<step>\d+)'` reads them"),
        ("job `train` needs `torchrun`", "job `train` needs `torchrun`"),
        ("`resources.gpus: 2` in the spec requests them", "`--gpus 2` requests them"),
        ("error: x\n  --> --nodes 2 (nodes)\n  y (z)", "error: x\n  --> --nodes 2\n  y (z)"),
    ],
)
def test_fields_in_messages_become_options(text: str, expected: str):
    assert name_options(text) == expected


def test_the_name_of_a_job_is_no_field(kfjob, here, on_machine, gpus):
    (here / "fit.py").write_text("print(1)\n")
    assert kfjob("run", *LOCAL, "-d", "-n", "ml", "--name", "image", "--", "torchrun", "fit.py") == 0, kfjob.err
    assert "submitted `image` (launch " in kfjob.err


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "it does not see the 2 GPUs of this machine; `resources.gpus: 2` in the spec requests them"),
        ({"resources": {"gpus": 0}}, ""),
        ({"processes_per_node": "auto"}, ""),
    ],
)
def test_hidden_gpus_are_named(here, gpus, fields: JsonObject, expected: str):
    gpus(2)  # mocked: this machine has none
    notes: list[str] = []
    target = find_target(Settings(state=here / "state", backend="local"))
    spec = JobSpec.model_validate({"name": "a", "command": ["torchrun", "a.py"], **fields})
    _note_hidden_gpus(SpecSource(LoadedSpec(spec, Positions())).prepare(target), notes.append)
    assert expected in "".join(notes)
    assert bool(notes) == bool(expected)
