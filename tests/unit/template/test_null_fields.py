"""A field that is null is the same as no field: the API server takes the default."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.api import recorded_config
from kfjob.api.settings import Settings
from kfjob.api.specs.explain_template import explain_template
from kfjob.api.specs.imports import check_conversion
from kfjob.api.target import make_target
from kfjob.api.templates.template_files import Template
from kfjob.api.templates.template_source import TemplateSource
from kfjob.base.common_types import ignore_notice
from kfjob.kinds.pytorchjob.importer.import_job import import_objects
from kfjob.kinds.registry import read_pod_templates
from kfjob.source.manifest import list_objects
from kfjob.source.template import fill as engine
from tests.pytorchjobs import KIND

POD = {"containers": [{"name": "pytorch", "image": "team/train:3", "command": ["torchrun", "t.py"]}]}
ROLE = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": POD}}
STATIC: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "train", "labels": {"a": "b"}},
    "spec": {
        "nprocPerNode": "2",
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 2, "schedulingPolicy": {"minAvailable": 2}},
        "pytorchReplicaSpecs": {"Master": ROLE, "Worker": ROLE},
    },
}
ELASTIC = copy.deepcopy(STATIC)
ELASTIC["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 1, "maxRestarts": 3, "rdzvBackend": "c10d", "rdzvId": "x"}
del ELASTIC["spec"]["pytorchReplicaSpecs"]["Master"]
WORKER = ("spec", "pytorchReplicaSpecs", "Worker")
FIELDS = [
    *((job, (*WORKER, field)) for job in (STATIC, ELASTIC) for field in ("replicas", "restartPolicy")),
    (STATIC, ("spec", "pytorchReplicaSpecs", "Master", "replicas")),
    *((STATIC, ("spec", field)) for field in ("nprocPerNode", "runPolicy")),
    *((STATIC, ("spec", "runPolicy", field)) for field in STATIC["spec"]["runPolicy"]),
    *((ELASTIC, ("spec", "elasticPolicy", field)) for field in ELASTIC["spec"]["elasticPolicy"]),
    *((STATIC, (*WORKER, "template", "spec", "containers", 0, field)) for field in ("command",)),
]


def change(job, path, *, null):
    """Return a copy of the job with a field that is null, or without the field."""
    result = copy.deepcopy(job)
    parent = result
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = None
    if not null:
        del parent[path[-1]]
    return result


def read(job):
    """Return what the readers of a manifest make of a job."""
    text = yaml.safe_dump(job, sort_keys=False)
    template = Template(files=(("t.yaml", text),), values={})
    prepared = TemplateSource(template).prepare(
        make_target(Settings(state=Path("/nowhere")), "kubernetes"), notify=ignore_notice, launch="l"
    )
    explained = explain_template(prepared)
    imported = check_conversion(import_objects(list(list_objects(engine.parse(text)))))
    return {
        "summary": prepared.summary,
        "findings": [(finding.title, finding.severity, finding.rule) for finding in prepared.findings],
        "explained": {line for line in str(explained).split(", ") if "(default" in line},
        "spec": imported.spec,
        "pods": [template.names for template in read_pod_templates([job])],
        "observed": recorded_config.from_manifest(job),
        "has_worker": KIND.will_have_pod(job, "train-worker-0"),
    }


@pytest.mark.parametrize(("job", "path"), FIELDS, ids=[f"{'.'.join(map(str, path[1:]))}" for _, path in FIELDS])
def test_null_is_no_field(job, path):
    assert read(change(job, path, null=True)) == read(change(job, path, null=False))
