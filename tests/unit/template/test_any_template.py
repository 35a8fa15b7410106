"""Any text in a template of a job is prepared, or is a spec error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.api.templates.template_files import Template
from kfjob.api.templates.template_source import TemplateSource
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import SpecError

FIELDS = ("NAME", "IMAGE", "COMMAND", "ARGUMENT", "VALUE", "COUNT", "NOTE")
JOB = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, annotations: {note: NOTE}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: COUNT
      template:
        spec:
          containers:
          - name: NAME
            image: IMAGE
            command: [COMMAND]
            args: [-c, ARGUMENT]
            env: [{name: A, value: VALUE}]
"""
DEFAULTS = {"NAME": "pytorch", "IMAGE": "team/train:3", "COMMAND": "bash", "ARGUMENT": "torchrun t.py", "COUNT": "2"}


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(FIELDS),
    st.text(alphabet="$ab{}:-\\()N\n '\"[]#&*<|>~0.")
    | st.sampled_from(["[]", "{}", "null", "true", "1e999", "-1", "{a: {b: []}}"]),
    st.text(),
)
def test_any_template_is_planned_or_is_a_spec_error(field, text, value):
    job = JOB
    for name in FIELDS:
        job = job.replace(name, text if name == field else DEFAULTS.get(name, "x"), 1)
    template = Template(files=(("job.yaml", job),), values={"N": value, "a": value})
    with suppress(SpecError):
        prepared = TemplateSource(template).prepare(
            make_target(Settings(state=Path("/nowhere")), "kubernetes"), notify=ignore_notice
        )
        assert prepared.job.value["metadata"]["name"] == "train"
