"""The check of values against the schema of a CRD, and the data of the schemas."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from kfjob.objects.crd_schema import CrdSchema, load_definitions, load_pod_schema

FILES = {"kfjob.objects": "pod.json", "kfjob.kinds.pytorchjob": "pytorchjob.json"}
SCHEMA = CrdSchema(
    {
        "Job": {
            "type": "object",
            "required": ["pods"],
            "properties": {"pods": {"type": "array", "items": {"$ref": "Pod"}, "x-kubernetes-list-map-keys": ["name"]}},
        },
        "Pod": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "cpu": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9.]+$"},
                "port": {"type": "integer", "format": "int32"},
            },
        },
    }
)


def list_references(schema: Any) -> set[str]:
    nested = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = {schema["$ref"]} if isinstance(schema, dict) and isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(list_references, nested))


def test_pod_schema_knows_no_kind_of_jobs():
    text = resources.files("kfjob.objects").joinpath("data", FILES["kfjob.objects"]).read_text("utf-8")
    assert "pytorch" not in text.lower()
    assert list_references(json.loads(text)["definitions"]) <= load_pod_schema().definitions.keys()


def test_schema_of_a_kind_repeats_no_definition_of_the_pod_schema():
    pod, job = (load_definitions(package, file) for package, file in FILES.items())
    assert pod.keys().isdisjoint(job)
    assert list_references(job) <= pod.keys() | job.keys()
    texts = [json.dumps(definition) for definition in (pod | job).values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({}, (), "lacks `pods`"),
        ({"pods": [], "pod": []}, ("pod",), "is not known to Kubernetes, did you mean `pods`?"),
        ({"pods": {}}, ("pods",), "must be a list"),
        ({"pods": [{"name": "a"}, {"name": "a"}]}, ("pods", 1), "is a duplicate (same name)"),
        ({"pods": [{"port": 2**31}]}, ("pods", 0, "port"), "is out of range: `2147483648`"),
        ({"pods": [{"cpu": "many"}]}, ("pods", 0, "cpu"), "cannot be `many`"),
        ({"pods": [{"cpu": 0.5}]}, ("pods", 0, "cpu"), "must be text or a whole number"),
    ],
)
def test_problem_has_a_path_and_a_message(value, path, message):
    assert list(SCHEMA.find_problems(value, "Job")) == [(path, message)]


def test_path_of_a_schema_leads_through_lists():
    assert list(SCHEMA.find_problems("a", "Job.pods.0.port")) == [((), "must be a whole number")]


def test_override_may_lack_fields_and_remove_them():
    assert list(SCHEMA.find_override_problems({}, "Job")) == []
    assert list(SCHEMA.find_override_problems({"pods": None}, "Job")) == []
    assert [path for path, _ in SCHEMA.find_override_problems({"pods": [{"port": "a"}]}, "Job")] == [("pods", 0, "port")]


def test_fraction_of_a_quantity_becomes_text():
    assert SCHEMA.quote_fractions({"pods": [{"cpu": 0.5, "port": 0.5}]}, "Job") == {"pods": [{"cpu": "0.5", "port": 0.5}]}
