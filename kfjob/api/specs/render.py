"""The manifests of a job as text."""

from __future__ import annotations

from collections.abc import Sequence

from kfjob.api.planning import plan_job
from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.base.common_types import JsonObject, Notify
from kfjob.base.printable import encode_json
from kfjob.source.spec_text import LoadedSpec
from kfjob.source.yaml_writer import write_yaml


def render(loaded: LoadedSpec, *, settings: Settings, form: str, notify: Notify) -> str:
    """Return the manifests that `submit` would send to a cluster, as YAML documents or as one List in JSON.

    Raises:
        SpecError: every problem of the spec.
    """
    planned = plan_job(loaded, make_target(settings, "kubernetes"))
    planned.check_findings(notify)
    return format_manifests(planned.manifests, form)


def format_manifests(manifests: Sequence[JsonObject], form: str) -> str:
    """Return manifests as YAML documents, or as one List in JSON (`form` is `json`); `kubectl apply -f -` takes both."""
    if form == "json":
        return encode_json({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, indent=2) + "\n"
    return write_yaml(manifests)
