"""All problems of a spec in one pass, one for each mistake, and hints that know other programs' names."""

from __future__ import annotations

import pytest

from kfjob.api.jobs import render
from kfjob.api.planning import finish_draft, plan_job
from kfjob.api.settings import load_current_settings
from kfjob.api.target import make_target
from kfjob.base.errors import Problem, SpecError
from kfjob.source.spec_text import draft_spec, load_spec
from kfjob.spec.job import JobSpec
from kfjob.spec.volumes import Volume
from kfjob.trainspec.command_line import from_argv
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.field_paths import parse_path
from kfjob.validation.field_suggestions import suggest_field
from kfjob.validation.model_fields import find_model
from kfjob.validation.synonyms import list_synonyms

KUBERNETES = load_current_settings(backend="kubernetes", namespace="default")
SEVERAL = """\
name: Train
image: a:1
replicas: 2
batch_size: 8
comand: torchrun train.py
resources: {gpu: 8}
nodes: ${N}
env: {LOGLEVEL: info, X: true}
elastic: {min: 3, max: 2}
"""
TINY = {"model": "tiny-llama", "data": "synthetic", "max_steps": 1}
TRAIN = "name: train\nimage: a:1\ntrain: {model: tiny-llama, data: synthetic, max_steps: 1}\n"


def list_problems(text: str, *, assignments: tuple[str, ...] = ()) -> tuple[Problem, ...]:
    """Return the problems of a spec on Kubernetes: those of its draft, or those of its plan."""
    with pytest.raises(SpecError) as caught:
        plan(text, assignments)
    return caught.value.problems


def plan(text: str, assignments: tuple[str, ...]) -> None:
    draft = draft_spec(text, file="t.yaml", assignments=assignments)
    plan_job(finish_draft(draft, KUBERNETES), make_target(KUBERNETES, "kubernetes"))


def list_paths(text: str) -> list[str]:
    return [problem.path for problem in list_problems(text)]


def test_variables_fields_rules_and_lint_are_checked_in_one_pass():
    assert list_paths(SEVERAL) == [
        "name", "replicas", "batch_size", "comand", "resources.gpu", "nodes", "env.LOGLEVEL", "env.X", "elastic.min",
    ]  # fmt: skip


def test_python_reports_all_problems_in_one_pass():
    with pytest.raises(SpecError) as caught:
        JobSpec(name="Train", command="torchrun a.py", train={"model": "tiny-llama", "steps": 1}, nodes="four")
    paths = ["train", "train.steps", "name", "nodes", "train.data"]
    assert [problem.path for problem in caught.value.problems] == paths
    with pytest.raises(SpecError) as validated:
        JobSpec.model_validate({"name": "a", "command": "true", "train": {**TINY, "lr": "high"}})
    assert [problem.path for problem in validated.value.problems] == ["train", "train.lr"]


def test_problems_vanish_one_by_one_when_they_are_fixed():
    """A spec whose problems are all fixed as reported has no other problems."""
    fixed = (
        SEVERAL.replace("Train", "train").replace("replicas: 2\n", "").replace("batch_size: 8\n", "")
        .replace("comand", "command").replace("gpu: 8", "gpus: 8").replace("${N}", "3").replace("info", "INFO")
        .replace("true", '"true"').replace("min: 3, max: 2", "min: 2, max: 3")
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


def test_lint_runs_beside_a_missing_image():
    text = "name: train\ncommand: a\nenv: {LOGLEVEL: info}\n"
    assert sorted(list_paths(text)) == ["env.LOGLEVEL", "image"]


def test_problems_inside_a_misspelled_section_are_reported_where_they_are():
    problems = list_problems("name: train\nimage: a:1\ncommand: a\nresource: {gpus: 8, cpu: lots}\n")
    assert [(problem.path, problem.line, problem.column) for problem in problems] == [
        ("resource", 4, 1),
        ("resource.cpu", 4, 26),
    ]


def test_every_synonym_names_a_field_that_exists():
    for word, field in list_synonyms():
        path = parse_path(field)
        model = find_model(JobSpec, path[:-1]) if path else JobSpec
        assert not path or (model and path[-1] in model.model_fields), (word, field)


def test_every_synonym_suggests_its_field():
    for word, field in list_synonyms():
        roots = [("train",)] if field.startswith("train.") else [(), ("train",)]
        hints = [suggest_field((*root, word), JobSpec).hint for root in roots]
        is_field = word in JobSpec.model_fields or word in TrainSpec.model_fields
        assert is_field or not field or any(f"`{field}" in hint for hint in hints), (word, hints)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("batch_size", "train.micro_batch_size"),
        ("learning_rate", "train.lr"),
        ("learningRate", "train.lr"),
        ("epochs", "train.epochs"),
        ("max-steps", "train.max_steps"),
        ("gpus_per_node", "resources.gpus"),
        ("replicas", "nodes"),
        ("workers", "nodes"),
        ("script", "command"),
        ("arguments", "command"),
        ("workdir", "pod.working_dir"),
        ("nodeSelector", "scheduling.node_selector"),
        ("restartPolicy", "restarts.policy"),
        ("memory", "resources.memory"),
        ("ntasks-per-node", "processes_per_node"),
        ("train.num_train_epochs", "train.epochs"),
        ("train.learning_rate", "train.lr"),
        ("train.per_device_train_batch_size", "train.micro_batch_size"),
        ("train.gpus", "resources.gpus"),
        ("train.image", "image"),
        ("resources.gpu", "resources.gpus"),
        ("pod.workdir", "pod.working_dir"),
        ("elastic.max_restart", "elastic.max_restarts"),
        ("rendezvous.rdzv_id", "rendezvous.id"),
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
        (TrainSpec, TINY | {"gpus": 1}, "use `resources.gpus` of the job spec"),
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
    assert [problem.path for problem in caught.value.problems] == ["batch_size", "env.LOGLEVEL"]


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


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("metadata: {name: {{ .Values.name }}}", "this is a Helm template, not a job spec"),
        ("image: {{ .Values.image }}", "this is a Helm template, not a job spec"),
        ("{{- if .Values.x }}", "this is a Helm template, not a job spec"),
        ("image: {{ image }}", "this is a Jinja or Go template, not a job spec"),
        ("{% if x %}", "this is a Jinja template, not a job spec"),
    ],
)
def test_template_of_another_language_is_one_error(line, title):
    (problem,) = list_problems(f"name: a\n{line}\nnodes: 2\n")
    assert (problem.title, problem.line) == (title, 2)


def test_text_of_another_language_hides_no_error_of_another_line():
    problems = list_problems("name: a\nimage: a:1\ncommand: [docker, inspect, '{{.State}}']\nnodes: {}: 1\n")
    assert [problem.line for problem in problems] == [4]


def test_a_field_of_the_trainer_beside_a_command_is_an_argument_of_the_program():
    (problem,) = list_problems("name: train\nimage: a:1\ncommand: python train.py\nbatch_size: 8\n")
    assert problem.title == "unknown field `batch_size`"
    assert problem.hint == "it is an argument of the program: add it to `command`, as the program spells it"


@pytest.mark.parametrize("fields", ["", "model: tiny-llama\ndata: synthetic\nmax_steps: 1\n", "data: synthetic\nepochs: 1\n"])
def test_fields_of_train_that_are_not_indented_are_one_problem(fields):
    problem = list_problems(f"name: train\nimage: a:1\ntrain:\n{fields}")[0]
    assert (problem.title, problem.line) == ("`train` is empty", 3)
    assert problem.hint == "indent the lines below it, which are its fields"
    assert not any(
        "neither" in other.title or "unknown" in other.title for other in list_problems(f"name: a\ntrain:\n{fields}")
    )


@pytest.mark.parametrize(
    ("train", "paths"),
    [
        ("{model: tiny-llama, data: synthetic, max_steps: 1}", ["train"]),
        ("{model: tiny-llama, data: synthetic, lr: high, max_stepss: 1}", ["train", "train.lr", "train.max_stepss"]),
        ("{}", ["train", "train.model", "train.data", "train"]),
        ("yes", ["train", "train"]),
    ],
)
def test_command_beside_train_hides_no_problem(train, paths):
    text = f"name: t\nimage: a:1\ncommand: python t.py\nnodes: 0\ntrain: {train}\n"
    problems = list_problems(text)
    assert [problem.path for problem in problems] == ["nodes", *paths]
    assert [problem.title for problem in problems].count("a job has either `command` or `train`, not both") == 1


def test_problems_of_command_are_reported_beside_train():
    problems = list_problems("name: t\nimage: a:1\ncommand: cd a && b\ntrain: {model: tiny-llama, data: synthetic}\n")
    assert [problem.path for problem in problems] == ["command", "train", "train"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resources.gpus", "write `resources: {gpus: …}`"),
        ("train.max_steps", "write `train: {max_steps: …}`"),
        ("pod.working_dir", "write `pod: {working_dir: …}`"),
        ("resources.gpu", None),
    ],
)
def test_the_path_of_a_field_in_place_of_a_name_is_a_section(name, hint):
    suggested = suggest_field((name,), JobSpec).hint
    assert suggested == hint if hint else "{" not in suggested


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ("command: cd src && torchrun a.py --lr ${LR}\n", ["command", "command"]),
        ("command: ['torchrun', '--master_port=2', 'a.py', '--lr', '${LR}']\n", ["command.4", "command"]),
        ("command: torchrun a.py --lr ${LR} --x 'a\n", ["command", "command"]),
        ("command: torchrun --master_port=2 a.py --lr ${LR}\n", ["command", "command"]),
        ("command: torchrun --master_port=${P} a.py\n", ["command"]),
        ("command: torchrun ${SCRIPT}\nnodes: ${N}\n", ["command", "nodes"]),
        ("command: torchrun a.py\nhub_token: ${A}\nresources: {memory: '${M}Gi'}\n", ["hub_token", "resources.memory"]),
        ("command: torchrun a.py\nenv: {A b: '${A}'}\n", ["env.A b", "env.A b"]),
    ],
)
def test_field_with_a_missing_variable_is_checked_where_its_value_does_not_matter(fields, paths):
    assert list_paths(f"name: a\nimage: a:1\n{fields}") == paths


def test_hint_quotes_the_reference_to_a_missing_variable():
    (missing, shell) = list_problems("name: a\nimage: a:1\ncommand: cd src && torchrun a.py --lr ${LR}\n")
    assert missing.title == "`${LR}` has no value"
    assert shell.title == "the command needs a shell for `cd` and `&&`, and runs without one"
    assert shell.hint is not None
    assert shell.hint.endswith('["bash", "-c", "cd src && torchrun a.py --lr ${LR}"]`')
