"""`kfjob import … --to KIND`: the same job as another kind, with a note for each part that this kind cannot have."""

from pathlib import Path
from typing import Any

import pytest

from kfjob.api.planning import compile_spec
from kfjob.api.specs.imports import change_kind, import_manifest
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
    lost = [part for part in differences(conversion.spec, changed.spec) if format_path(part.path) != "target"]
    assert all(part.new is MISSING for part in lost)
    for part in lost:
        path = format_path(part.path)
        inner = tuple(f"{key}" for key in part.old) if path == "overrides" else (path,)
        assert all(any(item.startswith(start) for item in items) for start in inner)
    assert len(items) >= len(lost)


def test_each_part_is_named_with_its_value_and_the_reason():
    spec, notes = change(run={"ttl": 3600, "deadline": 60}, restarts={"policy": "ExitCode", "max": 2})
    assert spec == MINIMAL | {"run": {"deadline": 60}, "restarts": {"max": 2}, "target": "trainjob"}
    assert notes == [
        "`restarts.policy: ExitCode`: left out: the pods of a TrainJob cannot have the restart policy `ExitCode`",
        "`run.ttl: 3600`: left out: a TrainJob is not deleted some time after its end",
    ]


def test_each_override_is_named():
    spec, notes = change(overrides={"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator", "x": {}}}})
    assert "overrides" not in spec
    assert [note.split("`: ")[0] for note in notes] == [
        "`spec.runPolicy.managedBy: kubeflow.org/training-operator",
        "`spec.runPolicy.x: {}",
    ]


def test_a_name_that_no_trainjob_can_have_is_an_error():
    with pytest.raises(SpecError, match="job name is too long"):
        change(name="a" * 50, nodes=2)


def test_a_trainjob_becomes_a_pytorchjob():
    changed = change_kind(Conversion(spec=MINIMAL | {"target": "trainjob", "runtime": "torch-distributed"}), "pytorchjob")
    assert changed.spec == MINIMAL | {"target": "pytorchjob"}
    assert [str(note) for note in changed.notes] == ["`runtime: torch-distributed`: left out: a PyTorchJob has no runtime"]
