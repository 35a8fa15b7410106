"""What the backends can do. Code asks for a capability, and not for the name of a backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

BackendName = Literal["kubernetes", "local"]


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The capabilities of a backend."""

    runs_on_this_machine: bool
    """Agents are processes of this machine, so its folders, programs and devices are those of the job."""
    has_images: bool
    """Agents run in containers of an image."""
    has_api_server: bool
    """A job is objects of an API server: manifests, pods with names in DNS, permissions."""
    archives_jobs: bool
    """A stop moves what the backend has of a job to the archive, so that nothing needs to be copied before."""


CAPABILITIES: Mapping[BackendName, Capabilities] = MappingProxyType(
    {
        "kubernetes": Capabilities(runs_on_this_machine=False, has_images=True, has_api_server=True, archives_jobs=False),
        "local": Capabilities(runs_on_this_machine=True, has_images=False, has_api_server=False, archives_jobs=True),
    }
)
"""The kind of each backend, by the name that users write."""


def find_name(text: object) -> BackendName | None:
    """Return the text as the name of a backend; None if there is none of this name."""
    return next((name for name in CAPABILITIES if name == text), None)


TargetName = Literal["pytorchjob", "trainjob", "auto"]
"""The values of `target`: the kinds of `kfjob.kinds` in small letters, and `auto`, which asks the cluster what it offers."""
TARGETS: tuple[TargetName, ...] = get_args(TargetName)
AUTO_TARGET: TargetName = "auto"
