"""A right in a namespace, in Kubernetes' own terms."""

from __future__ import annotations

from msgspec import Struct


class Permission(Struct, frozen=True, kw_only=True):
    """One verb on one resource of a namespace."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    @property
    def full_resource(self) -> str:
        """The resource with its API group and subresource: `pytorchjobs.kubeflow.org/scale`."""
        group, subresource = f".{self.group}" if self.group else "", f"/{self.subresource}" if self.subresource else ""
        return f"{self.resource}{group}{subresource}"
