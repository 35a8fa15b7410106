"""Every spec in specs/ against the manifests that it compiled to when somebody last looked at them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.api.specs.sdk import to_model
from kfjob.compile.pytorchjob import manifests, pytorchjob
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec import api_objects
from kfjob.spec.source import load_spec

HERE = Path(__file__).parent
SPECS = sorted((HERE / "specs").glob("*.yaml"))
CONTEXT = Context(backend="kubernetes", launch="20261121-083000-gold", namespace="default")


def planned(spec: Path) -> JobPlan:
    return resolve(load_spec(spec.read_text(encoding="utf-8"), file=spec.name).spec, CONTEXT)


def compiled(spec: Path) -> list[dict[str, Any]]:
    return manifests(planned(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_manifests_are_the_ones_that_were_looked_at(spec, update_goldens):
    text = yaml.safe_dump_all(compiled(spec), sort_keys=False, width=120)
    golden = HERE / "manifests" / spec.name
    if update_goldens:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_compiling_twice_gives_the_same_bytes(spec):
    assert json.dumps(compiled(spec)) == json.dumps(compiled(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's generated models
def test_round_trip_through_the_kubeflow_training_models_loses_nothing(spec):
    from kubeflow.training.api_client import ApiClient

    manifest = pytorchjob(planned(spec))
    assert ApiClient().sanitize_for_serialization(to_model(manifest)) == manifest


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_label_keys_are_those_of_the_sdk():
    from kubeflow.training.constants import constants

    assert api_objects.LABEL_JOB_NAME == constants.JOB_NAME_LABEL
    assert api_objects.LABEL_REPLICA_TYPE == constants.REPLICA_TYPE_LABEL
    assert api_objects.LABEL_REPLICA_INDEX == constants.REPLICA_INDEX_LABEL
    assert api_objects.PYTORCHJOB_API_VERSION == constants.API_VERSION
    assert api_objects.PYTORCHJOB == constants.PYTORCHJOB_KIND
    assert api_objects.PYTORCHJOBS == constants.PYTORCHJOB_PLURAL


def test_every_golden_has_a_spec():
    assert {p.name for p in (HERE / "manifests").glob("*.yaml")} == {p.name for p in SPECS}
