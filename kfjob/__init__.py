"""kfjob: from a job spec to a loss curve, on a Kubernetes cluster or on this machine.

    from kfjob import JobSpec, submit

    run = submit(JobSpec(name="llama", image="…", nodes=2, command="torchrun train.py"))
    print(run.master().pod)
    run.wait()

Names are imported when they are first used: `import kfjob` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfjob.api.attach import attach as attach
    from kfjob.api.images.push_image import push_image as push_image
    from kfjob.api.run import Run as Run
    from kfjob.api.run import submit as submit
    from kfjob.api.specs.sdk import from_pytorchjob as from_pytorchjob
    from kfjob.api.specs.sdk import to_pytorchjob as to_pytorchjob
    from kfjob.errors import KfjobError as KfjobError
    from kfjob.events import JobPhase as JobPhase
    from kfjob.image.references import ImageRef as ImageRef
    from kfjob.spec.image import ImageSpec as ImageSpec
    from kfjob.spec.job import JobSpec as JobSpec
    from kfjob.spec.job import Rendezvous as Rendezvous
    from kfjob.spec.job import Resources as Resources
    from kfjob.spec.job import Restarts as Restarts
    from kfjob.spec.job import Volume as Volume
    from kfjob.spec.train import TrainSpec as TrainSpec

__version__ = "0.1.0"

_HOME = {
    "ImageRef": "kfjob.image.references",
    "ImageSpec": "kfjob.spec.image",
    "JobPhase": "kfjob.events",
    "JobSpec": "kfjob.spec.job",
    "KfjobError": "kfjob.errors",
    "Rendezvous": "kfjob.spec.job",
    "Resources": "kfjob.spec.job",
    "Restarts": "kfjob.spec.job",
    "Run": "kfjob.api.run",
    "TrainSpec": "kfjob.spec.train",
    "Volume": "kfjob.spec.job",
    "attach": "kfjob.api.attach",
    "from_pytorchjob": "kfjob.api.specs.sdk",
    "push_image": "kfjob.api.images.push_image",
    "submit": "kfjob.api.run",
    "to_pytorchjob": "kfjob.api.specs.sdk",
}

__all__ = [*_HOME, "__version__"]  # noqa: PLE0604 - a table of names


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `kfjob` has no attribute `{name}`")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
