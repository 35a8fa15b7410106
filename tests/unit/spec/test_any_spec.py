"""Whatever stands in a spec: manifests that the operator's CRD takes, or problems with their places; never a traceback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfjob.api.specs.render import resolve_at
from kfjob.compile.pytorchjob import compile_manifests
from kfjob.errors import Problem, SpecError
from kfjob.lint.check import lint
from kfjob.plan import Context
from kfjob.spec import pytorchjob_schema
from kfjob.spec.job import JobSpec
from kfjob.spec.source import load_spec

CONTEXT = Context(backend="kubernetes", launch="l1")
SPECS = sorted((Path(__file__).parents[2] / "golden" / "specs").glob("*.yaml"))
SCHEMA = JobSpec.model_json_schema()

WORDS = st.sampled_from(
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
RAW: dict[str, st.SearchStrategy[Any]] = {
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


def values(schema: dict[str, Any], name: str = "") -> st.SearchStrategy[Any]:  # noqa: PLR0911 - a case for each kind of schema
    """What a JSON Schema describes, and now and then something else."""
    if name in RAW:
        return RAW[name]
    if "$ref" in schema:
        return values(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], name)
    if "anyOf" in schema:
        return st.one_of(*[values(each, name) for each in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    if "properties" in schema:
        fields = {key: values(inner, key) for key, inner in schema["properties"].items()}
        required = {key: fields.pop(key) for key in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=fields)
    kind = schema.get("type")
    if kind == "object":
        inner = schema.get("additionalProperties")
        return st.dictionaries(WORDS, values(inner) if isinstance(inner, dict) else WORDS, max_size=2)
    if kind == "array":
        return st.lists(values(schema.get("items", {})), max_size=2)
    scalars = {"integer": st.integers(-1, 9), "number": st.floats(0, 9), "boolean": st.booleans(), "null": st.none()}
    return scalars.get(kind or "", WORDS)


def outcome(text: str) -> tuple[Problem, ...]:
    """The problems of a text; nothing but a SpecError may come out of it, and what compiles must please the CRD."""
    try:
        loaded = load_spec(text, file="t.yaml")
        plan = resolve_at(loaded.spec, loaded.positions, CONTEXT)
    except SpecError as err:
        return err.problems
    job, *_ = compile_manifests(plan)
    lint(loaded.spec, plan)  # whatever it finds, it must not fail
    assert list(pytorchjob_schema.find_problems(job["spec"])) == []
    metadata = job["metadata"]
    assert all(isinstance(text, str) for text in (*metadata["labels"].values(), *metadata["annotations"].values()))
    return ()


FIELDS = {name: values(schema, name) for name, schema in SCHEMA["properties"].items() if name != "train"}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(sorted(FIELDS)).flatmap(lambda name: st.tuples(st.just(name), FIELDS[name])))
def test_any_one_field_gives_a_manifest_or_problems_with_places(given_field):
    name, value = given_field
    for problem in outcome(yaml.safe_dump(GOOD | {name: value})):
        assert problem.title
        assert problem.line, problem
        assert problem.column


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(st.sampled_from(sorted(FIELDS)), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({n: FIELDS[n] for n in names})
    )
)
def test_any_fields_together_give_a_manifest_or_problems_with_places(fields):
    for problem in outcome(yaml.safe_dump(GOOD | fields)):
        assert problem.line, problem


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_damaged_specs_give_no_traceback(seed):
    chance = random.Random(seed)  # noqa: S311 - the same texts every time
    texts = [path.read_text(encoding="utf-8") for path in SPECS]
    for _ in range(100):
        for problem in outcome(damaged(chance.choice(texts), chance)):
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


def damaged(text: str, chance: random.Random) -> str:
    """One to five edits that leave much of the text as it was."""
    for _ in range(chance.randint(1, 5)):
        at, length = chance.randrange(len(text) + 1), chance.randint(1, 12)
        piece = chance.choice([*PIECES, text[at : at + 40]])
        text = text[:at] + piece + text[at + chance.choice([0, length]) :]
    return text
