"""Errors of specs that are built in Python: the same words as for a spec file."""

from __future__ import annotations

import json

import pytest

from kfjob import ImageSpec, JobSpec, Resources, TrainSpec
from kfjob.base.errors import SpecError
from kfjob.spec.pod import Pod
from kfjob.spec.rendezvous import Rendezvous
from kfjob.trainspec.model_shapes import ModelShape

TRAIN = {"model": "tiny-llama", "data": "synthetic", "max_steps": 1}


def list_problems(build, *arguments: object, **fields):
    with pytest.raises(SpecError) as caught:
        build(*arguments, **fields)
    return [(problem.title, problem.path, problem.hint) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("model", "fields", "problem"),
    [
        (JobSpec, {"name": "a", "comand": "x"}, ("unknown field `comand`", "comand", "did you mean `command`?")),
        (Resources, {"gpu": 8}, ("unknown field `gpu`", "gpu", "use `gpus`")),
        (Resources, {"gpus": "many"}, ("`gpus` must be a whole number, not `many`", "gpus", None)),
        (
            Pod,
            {"grace": "1m30s"},
            ("`grace` must be a whole number, not `1m30s`", "grace", None),
        ),
        (
            Rendezvous,
            {"endpoint": "x", "backend": "etcd"},
            ("`x` is not `host:port`", "endpoint", "for example `etcd.default:2379`"),
        ),
        (ImageSpec, {"contxt": "."}, ("unknown field `contxt`", "contxt", "did you mean `context`?")),
        (ModelShape, {"hidden": 1}, ("unknown field `hidden`", "hidden", "did you mean `hidden_size`?")),
        (TrainSpec, TRAIN | {"max_step": 1}, ("unknown field `max_step`", "max_step", "did you mean `max_steps`?")),
        (TrainSpec, TRAIN | {"sed": 1}, ("unknown field `sed`", "sed", "did you mean `seed`?")),
    ],
)
def test_invalid_field_in_python_is_a_spec_error(model, fields, problem):
    assert problem in list_problems(model, **fields)
    assert problem in list_problems(model.model_validate, fields)


def test_every_problem_of_nested_parts_is_reported_at_once():
    fields = {"nodes": 0, "resources": {"gpu": 8}, "train": TRAIN | {"lr": -1}, "env": {"A": True}}
    titles = [title for title, _, _ in list_problems(JobSpec, name="a", **fields)]
    assert titles == [
        "`nodes` must be at least 1, not `0`",
        "unknown field `gpu`",
        "the text of the value `true` is ambiguous",
        "`train.lr` must be more than 0, not `-1`",
    ]


def test_json_that_is_not_json_is_a_spec_error():
    ((title, _, _),) = list_problems(JobSpec.model_validate_json, "{")
    assert title.startswith("the text is not valid JSON: ")


def test_copy_validates_the_updated_fields():
    spec = JobSpec(name="a", command="x")
    assert spec.model_copy(update={"nodes": 2, "command": "y z"}).command == ("y", "z")
    assert list_problems(spec.model_copy, update={"node": 2}) == [("unknown field `node`", "node", "did you mean `nodes`?")]
    assert list_problems(spec.model_copy, update={"nodes": 0}) == [("`nodes` must be at least 1, not `0`", "nodes", None)]


def test_copy_keeps_the_fields_that_were_set():
    spec = JobSpec(name="a", command="x", resources=Resources(gpus=1))
    copy = spec.model_copy(update={"nodes": 2})
    assert copy.model_fields_set == {"name", "command", "resources", "nodes"}
    assert copy.resources is spec.resources


def test_message_reads_like_one_of_a_file():
    fields = {"name": "a", "comand": "x", "command": "x"}
    with pytest.raises(SpecError) as caught:
        JobSpec(**fields)
    assert str(caught.value) == "error: unknown field `comand`\n  --> comand\nhint: did you mean `command`?"


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"name": "a", "comand": "x"}, "did you mean `command`?"),
        ({"nmae": "a", "command": "x"}, "did you mean `name`?"),
        ({"name": "a", "trian": TRAIN}, "did you mean `train`?"),
    ],
)
def test_a_misspelled_field_is_one_problem(fields, hint):
    with pytest.raises(SpecError) as error:
        JobSpec(**fields)
    assert [problem.hint for problem in error.value.problems] == [hint]


def test_a_job_without_a_program_and_with_another_unknown_field_has_two_problems():
    assert len(list_problems(JobSpec, name="a", nodez=2)) == 2


@pytest.mark.parametrize("character", ["\0", "\ud800"])
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"command": ["x", "a{}"]}, "command.1"),
        ({"env": {"A": "{}"}}, "env.A"),
        ({"labels": {"a": "b{}"}}, "labels.a"),
        ({"overrides": {"metadata": {"annotations": {"a{}": "b"}}}}, "overrides.metadata.annotations"),
        ({"overrides": {"metadata": {"annotations": {"a": "{}"}}}}, "overrides.metadata.annotations.a"),
        ({"command": None, "train": {"model": "tiny-llama", "data": "/a{}", "max_steps": 1}}, "train.data"),
    ],
)
def test_a_text_that_nothing_can_hold_is_refused(fields, path, character):
    fields = {"name": "a", "command": "x"} | json.loads(json.dumps(fields).replace("{}", json.dumps(character)[1:-1]))
    for build in (lambda: JobSpec(**fields), lambda: JobSpec.model_validate(fields)):
        with pytest.raises(SpecError) as error:
            build()
        assert path in [problem.path for problem in error.value.problems]
        str(error.value).encode()
