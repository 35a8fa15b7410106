"""The project's own template gives the same object as an equal spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.objects import api_objects
from kfjob.plan import Context, resolve
from kfjob.source.env_file import parse_env_file
from kfjob.source.spec_text import load_spec
from kfjob.source.template.fill import render

FOLDER = Path(__file__).parent
MANIFESTS = FOLDER.parents[2] / "manifests"
TEMPLATE = (MANIFESTS / "fsdp.yaml-template").read_text()
ENV = dict(parse_env_file((MANIFESTS / "fsdp.env").read_text()).values)


def compile_both(**variables: str) -> list[JsonObject]:
    """Return the object of the template, and the object of the spec without the recorded spec."""
    values = ENV | variables
    (templated,) = render(TEMPLATE, values={"KFJOB_LAUNCH": "l1"} | values).objects
    spec = load_spec((FOLDER / "fsdp.yaml").read_text(), variables=values).spec
    compiled = compile_pytorchjob(resolve(spec, Context(backend="kubernetes", launch="l1")))
    del compiled["metadata"]["annotations"], compiled["metadata"]["namespace"]
    del compiled["metadata"]["labels"][api_objects.LABEL_SPEC_HASH]
    for job in (templated, compiled):  # no variable names another one, so their order has no meaning
        (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["env"].sort(key=lambda variable: variable["name"])
    return [templated, compiled]


@pytest.mark.parametrize(
    "variables",
    [{}, {"JOB_NAME": "llama2", "NUM_NODES": "2", "CLAIM": "lustre"}, {"INSTANCE_TYPE": "p4de.24xlarge"}],
    ids=range(3),
)
def test_template_and_spec_compile_to_the_same_object(variables):
    templated, compiled = compile_both(**variables)
    assert templated == compiled


def test_variables_without_a_value_are_an_error():
    with pytest.raises(SpecError) as error:
        render(TEMPLATE, values={"FI_PROVIDER": ""})
    missing = {problem.title.partition("`${")[2].partition("}")[0] for problem in error.value.problems}
    assert missing == {"IMAGE_URI", "INSTANCE_TYPE", "NUM_NODES", "GPU_PER_NODE", "EFA_PER_NODE"}
