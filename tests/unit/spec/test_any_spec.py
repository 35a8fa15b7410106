"""Any spec gives a manifest that the operator's CRD accepts, or problems with positions, and never a traceback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfjob.api.planning import resolve_spec
from kfjob.base.errors import Problem, SpecError
from kfjob.kinds.pytorchjob import schema as pytorchjob_schema
from kfjob.kinds.pytorchjob.manifest import compile_manifests
from kfjob.plan import Context
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec
from tests.pytorchjobs import lint

CONTEXT = Context(backend="kubernetes", launch="l1")
SPECS = sorted((Path(__file__).parents[2] / "golden" / "specs").glob("*.yaml"))
SCHEMA = JobSpec.model_json_schema()

TEXTS = st.sampled_from(
    [
        "a",
        "train-1",
        "x/y",
        "/data",
        "8Gi",
        "500m",
        "1h",
        "registry.example/a:1",
        "h:1",
        "p4d.24xlarge",
        "Bad_Name",
        "",
        "é",
        "${A:-b}",
    ]
)
FIELD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "overrides": st.sampled_from(
        [
            {"spec": {"runPolicy": {"suspend": True}}},
            {
                "spec": {
                    "pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "b", "image": "c"}]}}}}
                }
            },
            {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": None}}}},
            {
                "spec": {
                    "pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "b"}, {"image": "x"}]}}}}
                }
            },
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"labels": {"a": 1}}},
            {"metadata": {"name": "b"}},
            {"spec": [1]},
            {"status": {}},
        ]
    ),
    "affinity": st.sampled_from([{}, {"nodeAffinity": {}}, {"nodeAffinity": []}, {"x": 1}]),
    "sidecars": st.sampled_from([[{"name": "s", "image": "i"}], [{"image": "i"}], [{"name": "s"}, {"name": "s"}], [1]]),
}
GOOD: dict[str, Any] = {"name": "train", "image": "a:1", "command": ["torchrun", "train.py"]}


def make_values(schema: dict[str, Any], name: str = "") -> st.SearchStrategy[Any]:  # noqa: PLR0911 - a case for each kind of schema
    """Return a strategy for values that a JSON Schema describes, and sometimes for others."""
    if name in FIELD_VALUES:
        return FIELD_VALUES[name]
    if "$ref" in schema:
        return make_values(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], name)
    if "anyOf" in schema:
        return st.one_of(*[make_values(branch, name) for branch in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    if "properties" in schema:
        fields = {key: make_values(inner, key) for key, inner in schema["properties"].items()}
        required = {key: fields.pop(key) for key in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=fields)
    kind = schema.get("type")
    if kind == "object":
        inner = schema.get("additionalProperties")
        return st.dictionaries(TEXTS, make_values(inner) if isinstance(inner, dict) else TEXTS, max_size=2)
    if kind == "array":
        return st.lists(make_values(schema.get("items", {})), max_size=2)
    scalars = {"integer": st.integers(-1, 9), "number": st.floats(0, 9), "boolean": st.booleans(), "null": st.none()}
    return scalars.get(kind or "", TEXTS)


def find_problems(text: str) -> tuple[Problem, ...]:
    """Return the problems of a text. A SpecError is the only exception that may occur, and a manifest must fit the CRD."""
    try:
        loaded = load_spec(text, file="t.yaml")
        plan = resolve_spec(loaded.spec, loaded.positions, CONTEXT)
    except SpecError as err:
        return err.problems
    job, *_ = compile_manifests(plan)
    lint(loaded.spec, plan)  # must not raise
    assert list(pytorchjob_schema.find_problems(job["spec"])) == []
    metadata = job["metadata"]
    assert all(isinstance(text, str) for text in (*metadata["labels"].values(), *metadata["annotations"].values()))
    return ()


FIELDS = {name: make_values(schema, name) for name, schema in SCHEMA["properties"].items() if name != "train"}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(sorted(FIELDS)).flatmap(lambda name: st.tuples(st.just(name), FIELDS[name])))
def test_any_field_gives_a_manifest_or_problems_with_positions(field):
    name, value = field
    for problem in find_problems(yaml.safe_dump(GOOD | {name: value})):
        assert problem.title
        assert problem.line, problem
        assert problem.column


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(st.sampled_from(sorted(FIELDS)), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({n: FIELDS[n] for n in names})
    )
)
def test_any_fields_give_a_manifest_or_problems_with_positions(fields):
    for problem in find_problems(yaml.safe_dump(GOOD | fields)):
        assert problem.line, problem


@pytest.mark.parametrize("seed", range(10))
def test_damaged_specs_give_no_traceback(seed):
    generator = random.Random(seed)  # noqa: S311 - the same texts in every run
    texts = [path.read_text(encoding="utf-8") for path in SPECS]
    for _ in range(100):
        for problem in find_problems(damage_text(generator.choice(texts), generator)):
            assert problem.title


PIECES = [
    "",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
    ": ",
    "- ",
    "&a ",
    "*a",
    "<<: *a",
    "!!int ",
    "? ",
    "${X}",
    "null",
    "1e999",
    ".nan",
    "0x",
]
PIECES += ["~", "2001-01-01", "|", "\n", "\t", "\x00", "---\n"]


def damage_text(text: str, generator: random.Random) -> str:
    """Return the text with one to five edits."""
    for _ in range(generator.randint(1, 5)):
        start, length = generator.randrange(len(text) + 1), generator.randint(1, 12)
        piece = generator.choice([*PIECES, text[start : start + 40]])
        text = text[:start] + piece + text[start + generator.choice([0, length]) :]
    return text
