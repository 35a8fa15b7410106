"""TrainJobs as specs: those of kfjob come back as they were submitted, and those of others with a note for what is lost."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.api.planning import compile_spec
from kfjob.api.specs.imports import import_trainjob
from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.kinds.registry import find_kind
from kfjob.plan import Context
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_writer import write_yaml
from kfjob.spec.job import JobSpec
from tests.unit.changes import change, paths

GOLDENS = Path(__file__).parents[2] / "golden"
SPECS = [
    path for path in sorted((GOLDENS / "specs").glob("*.yaml")) if not (GOLDENS / "trainjobs" / f"{path.stem}.txt").exists()
]
CONTEXT = Context(backend="kubernetes", launch="20261121-083000-gold", name_pods=find_kind("TrainJob").name_hosts)
TRAINER = {
    "numNodes": 2,
    "image": "registry.example/train:1",
    "command": ["torchrun", "train.py"],
    "env": [{"name": "MODE", "value": "own"}],
    "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}},
}
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 3, "torch": {"numProcPerNode": 2}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "dataset-initializer", "template": {"spec": {"template": {"spec": {"containers": []}}}}},
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "template": {
                                    "spec": {
                                        "restartPolicy": "OnFailure",
                                        "nodeSelector": {"disk": "fast"},
                                        "containers": [
                                            {
                                                "name": "node",
                                                "image": "registry.example/runtime:1",
                                                "env": [{"name": "MODE", "value": "runtime"}, {"name": "LEVEL", "value": "2"}],
                                            }
                                        ],
                                    }
                                }
                            },
                        },
                    },
                ]
            }
        },
    },
}


def make_job(name: str = "train", trainer: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    fields = {"runtimeRef": {"name": "torch"}, "trainer": TRAINER if trainer is None else trainer, **spec}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": fields}


def convert(*objects: dict[str, Any]) -> Conversion:
    return import_trainjob(yaml.safe_dump_all(objects))


def list_items(conversion: Conversion) -> list[str]:
    return [note.item for note in conversion.notes]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_job_of_kfjob_is_the_spec_that_was_submitted(path: Path):
    loaded = load_spec(path.read_text())
    text = write_yaml(compile_spec(loaded.spec, loaded.positions, CONTEXT, find_kind("TrainJob"))[1])
    spec = JobSpec.model_validate(import_trainjob(text).spec)
    assert spec.target == "trainjob"
    job = next(item for item in yaml.safe_load_all(text) if item["kind"] == "TrainJob")
    recorded = JobSpec.model_validate_json(job["metadata"]["annotations"]["kfjob.dev/spec"])
    assert (spec.name, spec.image, spec.nodes) == (recorded.name, recorded.image, recorded.nodes)
    if "PET_RDZV_ENDPOINT" in text and recorded.master is None:  # a PyTorchJob of the others has a Master
        assert spec.model_copy(update={"target": None, "namespace": None}) == recorded.model_copy(
            update={"target": None, "namespace": None}
        )


def test_job_without_its_runtime_keeps_it_and_says_where_its_pods_are():
    conversion = convert(make_job())
    assert conversion.spec == {
        "name": "train",
        "nodes": 2,
        "image": "registry.example/train:1",
        "env": {"MODE": "own"},
        "resources": {"gpus": 4},
        "command": ["torchrun", "train.py"],
        "network_profile": "none",
        "processes_per_node": "auto",
        "restarts": {"max": 0},
        "target": "trainjob",
        "runtime": "torch",
    }
    (note,) = [note for note in conversion.notes if note.item.startswith("spec.runtimeRef")]
    assert "`kubectl get clustertrainingruntime torch -o yaml`" in note.reason


def test_job_of_kfjob_in_a_shared_runtime_is_the_spec_that_was_submitted():
    spec = {"name": "train", "image": "i:1", "nodes": 2, "command": ["torchrun", "train.py"]}
    spec |= {"target": "trainjob", "runtime": "trainingruntime/torch", "scheduling": {"node_selector": {"disk": "fast"}}}
    loaded = load_spec(yaml.safe_dump(spec))
    _, objects = compile_spec(loaded.spec, loaded.positions, CONTEXT, find_kind("TrainJob"))
    conversion = convert(*objects)
    assert conversion.spec == spec | {"namespace": "default"}
    assert list_items(conversion)[0] == "spec.runtimeRef.name: torch"
    for item in objects:
        del item["metadata"]["annotations"]
    read = convert(*objects).spec
    assert {field: read.get(field) for field in ("image", "scheduling", "runtime")} == {
        field: spec[field] for field in ("image", "scheduling", "runtime")
    }


def test_what_stands_around_the_pods_is_kept_or_named():
    runtime: Any = deepcopy(RUNTIME)
    runtime["spec"]["podGroupPolicy"] = {"volcano": {"networkTopology": {"mode": "hard"}}}
    jobs = runtime["spec"]["template"]["spec"]
    jobs |= {"failurePolicy": {"maxRestarts": 3}, "network": {"subdomain": "x"}}
    node = next(job for job in jobs["replicatedJobs"] if job["name"] == "node")["template"]["spec"]
    node |= {"backoffLimit": 4, "activeDeadlineSeconds": 60}
    conversion = convert(runtime, make_job())
    assert conversion.spec["run"]["backoff_limit"] == 4
    assert {
        *(
            "torch: template.spec.failurePolicy",
            "torch: template.spec.network",
            "torch: node.template.spec.activeDeadlineSeconds",
        ),
        "torch: podGroupPolicy.volcano.networkTopology",
    } <= set(list_items(conversion))


@pytest.mark.parametrize("name", ["PET_NNODES", "PET_MAX_RESTARTS", "PET_NPROC_PER_NODE"])
def test_a_number_of_any_length_is_a_spec_or_an_error(name: str):
    env = [{"name": name, "value": "9" * 5000}, {"name": "PET_RDZV_BACKEND", "value": "c10d"}]
    with suppress(SpecError):
        convert(RUNTIME, make_job(trainer={**TRAINER, "env": env}))


def test_runtime_gives_what_the_job_does_not_say():
    conversion = convert(RUNTIME, make_job(trainer={"env": TRAINER["env"], "command": ["torchrun", "train.py"]}))
    spec = conversion.spec
    assert (spec["image"], spec["nodes"], spec["processes_per_node"]) == ("registry.example/runtime:1", 3, 2)
    assert spec["env"] == {"LEVEL": "2", "MODE": "own"}
    assert spec["scheduling"] == {"node_selector": {"disk": "fast"}}
    assert spec["restarts"]["policy"] == "OnFailure"
    assert "torch: replicatedJobs[dataset-initializer]" in list_items(conversion)


def test_what_is_lost_is_named():
    job = make_job(
        trainer={**TRAINER, "newField": 1},
        initializer={"dataset": {"storageUri": "hf://a/b"}},
        runtimePatches=[{"manager": "a"}],
        managedBy="kueue.x-k8s.io/multikueue",
        laterField={"a": 1},
        suspend=True,
    )
    conversion = convert(job)
    assert {
        "spec.initializer", "spec.runtimePatches", "spec.managedBy", "spec.laterField", "spec.trainer.newField: 1",
    } <= set(list_items(conversion))  # fmt: skip
    assert conversion.spec["run"] == {"suspend": True}


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([make_job(trainer={"numNodes": 2})], "names no image: its runtime `torch` does"),
        ([RUNTIME], "this file has no TrainJob"),
        ([make_job(runtimeRef={"kind": "Other", "name": "a"})], "kfjob cannot read a runtime of the kind `Other`"),
        ([make_job(runtimeRef={"name": "Bad_Name"})], "`Bad_Name` is not the name of a runtime"),
        ([make_job(trainer=["x"])], "`trainer` of a TrainJob or its runtime must be a mapping"),  # type: ignore[arg-type]
        ([make_job(), make_job("other")], "this file has 2 TrainJobs: `train`, `other`"),
        ([make_job(trainer={**TRAINER, "numNodes": "many"})], "replicas"),
    ],
)
def test_job_that_cannot_be_read_is_an_error(objects: list[dict[str, Any]], words: str):
    with pytest.raises(SpecError) as caught:
        convert(*objects)
    assert words in str(caught.value)


@pytest.mark.parametrize("bad", [3, [3]], ids=str)
def test_any_value_at_any_place_is_a_spec_or_an_error(bad: Any):
    original = [RUNTIME, make_job()]
    for path in [path for path in paths(original) if path]:
        objects = change(original, path, bad)
        with suppress(SpecError):
            convert(*[item if isinstance(item, dict) else {"kind": str(item)} for item in objects])
