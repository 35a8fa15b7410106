"""Findings about a user's manifest name fields of the manifest, never of a spec that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kfjob.base.errors import Problem
from kfjob.kinds.pytorchjob import manifest_fields
from kfjob.kinds.pytorchjob.manifest_fields import find_manifest_path, use_manifest_names
from kfjob.spec.job import JobSpec

WORKER = ("spec", "pytorchReplicaSpecs", "Worker")
CONTAINER = (*WORKER, "template", "spec", "containers", 1)
JOB = {
    "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "spec": {
        "elasticPolicy": {"minReplicas": 2, "rdzvBackend": "c10d"},
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 2,
                "template": {
                    "spec": {
                        "tolerations": [{"key": "a"}, {"key": "b"}],
                        "containers": [
                            {"name": "sidecar"},
                            {"name": "pytorch", "image": "a:1", "args": ["x"], "env": [{"name": "A", "value": "1"}]},
                        ],
                    }
                },
            }
        },
    },
}


@pytest.mark.parametrize(
    ("path", "manifest_path"),
    [
        ("nodes", (*WORKER, "replicas")),
        ("image", (*CONTAINER, "image")),
        ("command", (*CONTAINER, "args")),
        ("env.A", (*CONTAINER, "env", 0, "value")),
        ("env.MISSING", (*CONTAINER, "env")),
        ("resources.gpus", CONTAINER),
        ("elastic.min", ("spec", "elasticPolicy", "minReplicas")),
        ("elastic.metrics.0", ("spec", "elasticPolicy")),
        ("rendezvous.backend", ("spec", "elasticPolicy", "rdzvBackend")),
        ("restarts.policy", WORKER),
        ("run.deadline", ("spec",)),
        ("pod.grace", CONTAINER[:-2]),
        ("scheduling.queue", ("metadata", "labels", "kueue.x-k8s.io/queue-name")),
        ("overrides", CONTAINER[:-3]),
        ("overrides.spec.pytorchReplicaSpecs.Worker.template.spec.containers.1.image", (*CONTAINER, "image")),
        ("overrides.spec.pytorchReplicaSpecs.Worker.template.spec.containers.1.volumeMounts", CONTAINER),
        ("scheduling.tolerations.1.key", (*CONTAINER[:-2], "tolerations", 1, "key")),
        ("scheduling.tolerations.1.effect", (*CONTAINER[:-2], "tolerations", 1)),
        ("labels.kueue.x-k8s.io/queue-name", ("metadata", "labels")),
        ("lint.ignore.0", ()),
    ],
)
def test_path_of_a_finding_is_the_nearest_field_of_the_manifest(path, manifest_path):
    assert find_manifest_path(path, JOB) == manifest_path


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("set `run.clean_pods: Running`", "set `cleanPodPolicy: Running`"),
        ("set `restarts: {policy: OnFailure}`", "set `restartPolicy: OnFailure`"),
        ("set `master: {restart_policy: OnFailure}`", "set `restartPolicy: OnFailure`"),
        ("set `pod.grace: 60`", "set `terminationGracePeriodSeconds: 60`"),
        ("`--nnodes=8` in the command overrides `elastic`", "`--nnodes=8` in the command overrides `elasticPolicy`"),
        ("write `torchrun x`; `lint: {ignore: [a-b]}` allows copies", "write `torchrun x`; `--ignore a-b` allows copies"),
        ("`LOGLEVEL` `warn` ends torchrun at once", "`LOGLEVEL` `warn` ends torchrun at once"),
        ("set `watchdog: {deadline: …}` to a little less", None),
    ],
)
def test_texts_name_the_manifests_fields(text, translated):
    assert use_manifest_names(Problem(title="x", hint=text)).hint == translated


def test_every_field_in_the_texts_of_rules_has_a_counterpart():
    """A text may name fields of `train`, which a manifest can have as arguments of the trainer."""
    without = {"train", *manifest_fields._WITHOUT_COUNTERPART}
    missing = set()
    for file in Path(manifest_fields.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for path in re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)(?:: [^`]*)?`", node.value):
                    first = path.partition(".")[0]
                    if first in JobSpec.model_fields and first not in without and path not in manifest_fields._FIELDS:
                        missing.add((file.name, path))
    assert missing == set()
