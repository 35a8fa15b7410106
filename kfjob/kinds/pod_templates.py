"""The pod templates in the manifests of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kfjob.base.common_types import JsonMapping
from kfjob.objects import api_objects, names


@dataclass(frozen=True, kw_only=True)
class PodTemplate:
    """A pod template, with the names of the pods that are created from it."""

    names: tuple[str, ...]
    metadata: JsonMapping
    spec: JsonMapping


def read_pod_templates(manifests: Iterable[JsonMapping]) -> list[PodTemplate]:
    """Return the templates of the pods that the operator creates, and of the pods among the manifests."""
    templates = []
    for manifest in manifests:
        metadata = manifest["metadata"]
        if manifest["kind"] == "Pod":
            templates.append(PodTemplate(names=(metadata["name"],), metadata=metadata, spec=manifest["spec"]))
        elif manifest["kind"] == api_objects.PYTORCHJOB:
            for kind, replica in manifest["spec"]["pytorchReplicaSpecs"].items():
                count = api_objects.count_replicas(replica)
                pods = tuple(names.pod_name(metadata["name"], kind, index) for index in range(count))
                template = replica["template"]
                templates.append(PodTemplate(names=pods, metadata=template.get("metadata") or {}, spec=template["spec"]))
    return templates
