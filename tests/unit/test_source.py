"""Loading a job spec from text."""

from __future__ import annotations

import itertools

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import Problem, SpecError
from kfjob.source.spec_text import load_spec, parse_yaml
from kfjob.spec.job import JobSpec

GOOD = "name: train\nimage: a:1\ncommand: torchrun train.py\n"


def find_problems(text: str):
    with pytest.raises(SpecError) as caught:
        load_spec(text, file="t.yaml")
    return caught.value.problems


def find_problems_of_any_text(text: str) -> tuple[Problem, ...]:
    """Return the problems of a text; a SpecError is the only exception that may occur."""
    try:
        load_spec(text, file="t.yaml")
    except SpecError as err:
        return err.problems or (Problem(title=""),)
    return ()


def test_numbers_in_env_become_text():
    assert load_spec(GOOD + "env: {A: 1, B: 0.5, C: x}\n").spec.env == {"A": "1", "B": "0.5", "C": "x"}


def test_merge_keys_work():
    text = GOOD + "env: &e {A: x}\nannotations: {<<: *e, B: y}\n"
    assert load_spec(text).spec.annotations == {"A": "x", "B": "y"}


def test_a_name_with_a_backslash_is_quoted_as_it_is():
    titles = [problem.title for problem in find_problems(GOOD + "labels: {'\\2': null}\n")]
    assert r"`labels.\2` must be text, not empty" in titles


def test_mapping_instead_of_text_is_one_problem():
    (problem,) = find_problems(GOOD.replace("a:1", "{a: 1}"))
    assert problem.title == "`image` must be text, not a mapping"
    assert (problem.line, problem.column) == (2, 8)


@pytest.mark.parametrize(
    "text", ["a: b: c", "\t- x", "a: !!python/object:os.system {}", "\x00", "%YAML 9.9\n---\na: 1", "a: *b"]
)
def test_invalid_yaml_is_one_problem(text):
    (problem,) = find_problems(text)
    assert problem.title.startswith("invalid YAML")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, GOOD + "overrides: " + "{a: " * 200 + "1" + "}" * 200]
)
def test_deep_nesting_does_not_crash_the_process(text):
    (problem,) = find_problems(text)
    assert problem.title == "the YAML is nested too deeply"
    assert problem.line


NINE = ",".join("*{0}" for _ in range(9))


@pytest.mark.parametrize(
    ("first", "next_one"),
    [("a: &a [x]\n", "{1}: &{1} [" + NINE + "]\n"), ("a: &a {{k: 1}}\n", "{1}: &{1} {{<<: [" + NINE + "]}}\n")],
)
def test_a_few_aliases_cannot_fill_the_memory(first, next_one):
    bomb = first.format() + "".join(next_one.format(*pair) for pair in itertools.pairwise("abcdefghijkl"))
    (problem,) = find_problems(bomb)
    assert problem.title == "the text has too many values, counted with its aliases expanded"


def test_references_are_replaced_and_typed_again():
    text = GOOD + "nodes: ${NODES}\nenv: {A: '${NODES}', B: '${HOST:-here}', C: '$NODES ${HOSTNAME}', D: '$${NODES}'}\n"
    spec = load_spec(text, variables={"NODES": "4"}).spec
    assert spec.nodes == 4
    assert spec.env == {"A": "4", "B": "here", "C": "$NODES ${HOSTNAME}", "D": "${NODES}"}


@given(st.text(min_size=1).filter(str.isprintable))
def test_value_of_a_reference_cannot_change_the_structure(value):
    spec = load_spec(GOOD + "env:\n  A: '${VALUE}'\n  B: b\n", variables={"VALUE": value}).spec
    assert spec.env == {"A": value, "B": "b"}


def test_references_without_a_value_are_one_error_with_all_positions():
    with pytest.raises(SpecError) as caught:
        load_spec(
            GOOD + "nodes: ${N}\nenv: {A: '${N}', B: '${EMPTY}'}\nservice_account: ${EMPTY}\n",
            file="t.yaml",
            variables={"EMPTY": ""},
        )
    first, second = caught.value.problems
    assert (first.title, first.location(), first.detail) == (
        "`${N}` has no value",
        "t.yaml:4:8 (nodes)",
        "also at 5:10",
    )
    assert second.title == "`${EMPTY}` has an empty value, and this field needs one"


def test_newer_schema_version_is_an_error():
    (problem,) = find_problems("version: 7\n" + GOOD)
    assert problem.title == "the spec has schema version 7, but this kfjob supports versions up to 1"
    assert (problem.line, problem.column) == (1, 10)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(sorted(JobSpec.model_fields))


@given(st.dictionaries(fields, json_values, max_size=6))
def test_any_values_give_a_spec_or_problems_with_positions(data):
    for problem in find_problems_of_any_text(yaml.safe_dump(data)):
        assert problem.line
        assert problem.column


@given(st.text(max_size=60))
def test_any_text_gives_a_spec_or_problems(text):
    assert all(problem.title for problem in find_problems_of_any_text(text))


def test_positions_of_values_and_keys():
    _, positions = parse_yaml("a:\n  - b: 1\n    c: 2\n", file="f")
    assert positions.keys["a", 0, "c"] == (3, 5)
    assert positions.values["a", 0, "c"] == (3, 8)


def test_assignments_override_the_text():
    text = GOOD + "volumes: [{name: a, mount_path: /a, pvc: a}]\n"
    assignments = [
        "nodes=4",
        "volumes.0.pvc=other",
        "volumes.1={name: b, mount_path: /b, empty_dir: true}",
        "env.A=1",
        "image=b:2",
    ]
    spec = load_spec(text, assignments=assignments).spec
    assert (spec.nodes, spec.image, spec.env) == (4, "b:2", {"A": "1"})
    assert [(v.name, v.pvc) for v in spec.volumes] == [("a", "other"), ("b", None)]


def test_problem_of_an_assignment_names_the_assignment():
    with pytest.raises(SpecError) as caught:
        load_spec(GOOD, assignments=["nodes=many", "colour=red", "name.x=3", "novalue"])
    assert {p.location() for p in caught.value.problems} == {
        "--set name.x=3 (name.x)",
        "--set novalue",
        "--set nodes=many (nodes)",
        "--set colour=red (colour)",
    }


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: sagemaker.amazonaws.com/v1\nkind: HyperPodPyTorchJob\nmetadata: {name: x}\n",
        "apiVersion: w/v1\nkind: AppWrapper\nspec: {components: [{template: {kind: PyTorchJob}}]}\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: |\n    kind: PyTorchJob\n",
        "apiVersion: v1\nkind: A\n---\napiVersion: sagemaker.amazonaws.com/v1\nkind: HyperPodPyTorchJob\n",
    ],
)
def test_an_object_that_may_hold_a_job_names_the_import(text):
    with pytest.raises(SpecError) as caught:
        load_spec(text, file="hp.yaml")
    assert "`kfjob import pytorchjob hp.yaml`" in (caught.value.problems[0].hint or "")
