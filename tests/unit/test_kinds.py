"""A kind refuses what it cannot express of a spec."""

from __future__ import annotations

from typing import Any

import pytest

from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from tests.cluster.indexed_jobs import IndexedJob

SPEC: dict[str, Any] = {"name": "train", "image": "registry.example/train:1", "nodes": 2, "command": ["torchrun", "train.py"]}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({}, []),
        ({"overrides": {"metadata": {"labels": {"a": "b"}}}}, ["overrides"]),
        ({"run": {"clean_pods": "All"}}, ["run"]),
        ({"rendezvous": {"backend": "etcd-v2"}}, ["rendezvous"]),
        ({"rendezvous": {"backend": "static"}}, ["master"]),
    ],
)
def test_own_kind_refuses_what_it_lacks(fields: dict[str, Any], paths: list[str]):
    plan = resolve(JobSpec.model_validate(SPEC | fields), Context(backend="kubernetes", launch="20260101-000000-abcd"))
    assert [problem.path for problem in IndexedJob().find_plan_problems(plan)] == paths
