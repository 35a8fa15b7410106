"""`kfjob relaunch` with a changed spec, or away from a node: the changes are shown, and a wrong one stops nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kfjob as api
from kfjob.joblog.events import JobPhase
from kfjob.kinds.registry import get_job
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell

TRAIN = "train: {model: tiny-llama, data: synthetic, max_steps: 100, checkpoint_dir: /ckpt}"
RECORDED = f"name: train\nimage: a:1\nnodes: 2\n{TRAIN}\nenv: {{DB_PASSWORD: tomato-soup}}\n"


def play_training(fake) -> str:
    """Play a job with a `train` section, and return its recorded spec."""
    spec = load_spec(RECORDED).spec.model_dump_json(exclude_defaults=True)
    fake.play("train", *script.TRAINING, spec=spec)
    return spec


def read_live_spec(fake) -> JobSpec:
    return JobSpec.model_validate_json(fake.get("train", namespace="default").spec)


def test_relaunch_of_a_suspended_job_starts_it(fake, kfjob):
    spec = load_spec(RECORDED + "run: {suspend: true}\n").spec.model_dump_json(exclude_defaults=True)
    fake.play("train", *script.TRAINING, spec=spec)
    assert kfjob("relaunch", "train") == 0
    assert read_live_spec(fake).run.suspend is False
    assert kfjob("relaunch", "train", "--set", "run.suspend=true") == 0
    assert read_live_spec(fake).run.suspend is True


def test_relaunch_with_a_spec_starts_it(fake, kfjob, here):
    play_training(fake)
    text = RECORDED.replace("nodes: 2", "nodes: ${N}").replace("tomato-soup", "leek-soup")
    (here / "new.yaml").write_text(text)
    assert kfjob("relaunch", "train", "--spec", "new.yaml", "--var", "N=3", "--set", "train.lr=0.1") == 0
    lines = kfjob.err[kfjob.err.index("note: changes") :].splitlines()
    assert lines[1:4] == ["  nodes: 2 -> 3", '  env.DB_PASSWORD: "[redacted]" -> "[redacted]"', "  train.lr: 0.0001 -> 0.1"]
    assert read_live_spec(fake).nodes == 3
    assert "soup" not in kfjob.err
    assert kfjob("relaunch", "train", "--spec", "new.yaml", "--var", "N=3", "--set", "train.lr=0.1") == 0
    assert "note: the spec is the same as that of the last launch\n" in kfjob.err


def test_relaunch_of_a_stopped_job_can_change_its_spec(fake, kfjob):
    play_training(fake)
    kfjob("stop", "train")
    assert kfjob("relaunch", "train", "--set", "nodes=1") == 0
    assert read_live_spec(fake).nodes == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "nodez=3"], "did you mean `nodes`?"),
        (["--set", "nodes=0"], "`nodes` must be at least 1"),
        (["--set", "env.LOGLEVEL=info"], "ends torchrun at once"),
        (["--set", "name=other"], "the spec is that of job `other`, not of `train`"),
        (["--set", "namespace=other"], "job `train` is in namespace `default`, and the new spec in `other`"),
        (["--spec", "none.yaml"], "spec `none.yaml` does not exist"),
        (["--var", "N=3"], "`--var` needs `--spec`"),
    ],
)
def test_relaunch_with_a_wrong_change_stops_nothing(fake, kfjob, options, words):
    spec = play_training(fake)
    assert kfjob("relaunch", "train", *options) in (2, 3)
    assert words in kfjob.err
    assert fake.calls == []
    assert fake.get("train", namespace="default").spec == spec


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["--set", "train.model=qwen2-1.5b"], "the checkpoints in `/ckpt` fit the old value only"),
        (["--set", "train.lora={}"], "the checkpoints in `/ckpt` fit the old value only"),
        (["--set", "train.checkpoint_dir=/new"], "resumes from `/new` only if that has checkpoints"),
        (["--set", "train.checkpoint_dir="], "the training starts from step 0"),
        (["--set", "train.model=qwen2-1.5b", "--set", "train.checkpoint_dir=/new"], "resumes from `/new` only if"),
        (["--set", "train.strategy=ddp"], ""),
    ],
)
def test_relaunch_warns_if_the_training_cannot_resume(fake, kfjob, options, warning):
    play_training(fake)
    assert kfjob("relaunch", "train", *options) == 0
    assert [
        line for line in kfjob.err.splitlines() if "checkpoint" in line and line.startswith("warning: ") and warning in line
    ] or not warning
    assert ("only" in kfjob.err or "from step 0" in kfjob.err) == bool(warning)


def read_start(fake) -> tuple[str, bool]:
    """Return where the training of the live job begins, and whether it continues a run."""
    train = read_live_spec(fake).train
    assert train is not None
    return train.resume, train.continues == "train-first"


def test_relaunch_continues_the_run_whatever_its_first_start(fake, kfjob, here, monkeypatch):
    compared: list[dict[str, Any]] = []

    def compare(objects: list[dict[str, Any]]) -> list[Any]:
        compared.extend(objects)
        return []

    recorded = RECORDED.replace("checkpoint_dir: /ckpt", "checkpoint_dir: /ckpt, resume: none")
    (here / "job.yaml").write_text(recorded)
    fake.play("train", *script.TRAINING, spec=load_spec(recorded).spec.model_dump_json(exclude_defaults=True), launch="first")
    for options in ((), ("--set", "train.lr=0.1"), ("--spec", "job.yaml")):  # the later ones continue the first launch too
        assert kfjob("relaunch", "train", *options) == 0
        assert read_start(fake) == ("none", True)
        assert "continues" not in kfjob.err
    assert kfjob("submit", "job.yaml") == 0
    assert "runs already with this spec" in kfjob.err
    monkeypatch.setattr(fake, "diff", compare)
    assert kfjob("diff", "job.yaml") == 0
    assert "--continues=train-first" in json.dumps(compared)
    for start, resume in {
        "none": "none",
        "400": "/ckpt/step-000400",
        "step-000400": "/ckpt/step-000400",
        "latest": "auto",
    }.items():
        assert kfjob("relaunch", "train", "--from", start) == 0
        assert read_start(fake) == (resume, False)
    api.attach("train").relaunch(start=60)
    assert read_start(fake) == ("/ckpt/step-000060", False)


@pytest.mark.parametrize(
    ("spec", "start", "words"),
    [
        (RECORDED, "newest", "`newest` is neither `latest`, `none` nor the step"),
        (RECORDED, "-1", "`-1` is neither"),
        (
            RECORDED.replace(", checkpoint_dir: /ckpt", ""),
            "40",
            "no `train.checkpoint_dir`, so there is no checkpoint of step 40",
        ),
        ("name: train\nimage: a:1\ncommand: python train.py\n", "40", "has no `train`, so kfjob cannot say where it starts"),
    ],
)
def test_relaunch_from_a_start_that_cannot_be(fake, kfjob, spec, start, words):
    fake.play("train", *script.TRAINING, spec=load_spec(spec).spec.model_dump_json(exclude_defaults=True))
    assert kfjob("relaunch", "train", "--from", start) == 2
    assert words in kfjob.err
    assert fake.calls == []


def test_relaunch_in_python_changes_only_the_named_fields(fake):
    recorded = JobSpec.model_validate_json(play_training(fake))
    notices: list[str] = []
    api.attach("train").relaunch(changes={"train.max_steps": 200, "env.MODE": "off"}, notify=notices.append)
    spec = read_live_spec(fake)
    assert spec.train is not None
    assert (spec.train.max_steps, spec.env["MODE"]) == (200, "off")
    assert spec == recorded.model_copy(update={"train": spec.train, "env": spec.env})
    assert fake.calls == [("stop", "train"), ("submit", "train")]
    assert fake.get("train", namespace="default").launch != "l1"
    assert notices[-1].splitlines()[1:] == ['  env.MODE: (not set) -> "off"', "  train.max_steps: 100 -> 200"]


def test_relaunch_says_that_the_file_of_the_spec_has_changed(fake, kfjob, here):
    file = here / "my job.yaml"
    file.write_text(RECORDED)
    assert kfjob("submit", "my job.yaml") == 0
    assert kfjob("relaunch", "train") == 0
    assert "has changed" not in kfjob.err
    file.write_text(RECORDED.replace("nodes: 2", "nodes: 3"))
    for options in ((), ("--set", "train.lr=0.1")):  # the second one shows that a relaunch keeps the record
        assert kfjob("relaunch", "train", *options) == 0
        assert (
            f"note: `{file}` has changed since it was submitted; the recorded spec is used, and "
            f"`kfjob relaunch train --spec '{file}'` uses the file\n"
        ) in kfjob.err
        assert read_live_spec(fake).nodes == 2
    for _ in range(2):
        assert kfjob("relaunch", "train", "--spec", "my job.yaml") == 0
        assert "has changed" not in kfjob.err
    assert read_live_spec(fake).nodes == 3
    file.unlink()
    assert kfjob("relaunch", "train") == 0
    assert "has changed" not in kfjob.err


def play_local_training(fake, start_folder: Path) -> None:
    text = "name: train\nnodes: 2\ntrain: {model: tiny-llama, data: data/corpus/v1, tokenizer: ./tokenizer, max_steps: 100}\n"
    spec = load_spec(text).spec.model_dump_json(exclude_defaults=True)
    fake.play("train", *script.TRAINING, spec=spec, start_folder=str(start_folder))
    (start_folder.parent / "job.yaml").write_text(text)


def test_a_changed_relaunch_is_checked_where_the_job_starts(on_machine, kfjob, here):
    start_folder = here / "project"
    for name in ("data/corpus/v1", "tokenizer"):
        (start_folder / name).mkdir(parents=True)
    play_local_training(on_machine, start_folder)
    command = ("relaunch", "train", "--backend", "local")
    assert kfjob(*command, "--set", "train.max_steps=200") == 0
    assert on_machine.calls == [("stop", "train"), ("submit", "train")]
    assert on_machine.get("train", namespace="default").start_folder == str(start_folder)
    assert kfjob(*command, "--set", "train.data=data/other/v2") == 2
    assert f"there is no data at `{start_folder}/data/other/v2`" in kfjob.err
    assert kfjob(*command, "--spec", "job.yaml") == 2
    assert f"there is no data at `{here}/data/corpus/v1`" in kfjob.err
    for name in ("data", "tokenizer"):
        (start_folder / name).rename(here / name)
    assert kfjob(*command, "--spec", "job.yaml") == 0
    assert on_machine.get("train", namespace="default").start_folder == str(here)


def test_a_changed_relaunch_reads_the_script_where_the_job_starts(on_machine, kfjob, here):
    start_folder = here / "project"
    start_folder.mkdir()
    (start_folder / "run.py").write_text("import torch.distributed as dist\ndist.init_process_group()\n")
    spec = JobSpec(name="train", command=["torchrun", "run.py"]).model_dump_json(exclude_defaults=True)
    on_machine.play("train", *script.TRAINING, spec=spec, start_folder=str(start_folder))
    changes = ("--set", "nodes=2", "--set", 'command=["python", "run.py"]')
    assert kfjob("relaunch", "train", "--backend", "local", *changes) == 2
    assert "error: `python run.py` runs 2 copies that do not know each other" in kfjob.err
    assert on_machine.calls == []


def test_relaunch_after_a_submit_in_python_says_that_the_file_has_changed(fake, kfjob, here):
    file = here / "job.yaml"
    file.write_text(RECORDED)
    api.submit(file)
    file.write_text("other")
    assert kfjob("relaunch", "train") == 0
    assert f"`{file}` has changed since it was submitted" in kfjob.err


def test_file_on_another_machine_is_not_compared(fake, kfjob, here):
    file = here / "job.yaml"
    file.write_text("other")
    spec = load_spec(RECORDED).spec.model_dump_json(exclude_defaults=True)
    fake.play("train", *script.TRAINING, spec=spec, submitted_by="you@there", spec_file=f"{'0' * 16} {file}")
    assert kfjob("relaunch", "train") == 0
    assert "has changed" not in kfjob.err


def read_expressions(fake: FakeBackend) -> list[dict[str, object]]:
    """Return the fields that the nodes of the newest launch must match."""
    pod = get_job(fake.objects)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    terms = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return [field for term in terms.get("nodeSelectorTerms", []) for field in term.get("matchFields", [])]


def test_node_is_avoided_by_this_launch_only(fake: FakeBackend, kfjob: Shell):
    fake.play("train", script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("relaunch", "train", "--avoid-node", "node-7", "--avoid-node", "node-8") == 0
    assert [field["values"] for field in read_expressions(fake)] == [["node-7"], ["node-8"]]
    fake.objects.clear()
    assert kfjob("relaunch", "train") == 0
    assert read_expressions(fake) == []


def test_node_that_does_not_exist_is_a_warning(fake: FakeBackend, kfjob: Shell):
    fake.play("train", script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("relaunch", "train", "--avoid-node", "node-7") == 0
    assert "warning: the cluster has no node `node-7` to avoid" in kfjob.err


def test_machine_has_no_node_to_avoid(on_machine: FakeBackend, kfjob: Shell):
    on_machine.play("train", script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("relaunch", "train", "--backend", "local", "--avoid-node", "node-7") == 2
    assert ("stop", "train") not in on_machine.calls
