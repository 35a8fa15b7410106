"""scripts/foreign-files: what it calls equal, told, silent and refused."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "foreign-files"
OUTCOMES = ("equal", "told", "silent", "refused")
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


def test_a_difference_without_a_message_is_silent(program):
    before = {"spec": {"a": 1, "list": [{"name": "x", "value": "1"}], "gone": "y"}}
    after = {"spec": {"a": 1, "list": [{"name": "x", "value": "2"}]}, "metadata": {"namespace": "team"}}
    differences = program.compare(before, after)
    assert differences == [".spec.list[x].value: 1 -> 2", ".spec.gone: y -> (none)"]
    assert program.judge("f", "manifest", differences, "note: `spec.list[x]` changed").outcome == "silent"
    assert program.judge("f", "manifest", differences, "note: `spec.list[x]`, `spec.gone`").outcome == "told"
    assert program.judge("f", "manifest", [], "").outcome == "equal"


def test_a_label_and_an_init_container_are_told_by_their_names(program):
    assert program.is_told(".metadata.labels.team/queue", "note: `team/queue: a`: taken from the AppWrapper")
    assert not program.is_told(".metadata.labels.team/queue", "note: `team/other: a`: taken from the AppWrapper")
    path = ".spec.pytorchReplicaSpecs.Worker.template.spec.initContainers[wait].command[0]"
    assert program.is_told(path, "note: `init container wait`: added by kfjob")
    assert not program.is_told(path, "note: `init container other`: added by kfjob")


def test_a_name_that_envsubst_would_replace_is_told_by_the_note_that_names_it(program):
    line = ".args[0]: cp a-value ${B:-$(awk '{print $1}' f)} -> cp ${A} ${B:-$(awk '{print $1}' f)}"
    assert program.names_are_told(
        line, {"A": "a-value", "B": "b-value"}, "note: left for the pod: `${A:-x}` (defined in the pod)"
    )
    assert not program.names_are_told(line, {"A": "a-value", "B": "b-value"}, "note: left for the pod: `${B}`")


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
