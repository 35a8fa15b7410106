"""A hint for an unknown instance type names a type that has the same hardware."""

from __future__ import annotations

import pytest

from kfjob.spec.instances import suggest_instance


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("p4d.24xlarg", "p4d.24xlarge"),
        ("ml.p6-b200.8xlarge", "p6-b200.48xlarge"),
        ("p7.8xlarge", None),
        ("m5d.4xlarge", "m5.4xlarge"),
        ("r5.2xlarge", None),
        ("nonsense", None),
    ],
)
def test_suggestion_is_of_the_same_generation(name: str, suggestion: str | None):
    assert suggest_instance(name) == suggestion
