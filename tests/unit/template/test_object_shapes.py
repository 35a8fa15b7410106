"""Objects beside the job of a template or an imported manifest have the shape that they need, or have a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.api.settings import Settings
from kfjob.api.specs.imports import import_manifest
from kfjob.api.target import make_target
from kfjob.api.templates.template_files import Template
from kfjob.api.templates.template_source import PreparedTemplate, TemplateSource
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import SpecError

POD: Any = {"spec": {"containers": [{"name": "pytorch", "image": "team/train:3", "command": ["torchrun", "t.py"]}]}}
SETTINGS = Settings(state=Path("/nowhere"))
POLICY = {"rdzvBackend": "etcd", "rdzvHost": "meet", "rdzvPort": 2379, "minReplicas": 1, "maxReplicas": 1}
JOB: Any = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "train"},
    "spec": {"elasticPolicy": POLICY, "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": POD}}},
}
SERVICE: Any = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "meet"},
    "spec": {"selector": {"app": "e"}, "ports": [{"port": 2379}]},
}
SERVER: Any = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "server"},
    "spec": {"template": {"metadata": {"labels": {"app": "e"}}, "spec": {"containers": [{"image": "team/etcd:v3.4.13"}]}}},
}


def make_template(*objects: Any) -> Template:
    return Template(files=(("job.yaml", yaml.safe_dump_all(objects)),), values={})


def plan(*objects: Any) -> PreparedTemplate:
    return TemplateSource(make_template(*objects)).prepare(make_target(SETTINGS, "kubernetes"), notify=ignore_notice)


def put(item: Any, path: str, value: Any) -> Any:
    """Return the object with another value at a path."""
    head, _, rest = path.partition(".")
    return {**item, head: put(item.get(head, {}), rest, value) if rest else value}


@pytest.mark.parametrize(
    ("path", "value", "title"),
    [
        ("metadata.labels", ["a"], "`metadata.labels` of this Service must map names to text"),
        ("metadata.annotations", "a", "`metadata.annotations` of this Service must map names to text"),
        ("metadata.namespace", ["a"], "`metadata.namespace` of this Service must be text"),
        ("metadata.name", ["a"], "`metadata.name` of this Service must be text"),
        ("metadata", ["a"], "this Service has no `metadata.name`"),
        ("spec", "hello", "`spec` of this Service must be a mapping"),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_wrong_shape_is_a_problem_at_its_place(path, value, title, as_list):
    faulty = put(SERVICE, path, value)
    objects = [{"apiVersion": "v1", "kind": "List", "items": [JOB, faulty]}] if as_list else [JOB, faulty]
    text = yaml.safe_dump_all(objects)
    for read in (lambda: plan(*objects), lambda: import_manifest(text, file="job.yaml")):
        with pytest.raises(SpecError) as caught:
            read()
        (problem,) = caught.value.problems
        assert (problem.title, problem.file) == (title, "job.yaml")
        if path != "metadata":
            line = text.splitlines()[(problem.line or 0) - 1]
            assert path.rpartition(".")[2] in line or "- a" in line


@pytest.mark.parametrize(
    ("service", "server"),
    [
        (put(SERVICE, "spec.ports", [80]), SERVER),
        (put(SERVICE, "spec.ports", [{"port": [80]}]), SERVER),
        (put(SERVICE, "spec.selector", ["app"]), SERVER),
        (SERVICE, put(SERVER, "spec.template.metadata.labels", ["a"])),
        (SERVICE, put(SERVER, "spec.template", "hello")),
        (SERVICE, put(SERVER, "spec.template.spec", "hello")),
        (SERVICE, put(SERVER, "spec.template.spec.containers", "hello")),
        (SERVICE, put(SERVER, "spec.template.spec.containers", ["hello", {"ports": [1]}])),
        (SERVICE, put(SERVER, "spec.template.spec.containers", [{"ports": [{"containerPort": [1]}]}])),
    ],
)
def test_a_server_of_a_wrong_shape_does_not_answer(service, server):
    assert plan(JOB, service, server).resolved is not None
    conversion = import_manifest(yaml.safe_dump_all([JOB, service, server]))
    assert "etcd" in conversion.spec["rendezvous"]["backend"]


def test_only_a_list_stands_for_its_items():
    foo = {"apiVersion": "team/v1", "kind": "Foo", "metadata": {"name": "f"}, "items": [1]}
    assert import_manifest(yaml.safe_dump_all([JOB, foo])).spec["name"] == "train"
    shown = TemplateSource(make_template(foo)).render(SETTINGS, notify=ignore_notice)
    assert [item["kind"] for item in shown] == ["Foo"]


def test_the_notes_do_not_confuse_a_job_inside_a_kind_with_items():
    foo = {"apiVersion": "team/v1", "kind": "Foo", "metadata": {"name": "f"}, "items": [JOB]}
    assert "only the PyTorchJob in it" in str(import_manifest(yaml.safe_dump(foo)).notes)


def test_an_example_in_a_text_does_not_keep_the_job_from_its_rules():
    example = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"job.yaml": yaml.safe_dump(JOB)}}
    assert plan(example, JOB).resolved is not None
