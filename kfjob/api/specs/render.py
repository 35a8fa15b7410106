"""The manifests of a job as text."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from kfjob.api.planning import plan_job
from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.common_types import JsonObject, Notify
from kfjob.printable import encode_json, is_clean
from kfjob.spec.source import LoadedSpec

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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
    text = _dump_yaml(manifests, allow_unicode=True)
    return text if is_clean(text) else _dump_yaml(manifests, allow_unicode=False)


def _dump_yaml(manifests: Sequence[JsonObject], *, allow_unicode: bool) -> str:
    return str(yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=allow_unicode))
