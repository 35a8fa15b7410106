"""Our own template: the same object as the spec that says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.compile.template import render
from kfjob.errors import SpecError
from kfjob.plan import Context, resolve
from kfjob.spec import api_objects
from kfjob.spec.env_file import parse_env_file
from kfjob.spec.source import load_spec

HERE = Path(__file__).parent
MANIFESTS = HERE.parents[2] / "manifests"
TEMPLATE = (MANIFESTS / "fsdp.yaml-template").read_text()
ENV = parse_env_file((MANIFESTS / "fsdp.env").read_text())


def both(**more: str) -> list[dict[str, Any]]:
    """The object of the template, and that of the spec, less what records the spec."""
    values = ENV | more
    (templated,) = render(TEMPLATE, values={"KFJOB_LAUNCH": "l1"} | values).objects
    spec = load_spec((HERE / "fsdp.yaml").read_text(), variables=values).spec
    compiled = compile_pytorchjob(resolve(spec, Context(backend="kubernetes", launch="l1")))
    del compiled["metadata"]["annotations"], compiled["metadata"]["namespace"]
    del compiled["metadata"]["labels"][api_objects.LABEL_SPEC_HASH]
    return [templated, compiled]


@pytest.mark.parametrize(
    "more", [{}, {"JOB_NAME": "llama2", "NUM_NODES": "2", "CLAIM": "lustre"}, {"INSTANCE_TYPE": "p4de.24xlarge"}], ids=range(3)
)
def test_template_and_spec_compile_to_the_same_object(more):
    templated, compiled = both(**more)
    assert templated == compiled


def test_every_variable_of_the_flow_is_asked_for():
    with pytest.raises(SpecError) as raised:
        render(TEMPLATE, values={"FI_PROVIDER": ""})
    missing = {problem.title.partition("`${")[2].partition("}")[0] for problem in raised.value.problems}
    assert missing == {"IMAGE_URI", "INSTANCE_TYPE", "NUM_NODES", "GPU_PER_NODE", "EFA_PER_NODE", "FI_PROVIDER"}
