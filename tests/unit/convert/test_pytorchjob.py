"""Conversion of PyTorchJobs to specs: lossless for jobs that kfjob renders, with notes for what others contain."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.api.specs.imports import import_manifest
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob.importer.comparison import normalize_job
from kfjob.kinds.pytorchjob.manifest import compile_manifests, compile_pytorchjob
from kfjob.objects import api_objects
from kfjob.objects.differences import MISSING, differences, format_path
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "specs"
CONTEXT = Context(backend="kubernetes", launch="l1", namespace="team")


def compile_spec(spec: JobSpec) -> JsonObject:
    return compile_pytorchjob(resolve(spec, CONTEXT))


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_round_trip_of_a_rendered_job(file):
    spec = load_spec(file.read_text()).spec
    rendered = compile_manifests(resolve(spec, CONTEXT))
    conversion = import_manifest(yaml.safe_dump_all(rendered))
    assert JobSpec.model_validate(conversion.spec) == spec.model_copy(update={"namespace": spec.namespace or "team"})
    assert all(note.reason.startswith("only this annotation says") for note in conversion.notes)


def change_record(**changes: Any) -> dict[str, Any]:
    """Return a job of kfjob with a changed record of its spec."""
    job = compile_spec(load_spec("name: a\nnamespace: team\nimage: a:1\nnodes: 2\ncommand: torchrun t.py\n").spec)
    record = yaml.safe_load(job["metadata"]["annotations"][api_objects.ANNOTATION_SPEC])
    job["metadata"]["annotations"][api_objects.ANNOTATION_SPEC] = json.dumps(record | changes)
    return job


def test_recorded_spec_that_makes_another_job_is_not_used():
    conversion = import_manifest(yaml.safe_dump(change_record(image="b:2", progress="x (?P<step>[0-9]+)", nodes=3)))
    assert (conversion.spec["image"], conversion.spec["nodes"]) == ("a:1", 2)
    assert "progress" not in conversion.spec
    assert "overrides" not in conversion.spec
    (note,) = [note for note in conversion.notes if api_objects.ANNOTATION_SPEC in note.item]
    assert note.reason.startswith("not used: the job differs from the spec in it, at `spec.")
    assert note.reason.endswith("left out with it: `progress`")


def test_what_only_the_recorded_spec_says_is_named():
    conversion = import_manifest(yaml.safe_dump(change_record(progress="x (?P<step>[0-9]+)")))
    assert conversion.spec["progress"] == "x (?P<step>[0-9]+)"
    assert [note.reason.partition(":")[0] for note in conversion.notes] == ["only this annotation says `progress`"]


@pytest.mark.parametrize(
    "fields",
    [{"image": ["a"]}, {"overrides": {"status": {}}}, {"overrides": {"spec": None}}],
    ids=["field", "override", "removed"],
)
def test_record_that_is_no_spec_is_named(fields):
    conversion = import_manifest(yaml.safe_dump(change_record(**fields)))
    assert conversion.spec["image"] == "a:1"
    assert any(note.reason.startswith("not used: it is no spec") for note in conversion.notes)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_round_trip_without_the_recorded_spec(file):
    spec = load_spec(file.read_text()).spec
    rendered = compile_manifests(resolve(spec, CONTEXT))
    del rendered[0]["metadata"]["annotations"][api_objects.ANNOTATION_SPEC]
    conversion = import_manifest(yaml.safe_dump_all(rendered))
    assert spec.overrides or "overrides" not in conversion.spec, "a field is not imported"
    rendered_again = compile_manifests(resolve(JobSpec.model_validate(conversion.spec), CONTEXT))
    assert differences(normalize_job(rendered[0]), normalize_job(rendered_again[0]), ignore_empty=True) == []
    assert len(rendered_again) == len(rendered)
    assert {note.item.partition(":")[0] for note in conversion.notes} <= {
        "spec.elasticPolicy.rdzvId",
        "spec.runPolicy.schedulingPolicy",
    }


REFERENCE_FLOW = """
apiVersion: v1
kind: Service
metadata: {name: etcd}
spec: {ports: [{port: 2379}], selector: {app: etcd}}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: fsdp, labels: {team: research}, creationTimestamp: null}
spec:
  elasticPolicy:
    rdzvBackend: etcd
    rdzvHost: etcd
    rdzvPort: 2379
    minReplicas: 1
    maxReplicas: 64
    maxRestarts: 100
    metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 90}}}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        metadata: {labels: {app: fsdp}}
        spec:
          volumes:
          - {name: shmem, hostPath: {path: /dev/shm}}
          - {name: nfs, nfs: {server: a.b, path: /x}}
          nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}
          containers:
          - name: pytorch
            image: 1.dkr.ecr.eu-west-1.amazonaws.com/fsdp:pytorch2.2
            imagePullPolicy: Always
            resources:
              requests: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}
              limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}
            env:
            - {name: LOGLEVEL, value: DEBUG}
            - {name: FI_PROVIDER, value: efa}
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
            command: [torchrun]
            args: [--nproc_per_node=8, --nnodes=2, train.py, --max_steps, "100"]
            lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}
            volumeMounts:
            - {name: shmem, mountPath: /dev/shm}
            - {name: nfs, mountPath: /data}
          - {name: tail, image: busybox}
status: {conditions: []}
"""
_, REFERENCE_JOB = yaml.safe_load_all(REFERENCE_FLOW)


def test_manifest_of_the_reference_flow():
    conversion = import_manifest(REFERENCE_FLOW)
    spec = conversion.spec
    assert spec["rendezvous"] == {"backend": "etcd", "endpoint": "etcd:2379"}
    assert (spec["nodes"], spec["elastic"]["min"], spec["elastic"]["max"], spec["restarts"]) == (
        2,
        1,
        64,
        {"max": 100},  # OnFailure is the default of elastic jobs
    )
    assert spec["resources"] == {"gpus": 8, "efa": 4}
    assert spec["processes_per_node"] == "auto"
    assert spec["command"] == ["torchrun"]
    assert spec["args"][:2] == ["--nproc_per_node=8", "--nnodes=2"]
    assert spec["env"] == {
        "LOGLEVEL": "DEBUG",
        "FI_PROVIDER": "efa",
        "NODE": {"field": "spec.nodeName"},
        "CPUS": {"resource": "limits.cpu"},
    }
    worker = spec["overrides"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert [container["name"] for container in worker["spec"]["containers"]] == ["pytorch", "tail"]
    assert {volume["name"] for volume in worker["spec"]["volumes"]} == {"nfs"}

    job = compile_spec(JobSpec.model_validate(spec))
    additions = differences(normalize_job(copy.deepcopy(REFERENCE_JOB)), normalize_job(job), ignore_empty=True)
    assert {difference.old for difference in additions} == {MISSING}  # nothing of the original is lost
    notes = [str(note) for note in conversion.notes]
    assert any(text.startswith("`Service etcd`: not a part of the spec") for text in notes)
    told = " ".join(map(str, (*conversion.notes, *conversion.additions)))
    assert [format_path(part.path) for part in additions if format_path(part.path) not in told] == []


def make_job(**spec) -> str:
    container = {"name": "pytorch", "image": "a:1", "command": ["torchrun", "t.py"]}
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    body = {"pytorchReplicaSpecs": {"Worker": worker}, **spec}
    return yaml.safe_dump({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}, "spec": body})


@pytest.mark.parametrize(
    ("policy", "scheduler"), [({"queue": "research"}, "volcano"), ({"minAvailable": 2}, "scheduler-plugins")]
)
def test_only_volcano_has_queues(policy, scheduler):
    spec = import_manifest(make_job(runPolicy={"schedulingPolicy": policy})).spec
    assert spec["scheduling"]["gang"]["scheduler"] == scheduler


@pytest.mark.parametrize("image", ["a", "a:latest"])
def test_written_default_of_the_pull_policy_is_left_out(image):
    data = yaml.safe_load(make_job())
    (container,) = data["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container.update(image=image, imagePullPolicy="Always")
    spec = import_manifest(yaml.safe_dump(data)).spec
    assert spec["image"] == image
    assert "image_pull_policy" not in spec


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"command": ["python3", "-u", "t.py", "--lr=1"]},
        {"command": ["accelerate", "launch", "t.py"]},
        {"args": ["epochs=3"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("has_master", [False, True])
def test_program_is_imported_as_it_is(program, *, has_master):
    data = yaml.safe_load(make_job())
    replicas = data["spec"]["pytorchReplicaSpecs"]
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    del container["command"]
    container.update(program)
    if has_master:
        replicas["Master"] = copy.deepcopy(replicas["Worker"]) | {"replicas": 1}
    spec = import_manifest(yaml.safe_dump(data)).spec
    assert {name: spec[name] for name in ("command", "args", "launcher", "overrides") if name in spec} == program
    for replica in compile_spec(JobSpec.model_validate(spec))["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert {name: container[name] for name in ("command", "args") if name in container} == program


def test_set_replaces_the_program_of_an_imported_spec():
    text = yaml.safe_dump(import_manifest(make_job()).spec)
    spec = load_spec(text, assignments=["command=python other.py"]).spec
    assert resolve(spec, CONTEXT).command == ("python", "other.py")


def test_manual_change_of_a_rendered_job_is_kept():
    rendered = compile_spec(load_spec((GOLDEN / "smallest.yaml").read_text()).spec)
    rendered["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 7
    conversion = import_manifest(yaml.safe_dump(rendered))
    assert conversion.spec["run"] == {"ttl": 7}
    assert "overrides" not in conversion.spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (make_job(pytorchReplicaSpecs={}), "neither a `Worker` nor a `Master`"),
        (make_job(pytorchReplicaSpecs={"Worker": {"replicas": 0}}), "no container named `pytorch`"),
    ],
)
def test_invalid_job_is_an_error(text, message):
    with pytest.raises(SpecError) as raised:
        import_manifest(text)
    assert message in str(raised.value)


def test_unknown_field_in_a_kubectl_list_has_a_note():
    manifest = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": [yaml.safe_load(make_job(typo=1))],
    }
    conversion = import_manifest(yaml.safe_dump(manifest))
    assert "`spec.typo`: is not known to Kubernetes; left out" in map(str, conversion.notes)


def test_default_that_the_api_server_adds_is_not_an_override():
    job = compile_spec(JobSpec(name="a", image="b:1", command=["torchrun", "c.py"]))
    job["spec"]["runPolicy"]["suspend"] = False
    assert "overrides" not in import_manifest(yaml.safe_dump(job)).spec
