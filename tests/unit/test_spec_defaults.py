"""Defaults and presets that are built without validation have the values that validation gives."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from kfjob.spec.job import JobSpec
from kfjob.trainspec.model_shapes import PRESETS, ModelShape

PARTS = {name: field.default for name, field in JobSpec.model_fields.items() if isinstance(field.default, BaseModel)}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_default_part_of_a_spec_is_valid(part: BaseModel):
    assert repr(part.__dict__) == repr(type(part)().__dict__)
    assert not part.model_fields_set


@pytest.mark.parametrize("shape", PRESETS.values(), ids=PRESETS)
def test_preset_is_valid(shape: ModelShape):
    validated = ModelShape.model_validate({name: getattr(shape, name) for name in shape.model_fields_set})
    assert repr(shape.__dict__) == repr(validated.__dict__)
