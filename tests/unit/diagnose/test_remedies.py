"""Remedies name fields of the spec: each of them is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import pytest
from pydantic import BaseModel

from kfjob.observe.diagnose.rules import RULES
from kfjob.spec.job import JobSpec

FIELD = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)(?::[^`]*)?`")


def fields(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield before + name
        inside = [field.annotation]
        while inside:
            one = inside.pop()
            if isinstance(one, type) and issubclass(one, BaseModel):
                yield from fields(one, f"{before}{name}.")
            inside += get_args(one)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_fields_of_the_spec_exist(rule):
    known = set(fields(JobSpec))
    said = {name for name in FIELD.findall(f"{rule.cause} {rule.remedy}") if not name.startswith("torch.")}
    assert said <= known


def test_some_remedies_name_fields():
    assert sum(bool(FIELD.search(rule.remedy)) for rule in RULES) >= 5
