from __future__ import annotations

import itertools

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfjob.errors import Problem, SpecError
from kfjob.spec.migrate import migrate
from kfjob.spec.source import load_spec, parse_yaml

GOOD = "name: train\nimage: a:1\ncommand: torchrun train.py\n"


def problems(text: str):
    with pytest.raises(SpecError) as caught:
        load_spec(text, file="t.yaml")
    return caught.value.problems


def faults(text: str) -> tuple[Problem, ...]:
    """What is wrong with any text; nothing but a SpecError may come out of it."""
    try:
        load_spec(text, file="t.yaml")
    except SpecError as err:
        return err.problems or (Problem(title=""),)
    return ()


def test_a_line_of_command_is_split_into_words():
    assert load_spec(GOOD + "nodes: 2\n").spec.command == ("torchrun", "train.py")


def test_rendezvous_may_be_one_word():
    assert load_spec(GOOD + "rendezvous: etcd-v2\n").spec.rendezvous.backend == "etcd-v2"


def test_numbers_of_the_environment_become_text():
    assert load_spec(GOOD + "env: {A: 1, B: 0.5, C: x}\n").spec.env == {"A": "1", "B": "0.5", "C": "x"}


def test_every_problem_is_named_once_in_the_order_of_the_file():
    found = problems("name: -x\nimage: a\nnodes: 0\ncommand: a\nenv: {A: true}\nresources: {cpu: lots}\n")
    assert [(p.line, p.path) for p in found] == [(1, "name"), (3, "nodes"), (5, "env.A"), (6, "resources.cpu")]


def test_merge_keys_are_understood():
    text = GOOD + "env: &e {A: x}\nannotations: {<<: *e, B: y}\n"
    assert load_spec(text).spec.annotations == {"A": "x", "B": "y"}


def test_a_dictionary_in_the_place_of_text_is_one_problem():
    (problem,) = problems(GOOD.replace("a:1", "{a: 1}"))
    assert problem.title == "`image` must be text, not a mapping"
    assert (problem.line, problem.column) == (2, 8)


def test_json_is_yaml():
    assert load_spec('{"name": "train", "image": "a", "command": ["x"]}').spec.name == "train"


@pytest.mark.parametrize(
    "text", ["a: b: c", "\t- x", "a: !!python/object:os.system {}", "\x00", "%YAML 9.9\n---\na: 1", "a: *b"]
)
def test_what_is_no_yaml_gives_one_clear_problem(text):
    (problem,) = problems(text)
    assert problem.title == "this is not valid YAML"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, GOOD + "overrides: " + "{a: " * 200 + "1" + "}" * 200]
)
def test_what_is_nested_too_deeply_does_not_crash_the_process(text):
    (problem,) = problems(text)
    assert problem.title == "this is nested too deeply"
    assert problem.line


NINE = ",".join("*{0}" for _ in range(9))


@pytest.mark.parametrize(
    ("first", "next_one"),
    [("a: &a [x]\n", "{1}: &{1} [" + NINE + "]\n"), ("a: &a {{k: 1}}\n", "{1}: &{1} {{<<: [" + NINE + "]}}\n")],
)
def test_a_few_aliases_cannot_fill_the_memory(first, next_one):
    bomb = first.format() + "".join(next_one.format(*pair) for pair in itertools.pairwise("abcdefghijkl"))
    (problem,) = problems(bomb)
    assert problem.title == "the aliases of this file make it too large"


def test_names_in_braces_become_their_values_typed_again():
    text = GOOD + "nodes: ${NODES}\nenv: {A: '${NODES}', B: '${HOST:-here}', C: '$NODES ${HOSTNAME}', D: '$${NODES}'}\n"
    spec = load_spec(text, variables={"NODES": "4"}).spec
    assert spec.nodes == 4
    assert spec.env == {"A": "4", "B": "here", "C": "$NODES ${HOSTNAME}", "D": "${NODES}"}


@given(st.text(min_size=1).filter(str.isprintable))
def test_a_value_never_changes_the_structure_around_it(value):
    spec = load_spec(GOOD + "env:\n  A: '${VALUE}'\n  B: b\n", variables={"VALUE": value}).spec
    assert spec.env == {"A": value, "B": "b"}


def test_all_names_without_a_value_are_one_error_with_all_places():
    with pytest.raises(SpecError) as caught:
        load_spec(GOOD + "nodes: ${N}\nenv: {A: '${N}', B: '${EMPTY}'}\n", file="t.yaml", variables={"EMPTY": ""})
    first, second = caught.value.problems
    assert (first.title, first.location(), first.detail) == (
        "`${N}` has no value: nobody gave it",
        "t.yaml:4:8 (nodes)",
        "also at 5:10",
    )
    assert second.title == "`${EMPTY}` has no value: it was given, but is empty"


def test_a_newer_schema_is_refused_with_what_is_needed():
    (problem,) = problems("version: 7\n" + GOOD)
    assert problem.title == "this spec is of schema version 7, and this kfjob knows versions up to 1"
    assert (problem.line, problem.column) == (1, 10)


def test_older_schemas_are_brought_up_to_date_step_by_step():
    steps = {1: lambda data: {**data, "name": data["title"]}, 2: lambda data: {k: v for k, v in data.items() if k != "title"}}
    assert migrate({"version": 1, "title": "a"}, current=3, steps=steps) == {"version": 3, "name": "a"}
    with pytest.raises(SpecError, match="there is no schema version 0"):
        migrate({"version": 0}, current=3, steps=steps)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        "version",
        "name",
        "namespace",
        "image",
        "nodes",
        "processes_per_node",
        "resources",
        "rendezvous",
        "env",
        "volumes",
        "restarts",
        "labels",
        "command",
        "train",
    ]
)


@given(st.dictionaries(fields, json_values, max_size=6))
def test_any_values_give_a_spec_or_problems_with_places(data):
    for problem in faults(yaml.safe_dump(data)):
        assert problem.line
        assert problem.column


@given(st.text(max_size=60))
def test_any_text_gives_a_spec_or_problems(text):
    assert all(problem.title for problem in faults(text))


def test_positions_of_values_and_keys():
    _, positions = parse_yaml("a:\n  - b: 1\n    c: 2\n", file="f")
    assert positions.keys["a", 0, "c"] == (3, 5)
    assert positions.values["a", 0, "c"] == (3, 8)


def test_assignments_are_put_over_what_the_text_says():
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


def test_a_fault_of_an_assignment_is_put_to_the_assignment():
    with pytest.raises(SpecError) as caught:
        load_spec(GOOD, assignments=["nodes=many", "colour=red", "name.x=3", "novalue"])
    assert {p.location() for p in caught.value.problems} == {
        "--set name.x=3 (name.x)",
        "--set novalue",
        "--set nodes=many (nodes)",
        "--set colour=red (colour)",
    }
