"""An import compiles the spec a limited number of times, however many entries the mappings of a job have."""

from __future__ import annotations

from unittest.mock import Mock

import yaml

from kfjob.api.specs import imports
from kfjob.kinds.pytorchjob.importer import comparison


def test_entries_of_mappings_are_not_compiled_one_by_one(monkeypatch):
    compile_job = Mock(wraps=comparison.compile_spec)
    monkeypatch.setattr(comparison, "compile_spec", compile_job)
    texts = {f"key-{index}": "x" for index in range(200)}
    pod = {"metadata": {"annotations": texts}, "spec": {"containers": [{"name": "pytorch", "image": "a:1"}]}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "annotations": texts}}
    job["spec"] = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pod}}}
    conversion = imports.import_manifest(yaml.safe_dump(job))
    assert conversion.spec["annotations"] == texts
    assert compile_job.call_count < 40
