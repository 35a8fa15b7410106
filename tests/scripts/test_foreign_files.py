"""scripts/foreign-files: what it calls equal, told, silent, refused and failed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "foreign-files"
OUTCOMES = ("equal", "told", "silent", "refused", "failed")
CONTAINER = {"name": "pytorch", "image": "team/train:3", "command": ["bash", "-c", "torchrun train.py --batch ${BATCH:-8}"]}
REPLICA = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [CONTAINER]}}}
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "job"},
    "spec": {"pytorchReplicaSpecs": {"Master": REPLICA, "Worker": REPLICA}},
}


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = spec_from_loader("foreign_files", SourceFileLoader("foreign_files", str(SCRIPT)))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules["foreign_files"] = module
    spec.loader.exec_module(module)
    return module


def test_files_and_environments_get_their_results(tmp_path):
    files, environments = tmp_path / "files", tmp_path / "environments"
    files.mkdir()
    environments.mkdir()
    (files / "job.yaml").write_text(yaml.safe_dump(JOB))
    (files / "old.yaml").write_text(yaml.safe_dump(JOB | {"apiVersion": "kubeflow.org/v1beta2"}).replace("${BATCH:-8}", "8"))
    (files / "helm.yaml").write_text("kind: PyTorchJob\nmetadata: {name: {{ .Values.name }}}\n")
    (environments / "plain").write_text("# OLD=1 is gone\nexport A=1 B='x y' # D=2\nC=${A}2\n")
    (environments / "command").write_text("A=$(hostname)\n")
    done = subprocess.run(
        [SCRIPT, files, "--environments", environments], capture_output=True, text=True, timeout=300, check=False
    )
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    results = {(kind, Path(name).name): outcome for outcome, kind, name in (row for row in rows if row[0] in OUTCOMES)}
    assert results == {
        ("manifest", "job.yaml"): "equal",
        ("template", "job.yaml"): "equal",
        ("manifest", "old.yaml"): "told",
        ("manifest", "helm.yaml"): "refused",
        ("environment", "plain"): "equal",
        ("environment", "command"): "refused",
    }, done.stdout + done.stderr
    assert done.returncode == 0


def change_job(**changes: Any) -> dict[str, Any]:
    """Return the job with changed fields of the Worker's container, and a namespace."""
    container = CONTAINER | changes
    worker = REPLICA | {"template": {"spec": {"containers": [container]}}}
    replicas = {"Master": REPLICA, "Worker": worker}
    metadata = {"name": "job", "namespace": "team"}
    return JOB | {"metadata": metadata, "spec": {"pytorchReplicaSpecs": replicas}}


CONTAINERS = "spec.pytorchReplicaSpecs.Worker.template.spec.containers"


@pytest.mark.parametrize(
    ("note", "outcome"),
    [
        ("", "silent"),
        (f'`{CONTAINERS}[pytorch].image: "team/train:3"`: left out', "told"),
        (f"`{CONTAINERS}[pytorch].image`: left out", "told"),
        (f"`{CONTAINERS}[pytorch].imagePullPolicy`: left out", "silent"),
        (f"`{CONTAINERS}[pytorch]`: a part of it", "silent"),
        ("`spec.pytorchReplicaSpecs`: a part of it", "silent"),
        (f"`{CONTAINERS.replace('Worker', 'Master')}[pytorch].image`: changed (in Master and Worker)", "told"),
        (f"`{CONTAINERS.replace('Worker', 'Master')}[pytorch].image`: changed\n`x`: (in Master and Worker)", "silent"),
    ],
)
def test_a_difference_without_a_message_is_silent(program, note, outcome):
    changes = program.compare(JOB, change_job(image="team/other:4"))
    assert [str(change) for change in changes] == [f".{CONTAINERS}[pytorch].image: team/train:3 -> team/other:4"]
    assert program.judge("f", "manifest", changes, f"note: {note}").outcome == outcome
    assert program.judge("f", "manifest", [], "").outcome == "equal"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"env": [{"name": "LOGLEVEL", "value": "INFO"}], "resources": {"requests": {"cpu": "1"}}}, ""),
        ({"env": [{"name": "MY_LOGLEVEL", "value": "INFO"}]}, "env[MY_LOGLEVEL].value"),
        ({"lifecycle": {"resources.requests": "1"}}, "lifecycle.resources.requests"),
    ],
)
def test_only_what_kfjob_adds_to_every_job_is_no_difference(program, changes, path):
    paths = [str(change).partition(":")[0] for change in program.compare(JOB, change_job(**changes))]
    assert paths[-1:] == ([f".{CONTAINERS}[pytorch].{path}"] if path else [])


def test_a_label_and_an_init_container_are_told_by_their_names(program):
    label = program.Change(("metadata", "labels", "team/queue"), None, "a")
    assert program.is_told(label, "note: `team/queue: a`: taken from the AppWrapper")
    assert not program.is_told(label, "note: `team/queue: b`: taken from the AppWrapper")
    assert not program.is_told(label, "note: `team/other: a`: taken from the AppWrapper")
    worker = ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec")
    path = (*worker, "initContainers", program.ItemName("wait"), "image")
    added, removed, changed = (program.Change(path, old, new) for old, new in ((None, "a"), ("a", None), ("a", "b")))
    assert program.is_told(added, "note: `init container wait`: added by kfjob")
    assert not program.is_told(added, "note: `init container other`: added by kfjob")
    assert program.is_told(removed, "note: `init container wait`: left out: it waits")
    assert not program.is_told(removed, "note: `init container wait`: added by kfjob")
    assert not program.is_told(changed, "note: `init container wait`: added by kfjob")


def test_a_name_that_envsubst_would_replace_is_told_by_the_note_that_names_it(program):
    change = program.Change(("args", 0), "cp a-value ${B:-$(awk '{print $1}' f)}", "cp ${A} ${B:-$(awk '{print $1}' f)}")
    values = {"A": "a-value", "B": "b-value"}
    assert program.names_are_told(change, values, "note: left for the pod: `${A:-x}` (defined in the pod)")
    assert not program.names_are_told(change, values, "note: left for the pod: `${B}`")


def test_a_hyperpod_job_is_compared(program):
    pod = {"containers": [CONTAINER | {"name": "train"}]}
    group = {"name": "pods", "replicas": 2, "spares": 1, "template": {"spec": pod}}
    job = {"kind": "HyperPodPyTorchJob", "metadata": {"name": "job"}, "spec": {"replicaSpecs": [group]}}
    worker = {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}}
    after = JOB | {"spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    changes = program.compare(program.make_pytorchjob(job), after)
    assert {str(change) for change in changes} == {
        ".kind: HyperPodPyTorchJob -> PyTorchJob",
        ".spec.replicaSpecs[pods].name: pods -> (none)",
        ".spec.replicaSpecs[pods].spares: 1 -> (none)",
        ".spec.replicaSpecs[pods].template.spec.containers[train].name: train -> (none)",
    }


def test_a_command_that_does_not_end_is_a_failure_of_its_file(program, tmp_path, monkeypatch, capsys):
    folder, programs = tmp_path / "files", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "a.yaml").write_text(yaml.safe_dump(JOB))
    (folder / "b.yaml").write_bytes(b"\xff")
    kfjob = programs / "kfjob"
    kfjob.write_text("#!/bin/sh\ncase $3 in */a.yaml) exec sleep 60;; esac\n")
    kfjob.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", ["foreign-files", str(folder)])
    monkeypatch.setattr(program, "TIMEOUT", 2)
    assert program.main() == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["failed", "manifest", "a.yaml"] in rows
    assert ["failed", "manifest", "b.yaml"] in rows
    assert any(row[0] == "TimeoutExpired:" for row in rows)


def test_timestamps_and_sexagesimal_numbers_are_text(program):
    (job,) = program.read_objects("metadata: {annotations: {a: 2024-01-02, b: 2024-01-02T03:04:05Z, c: 1:20}}\n---\n", None)
    assert [text for _, text in program.flatten(job)] == ["2024-01-02", "2024-01-02T03:04:05Z", "1:20"]


def test_refusals_are_counted_by_reason(program):
    message = {"error": {"message": "2 problems", "problems": [{"message": "cannot run `$(date)`"}]}}
    results = [
        program.Result("a", "environment", "refused", (program.json.dumps(message),)),
        program.Result("b", "manifest", "refused", ("warning: old", "error: `x` is no image")),
        program.Result("c", "manifest", "refused", ("error: `y` is no image", "  --> c:1")),
        program.Result("d", "manifest", "equal"),
    ]
    rows = [" ".join(row.split()) for row in program.count_reasons(results)]
    assert rows == ["environment 1 cannot run `…` (for example a)", "manifest 2 `…` is no image (for example b)"]
