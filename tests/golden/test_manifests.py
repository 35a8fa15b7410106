"""Every spec in specs/ compiles to the manifests in manifests/."""

import json
import re
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
from kfjob.plan.agent import operator_environment
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_writer import write_yaml

HERE = Path(__file__).parent
SPECS = sorted((HERE / "specs").glob("*.yaml"))
TRAINJOBS = (  # one for each structure; the others differ only in what the pods of the PyTorchJob have too
    *("smallest", "everything", "fields", "pod", "accelerate", "python", "master-worker", "own-etcd", "shared-etcd-login"),
    *("gang-plugins-all", "gang-volcano-queue", "p5-trainer"),
)
CONTEXT = Context(backend="kubernetes", launch="20261121-083000-gold", namespace="default")


def make_plan(spec: Path) -> JobPlan:
    return resolve(load_spec(spec.read_text(encoding="utf-8"), file=spec.name).spec, CONTEXT)


def compile_spec(spec: Path) -> list[JsonObject]:
    return compile_manifests(make_plan(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_manifests_match_the_golden(spec, check_golden):
    check_golden(HERE / "manifests" / spec.name, write_yaml(compile_spec(spec)))


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


@pytest.mark.parametrize("spec", [HERE / "specs" / f"{name}.yaml" for name in TRAINJOBS], ids=lambda p: p.stem)
def test_trainjob_matches_the_golden(spec, check_golden):
    check_golden(HERE / "trainjobs" / spec.name, write_yaml(compile_trainjob(spec)[1]))


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_trainjob_has_the_pods_of_the_pytorchjob_or_a_named_refusal(spec, check_golden):
    try:
        plan, (runtime, job, *etcd) = compile_trainjob(spec)
    except SpecError as err:
        check_golden(HERE / "trainjobs" / spec.with_suffix(".txt").name, "\n".join(format_problems(err)) + "\n")
        return
    original = make_plan(spec)
    hosts = dict(zip(original.pods, plan.pods, strict=True))

    def rename(value):
        return json.loads(re.sub(r"[\w-]+", lambda word: hosts.get(word[0], word[0]), json.dumps(value)))

    pytorchjob, *own_etcd = compile_manifests(original)
    assert etcd == rename(own_etcd)
    assert job["metadata"] == rename(pytorchjob["metadata"])
    worker = rename(next(iter(pytorchjob["spec"]["pytorchReplicaSpecs"].values())))
    template = worker["template"]
    (container,) = template["spec"]["containers"]
    trainer = job["spec"]["trainer"] | {"resources": job["spec"]["trainer"].get("resourcesPerNode")}
    outside = {field: container.pop(field, None) for field in ("image", "command", "args", "resources")}
    assert outside == {field: trainer.get(field) for field in outside}
    own, operators = container.pop("env"), rename(operator_environment(original))
    added = trainer["env"][len(own) :]
    assert trainer["env"] == own + added
    assert [entry["name"] for entry in added] == list(operators)
    assert all(entry.get("value") == operators[entry["name"]] for entry in added if "RANK" not in entry["name"])
    pods = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    container["name"] = "node"
    policy = {"restartPolicy": worker["restartPolicy"]}
    if plan.scheduling.gang:
        policy["schedulerName"] = pods["spec"]["schedulerName"]
    assert pods == template | {"spec": template["spec"] | policy}


def compile_trainjob(spec: Path) -> tuple[JobPlan, list[JsonObject]]:
    loaded, kind = load_spec(spec.read_text(encoding="utf-8"), file=spec.name), find_kind("TrainJob")
    return compile_job(loaded.spec, loaded.positions, replace(CONTEXT, name_pods=kind.name_hosts), kind)


def format_problems(err: SpecError) -> Iterator[str]:
    for problem in err.problems:
        assert problem.path
        assert problem.hint
        yield from problem.lines()


def test_every_golden_has_a_spec():
    assert {p.name for p in (HERE / "manifests").glob("*.yaml")} == {p.name for p in SPECS}
    assert {p.stem for p in (HERE / "trainjobs").glob("*.yaml")} == set(TRAINJOBS)
    assert {p.stem for p in (HERE / "trainjobs").glob("*.txt")} <= {p.stem for p in SPECS}
