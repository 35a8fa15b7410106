"""`kfjob import … --to KIND`: the same job as another kind, with a note for each part that this kind cannot have."""

from pathlib import Path
from typing import Any

import pytest

from kfjob.api.planning import compile_spec
from kfjob.api.specs.imports import import_manifest
from kfjob.api.specs.kind_change import change_kind
from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.kinds.registry import find_kind
from kfjob.objects.differences import MISSING, differences, format_path
from kfjob.plan import Context
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_writer import write_yaml

GOLDENS = sorted((Path(__file__).parents[2] / "golden" / "manifests").glob("*.yaml"))
MINIMAL: dict[str, Any] = {"name": "train", "image": "i:1", "command": ["torchrun", "train.py"]}


def change(**fields: Any) -> tuple[dict[str, Any], list[str]]:
    changed = change_kind(Conversion(spec=MINIMAL | fields), "trainjob")
    return changed.spec, [str(note) for note in changed.notes]


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_every_manifest_becomes_a_trainjob_and_a_note_names_each_part_that_is_lost(golden: Path):
    conversion = import_manifest(golden.read_text(), file=golden.name)
    changed = change_kind(conversion, "trainjob")
    loaded, kind = load_spec(write_yaml([changed.spec])), find_kind("TrainJob")
    context = Context(backend="kubernetes", launch="20261121-083000-gold", name_pods=kind.name_hosts)
    _, objects = compile_spec(loaded.spec, loaded.positions, context, kind)
    assert "TrainJob" in {item["kind"] for item in objects}
    items = [note.item for note in changed.notes[len(conversion.notes) :]]
    for path in list_changed(conversion.spec, changed.spec):
        assert any(item.startswith(path) or path.startswith(f"{item}.") for item in items), path


def list_changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the paths of all values that the old spec has, and the new one has not, as the notes name them."""
    parts = (part for part in differences(old, new) if part.old is not MISSING and format_path(part.path) != "target")
    leaves = [leaf for part in parts for leaf in list_leaves(part.old, format_path(part.path))]
    same = {
        path
        for path, value in list_leaves(old.get("master") or {}, "master")
        if get(old, path.removeprefix("master.")) == value
    }
    return [path.removeprefix("overrides.") for path, _ in leaves if path not in same]


def list_leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        return [(path, value)]
    return [leaf for key, item in value.items() for leaf in list_leaves(item, f"{path}.{key}")]


def get(spec: dict[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def test_each_part_is_named_with_its_value_and_the_reason():
    spec, notes = change(run={"ttl": 3600, "deadline": 60}, restarts={"policy": "ExitCode", "max": 2})
    assert spec == MINIMAL | {"run": {"deadline": 60}, "restarts": {"max": 2, "policy": "OnFailure"}, "target": "trainjob"}
    assert notes == [
        "`restarts.policy: ExitCode`: becomes `OnFailure`: the pods of a TrainJob cannot have the restart policy `ExitCode`",
        "`run.ttl: 3600`: left out: a TrainJob cannot be deleted some time after its end: it has no TTL",
    ]


def test_each_override_is_named():
    spec, notes = change(overrides={"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator", "x": {}}}})
    assert "overrides" not in spec
    assert [note.split("`: ")[0] for note in notes] == [
        "`spec.runPolicy.managedBy: kubeflow.org/training-operator",
        "`spec.runPolicy.x",
    ]


SECRETS = {
    "env": {"TOKEN": "s3cr3t-token"},
    "args": ["--password", "s3cr3t-word"],
    "overrides": {
        "metadata": {"annotations": {"key": "s3cr3t-note"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [
            {"name": "pytorch", "env": [{"name": "PASSWORD", "value": "s3cr3t-own"}]},
            {"name": "upload", "image": "u:1", "env": [{"name": "DB_PASSWORD", "value": "s3cr3t-side"}]},
        ]}}}}},
    },
}  # fmt: skip


def test_no_note_shows_a_value_that_may_be_secret():
    _, notes = change(
        **SECRETS, master={"env": {"TOKEN": "s3cr3t-master"}, "args": ["s3cr3t-arg"]}, rendezvous="static", nodes=2
    )
    assert not [note for note in notes if "s3cr3t" in note]
    assert [note.split("`: ")[0] for note in notes] == [
        "`metadata.annotations.key",
        "`spec.pytorchReplicaSpecs.Worker.template.spec.containers",
        "`master.env.TOKEN",
        "`master.args",
    ]
    assert "`pod.sidecars` has containers beside the one that trains" in notes[1]


def test_a_master_that_differs_is_named_by_what_differs():
    fields = {"rendezvous": "static", "nodes": 2, "resources": {"cpu": "2", "memory": "8Gi"}}
    spec, notes = change(**fields, master={"image": "m:1", "resources": {"cpu": "1", "memory": "8Gi"}})
    assert "master" not in spec
    assert [note.split("`: ")[0] for note in notes] == ["`master.image: m:1", "`master.resources.cpu: 1"]


def test_nodes_that_hyperpod_has_found_healthy_stay_selected():
    spec, notes = change(scheduling={"hyperpod": {"max_retries": 3}})
    assert spec["scheduling"] == {"hyperpod": {"auto_resume": False}}
    assert notes == [
        "`scheduling.hyperpod.auto_resume`: becomes false: HyperPod resumes PyTorchJobs only",
        "`scheduling.hyperpod.max_retries: 3`: left out: HyperPod resumes PyTorchJobs only",
    ]


def test_priority_of_a_gang_becomes_that_of_its_pods():
    spec, _ = change(scheduling={"gang": {"scheduler": "scheduler-plugins", "priority_class": "high"}})
    assert spec["scheduling"] == {"gang": {"scheduler": "scheduler-plugins"}, "priority_class": "high"}


@pytest.mark.parametrize(
    ("fields", "old", "new"),
    [
        ({"rendezvous": "static"}, "--master_addr=train-master-0", "--master_addr=train-node-0-0.train"),
        ({"rendezvous": "static"}, "http://train-worker-0:80", "http://train-node-0-1.train:80"),
        ({}, "train-worker-1.team.svc", "train-node-0-1.train.team.svc"),
        ({}, "my-train-worker-1", "my-train-worker-1"),
        ({}, "train-worker-10", "train-worker-10"),
    ],
)
def test_host_names_become_those_of_the_other_kind(fields: dict[str, Any], old: str, new: str):
    spec, notes = change(**fields, nodes=2, env={"PLACE": old})
    assert spec["env"] == {"PLACE": new}
    assert len(notes) == (old != new)


def test_a_name_that_no_trainjob_can_have_is_an_error():
    with pytest.raises(SpecError, match="job name is too long"):
        change(name="a" * 50, nodes=2)


def test_a_trainjob_becomes_a_pytorchjob():
    changed = change_kind(Conversion(spec=MINIMAL | {"target": "trainjob", "runtime": "torch-distributed"}), "pytorchjob")
    assert changed.spec == MINIMAL | {"target": "pytorchjob"}
    assert [str(note) for note in changed.notes] == ["`runtime: torch-distributed`: left out: a PyTorchJob has no runtime"]
