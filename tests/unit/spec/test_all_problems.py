"""All problems of a spec's text and fields in one pass, one for each mistake, and the hints for unknown names."""

from __future__ import annotations

import pytest

from kfjob.api.jobs import render
from kfjob.api.planning import plan_job
from kfjob.api.settings import load_current_settings
from kfjob.api.target import make_target
from kfjob.base.errors import Problem, SpecError
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec
from kfjob.spec.volumes import Volume
from kfjob.trainspec.command_line import from_argv
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.field_suggestions import map_aliases
from kfjob.validation.model_fields import list_fields

KUBERNETES = load_current_settings(backend="kubernetes", namespace="default")
SEVERAL = """\
name: Train
image: a:1
replicas: 2
batch_size: 8
comand: torchrun train.py
resources: {gpu: 8}
nodes: ${N}
env: {X: true}
"""
TINY = {"model": "tiny-llama", "data": "synthetic", "max_steps": 1}
TRAIN = "name: train\nimage: a:1\ntrain: {model: tiny-llama, data: synthetic, max_steps: 1}\n"


def list_problems(text: str, *, assignments: tuple[str, ...] = ()) -> tuple[Problem, ...]:
    """Return the problems of a spec on Kubernetes: those of its fields, or those of its plan."""
    try:
        return plan_job(load_spec(text, file="t.yaml", assignments=assignments), make_target(KUBERNETES, "kubernetes")).findings
    except SpecError as err:
        return err.problems


def list_paths(text: str) -> list[str]:
    return [problem.path for problem in list_problems(text)]


def test_variables_and_fields_are_checked_in_one_pass():
    assert list_paths(SEVERAL) == [
        "name", "replicas", "batch_size", "comand", "resources.gpu", "nodes", "env.X",
    ]  # fmt: skip


def test_python_reports_all_problems_in_one_pass():
    with pytest.raises(SpecError) as caught:
        JobSpec(name="Train", command="torchrun a.py", train={"model": "tiny-llama", "steps": 1}, nodes="four")
    assert [problem.path for problem in caught.value.problems] == ["name", "nodes", "train.data", "train.steps"]


def test_problems_vanish_one_by_one_when_they_are_fixed():
    """A spec whose problems are all fixed as reported has no other problems."""
    fixed = (
        SEVERAL.replace("Train", "train").replace("replicas: 2\n", "").replace("batch_size: 8\n", "")
        .replace("comand", "command").replace("gpu: 8", "gpus: 8").replace("${N}", "3")
        .replace("true", '"true"')
    )  # fmt: skip
    assert load_spec(fixed).spec


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("name: train\nimage: a:1\ncomand: torchrun train.py\n", "comand"),
        ("name: train\nimage: a:1\nscript: train.py\n", "script"),
        ("nme: train\nimage: a:1\ncommand: a\n", "nme"),
        ("name: train\nimage: ''\ncommand: a\n", "image"),
        ("name: ${N}\nimage: a:1\ncommand: a\n", "name"),
        ("name: train\nimage: a:1\ncommand: ${C}\n", "command"),
        ("name: train\nimage: ${I}\ncommand: a\n", "image"),
        ("name: train\nimage: a:1\ntrane: {model: tiny-llama, data: synthetic, max_steps: 1}\n", "trane"),
        (TRAIN.replace("max_steps", "steps"), "train.steps"),
        (TRAIN.replace("max_steps", "num_train_epochs").replace("synthetic", "/data"), "train.num_train_epochs"),
        (TRAIN.replace("max_steps: 1", "max_steps: many"), "train.max_steps"),
        (TRAIN.replace("synthetic", "'${D}'"), "train.data"),
        (TRAIN.replace("tiny-llama", "tiny-lama"), "train.model"),
        (TRAIN.replace("max_steps: 1", "max_steps: 1, bf16: '${B}'"), "train.bf16"),
        ("name: train\nimage: a:1\ncommand: a\nnodes: -1\nelastic: {min: 2, max: 4}\n", "nodes"),
        ("name: train\nimage: a:1\ncommand: a\nvolumes: [{name: d, mount_path: d, pvc: c}]\n", "volumes.0.mount_path"),
        ("name: train\nimage: a:1\ncommand: a\nprocesses_per_node: x\ninstance: p4d.24xlarge\n", "processes_per_node"),
    ],
)
def test_one_mistake_is_one_error(text, path):
    assert [problem.path for problem in list_problems(text) if problem.severity == "error"] == [path]


def test_every_alias_names_a_field_that_exists():
    fields = list_fields(JobSpec)
    assert [alias for alias, path in map_aliases().items() if path not in fields[str(path[-1])]] == []


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("batch_size", "train.micro_batch_size"),
        ("learningRate", "train.lr"),
        ("max-steps", "train.max_steps"),
        ("nodeSelector", "scheduling.node_selector"),
        ("restartPolicy", "restarts.policy"),
        ("memory", "resources.memory"),
        ("backend", "rendezvous.backend"),
        ("train.learning_rate", "train.lr"),
        ("train.gpus", "resources.gpus"),
        ("resources.gpu", "resources.gpus"),
        ("elastic.max_restart", "elastic.max_restarts"),
    ],
)
def test_unknown_names_are_explained_in_specs_and_assignments(name, field):
    (problem,) = [p for p in list_problems(TRAIN, assignments=(f"{name}=1",)) if p.title.startswith("unknown")]
    assert f"`{field}" in (problem.hint or "")
    assert problem.file == f"--set {name}=1"


@pytest.mark.parametrize(
    ("model", "fields", "hint"),
    [
        (JobSpec, {"name": "train", "command": ["a"], "nodez": 8}, "did you mean `nodes`?"),
        (TrainSpec, TINY | {"learning_rate": 1}, "use `lr`"),
        (Volume, {"name": "a", "pvc": "c", "mount_path": "/a", "mountPath": "/a"}, "did you mean `mount_path`?"),
    ],
)
def test_names_are_explained_in_python(model, fields, hint):
    with pytest.raises(SpecError) as caught:
        model(**fields)
    assert [problem.hint for problem in caught.value.problems] == [hint]


@pytest.mark.parametrize(
    ("argument", "flag"), [("--batch-size", "--micro-batch-size"), ("--num_train_epochs", "--epochs"), ("--modl", "--model")]
)
def test_names_are_explained_on_the_trainers_command_line(argument, flag):
    with pytest.raises(SpecError, match=f"unknown argument `{argument}`\nhint: did you mean `{flag}`"):
        from_argv([f"{argument}=1", "--model=tiny-llama", "--data=synthetic", "--max-steps=1"])


def test_python_accepts_the_fields_of_a_spec_as_a_mapping():
    fields = {"name": "train", "image": "a:1", "command": "torchrun train.py", "nodes": 2}
    (manifest,) = render(fields, settings=KUBERNETES)
    assert (
        manifest == render(JobSpec(**fields), settings=KUBERNETES)[0] | {"metadata": manifest["metadata"]} or manifest["kind"]
    )
    with pytest.raises(SpecError) as caught:
        render(fields | {"batch_size": 8, "env": {"LOGLEVEL": "info"}}, settings=KUBERNETES)
    assert [problem.path for problem in caught.value.problems] == ["batch_size"]


MANIFEST = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {}\n"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (MANIFEST, "kfjob import pytorchjob t.yaml"),
        (f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: b}}\n---\n{MANIFEST}", "kfjob import pytorchjob t.yaml"),
        ('{"apiVersion": "v1", "kind": "List", "items": [{"kind": "PyTorchJob"}]}', "kfjob import pytorchjob t.yaml"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {}\n", "kfjob init"),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n", "kfjob import accelerate t.yaml"),
    ],
)
def test_file_of_another_program_is_one_error_with_the_command_for_it(text, hint):
    (problem,) = list_problems(text)
    assert hint in (problem.hint or "")
    assert problem.line


@pytest.mark.parametrize(
    ("text", "title", "position"),
    [
        ("a:\n\tb: 1\n", "a tab indents this line", (2, 1)),
        ("a: 1\n\tb: 2\n", "a tab indents this line", (2, 1)),
        ("a: 1\n  b: 2\n", "this line is indented deeper than the line before", (2, 4)),
        ("a:\n    b: 1\n  c: 2\n", "this line is indented differently", (3, 3)),
        ("  a: 1\nb: 2\n", "this line is indented less than the first line", (2, 1)),
        ("command: echo a: b\n", "the value contains `: `", (1, 16)),
        ("name:train\nimage: a\n", "the line before has no space after its colon", (2, 6)),
        ("a: 'x\nb: 1\n", "the quoted text is not closed", (1, 4)),
        ("a: [1, 2\nb: 3\n", "the list is not closed", (1, 4)),
        ("a: {b: ${C}, d: 1}\n", "`${` begins a mapping here", (1, 4)),
        ("a: @x\n", "a text cannot begin with `@`", (1, 4)),
        ("a: *.txt\n", "`*` and `&` have a meaning of their own", (1, 5)),
        ("a:\n  - x\n  b: 1\n", "this line is in a list", (3, 3)),
        ("a: 1\nb 2\nc: 3\n", "the line has no colon", (2, 1)),
    ],
)
def test_syntax_errors_have_a_position_and_a_hint(text, title, position):
    (problem,) = list_problems(text)
    assert problem.title.startswith(f"invalid YAML: {title}")
    assert (problem.line, problem.column) == position
    assert problem.hint


@pytest.mark.parametrize("line", ["metadata: {name: {{ .Values.name }}}", "{{- if .Values.x }}", "{% if x %}"])
def test_template_of_another_language_is_one_error(line):
    (problem,) = list_problems(f"name: a\n{line}\nnodes: 2\n")
    assert (problem.title, problem.line) == ("this is a template of Helm, Jinja or Go, not a job spec", 2)


def test_text_of_another_language_hides_no_error_of_another_line():
    problems = list_problems("name: a\nimage: a:1\ncommand: [docker, inspect, '{{.State}}']\nnodes: {}: 1\n")
    assert [problem.line for problem in problems] == [4]


def test_train_whose_fields_are_not_indented_is_one_problem():
    (problem,) = list_problems("name: train\nimage: a:1\ntrain:\nmodel: tiny-llama\ndata: synthetic\nepochs: 1\n")
    assert (problem.title, problem.line) == ("`train` is empty", 3)
    assert problem.hint == "indent the lines below it, which are its fields"


def test_command_beside_train_is_an_error():
    (problem,) = list_problems(f"{TRAIN}command: python t.py\n")
    assert (problem.path, problem.title) == ("train", "a job has either `command` or `train`, not both")


def test_field_with_a_missing_variable_has_no_other_problem():
    assert list_paths("name: a\nimage: a:1\ncommand: cd a && torchrun ${SCRIPT}\nnodes: ${N}\nrun: {ttl: -1}\n") == [
        "command", "nodes", "run.ttl",
    ]  # fmt: skip
