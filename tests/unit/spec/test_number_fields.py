"""Every field that takes a number takes its text too, because the value of `${NAME}` is a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec


def find_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from find_models(part)


def list_models() -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = []
    waiting: list[type[BaseModel]] = [JobSpec]
    while waiting:
        model = waiting.pop()
        if model not in models:
            models.append(model)
            waiting += [part for field in model.model_fields.values() for part in find_models(field.annotation)]
    return models


def list_number_fields() -> Iterator[tuple[type[BaseModel], str, int]]:
    for model in list_models():
        for name, field in model.model_fields.items():
            for number in (2, 256, 1):
                if get_origin(field.annotation) is not Literal and accepts(field, number):
                    yield model, name, number
                    break


def accepts(field: FieldInfo, value: object) -> bool:
    try:
        return type(validate(field, value)) in (int, float)
    except (ValidationError, TypeError):
        return False


def validate(field: FieldInfo, value: object) -> object:
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(kind).validate_python(value)


FIELDS = list(list_number_fields())


def test_fields_are_found():
    names = {f"{model.__name__}.{name}" for model, name, _ in FIELDS}
    assert {"JobSpec.nodes", "JobSpec.processes_per_node", "TrainSpec.max_steps", "TrainSpec.lr"} <= names


@pytest.mark.parametrize(("model", "name", "number"), FIELDS, ids=lambda part: getattr(part, "__name__", str(part)))
def test_number_as_text(model, name, number):
    field = model.model_fields[name]
    assert validate(field, str(number)) == validate(field, number)


def test_substituted_processes():
    text = "name: a\nimage: a:1\ncommand: a.py\nprocesses_per_node: ${P}\n"
    processes = load_spec(text, variables={"P": "4"}).spec.processes_per_node
    assert (processes, type(processes)) == (4, int)
