"""The model of a whole job spec, for hints that name the fields of other sections.

The trainer knows the `train` section only. It must not import the whole spec, which would load the client of Kubernetes.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

_Model = TypeVar("_Model", bound=type[BaseModel])
_MODELS: list[type[BaseModel]] = []


def root_model(model: _Model) -> _Model:
    """Mark a class as the model of a whole job spec."""
    _MODELS[:] = [model]
    return model


def find_root_model() -> type[BaseModel] | None:
    """Return the model of a whole job spec; None in a program that has not imported it."""
    return _MODELS[0] if _MODELS else None
