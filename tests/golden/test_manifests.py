"""Every spec in specs/ compiles to the manifests in manifests/."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kfjob.api.planning import compile_spec as compile_job
from kfjob.api.specs.sdk import to_model
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.manifest import compile_manifests, compile_pytorchjob
from kfjob.kinds.registry import find_kind
from kfjob.plan import Context, JobPlan, resolve
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_writer import write_yaml

HERE = Path(__file__).parent
SPECS = sorted((HERE / "specs").glob("*.yaml"))
CONTEXT = Context(backend="kubernetes", launch="20261121-083000-gold", namespace="default")


def make_plan(spec: Path) -> JobPlan:
    return resolve(load_spec(spec.read_text(encoding="utf-8"), file=spec.name).spec, CONTEXT)


def compile_spec(spec: Path) -> list[JsonObject]:
    return compile_manifests(make_plan(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_manifests_match_the_golden(spec, check_golden):
    check_golden(HERE / "manifests" / spec.name, write_yaml(compile_spec(spec)))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_compiling_twice_gives_the_same_bytes(spec):
    assert json.dumps(compile_spec(spec)) == json.dumps(compile_spec(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's generated models
def test_kubeflow_training_models_hold_every_field(spec):
    from kubeflow.training.api_client import ApiClient

    manifest = compile_pytorchjob(make_plan(spec))
    assert ApiClient().sanitize_for_serialization(to_model(manifest)) == manifest


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_label_keys_are_those_of_the_sdk():
    from kubeflow.training.constants import constants

    assert operator_api.LABEL_JOB_NAME == constants.JOB_NAME_LABEL
    assert operator_api.LABEL_REPLICA_TYPE == constants.REPLICA_TYPE_LABEL
    assert operator_api.LABEL_REPLICA_INDEX == constants.REPLICA_INDEX_LABEL
    assert operator_api.API_VERSION == constants.API_VERSION
    assert operator_api.KIND == constants.PYTORCHJOB_KIND
    assert operator_api.RESOURCE == constants.PYTORCHJOB_PLURAL


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_trainjob_or_its_named_refusal_matches_the_golden(spec, check_golden):
    loaded = load_spec(spec.read_text(encoding="utf-8"), file=spec.name)
    kind = find_kind("TrainJob")
    try:
        _, objects = compile_job(loaded.spec, loaded.positions, replace(CONTEXT, name_pods=kind.name_hosts), kind)
    except SpecError as err:
        check_golden(HERE / "trainjobs" / spec.with_suffix(".txt").name, "\n".join(format_problems(err)) + "\n")
    else:
        check_golden(HERE / "trainjobs" / spec.name, write_yaml(objects))


def format_problems(err: SpecError) -> Iterator[str]:
    for problem in err.problems:
        assert problem.path
        assert problem.hint
        yield from problem.lines()


def test_every_golden_has_a_spec():
    assert {p.name for p in (HERE / "manifests").glob("*.yaml")} == {p.name for p in SPECS}
    assert {p.stem for p in (HERE / "trainjobs").iterdir()} == {p.stem for p in SPECS}
