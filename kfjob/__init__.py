"""kfjob: from a job spec to a loss curve, on a Kubernetes cluster or on this machine.

    from kfjob import JobSpec, submit

    run = submit(JobSpec(name="llama", image="…", nodes=2, command="torchrun train.py"))
    print(run.master().pod)
    run.wait(check=True)

Names are imported when they are first used, so `import kfjob` is fast. `kfjob.aio` has the functions that wait as coroutines.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the value of typing's; the command line imports this package before it can handle Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from kfjob.api.images.push_image import push_image as push_image
    from kfjob.api.jobs import apply as apply
    from kfjob.api.jobs import attach as attach
    from kfjob.api.jobs import list_jobs as list_jobs
    from kfjob.api.jobs import render as render
    from kfjob.api.jobs import stop as stop
    from kfjob.api.jobs import submit as submit
    from kfjob.api.run import Run as Run
    from kfjob.api.settings import Settings as Settings
    from kfjob.api.specs.sdk import from_pytorchjob as from_pytorchjob
    from kfjob.api.specs.sdk import to_pytorchjob as to_pytorchjob
    from kfjob.errors import AlreadyExists as AlreadyExists
    from kfjob.errors import BackendError as BackendError
    from kfjob.errors import Forbidden as Forbidden
    from kfjob.errors import JobFailed as JobFailed
    from kfjob.errors import JobStopped as JobStopped
    from kfjob.errors import JobUnfinished as JobUnfinished
    from kfjob.errors import KfjobError as KfjobError
    from kfjob.errors import NoEvidence as NoEvidence
    from kfjob.errors import NotFound as NotFound
    from kfjob.errors import Problem as Problem
    from kfjob.errors import Refused as Refused
    from kfjob.errors import SpecError as SpecError
    from kfjob.errors import Unreachable as Unreachable
    from kfjob.errors import UsageError as UsageError
    from kfjob.errors import WaitTimeout as WaitTimeout
    from kfjob.events import JobPhase as JobPhase
    from kfjob.events import JobSnapshot as JobSnapshot
    from kfjob.events import PodPhase as PodPhase
    from kfjob.image.references import ImageRef as ImageRef
    from kfjob.observe.diagnose.diagnosis import Diagnosis as Diagnosis
    from kfjob.observe.master import Confidence as Confidence
    from kfjob.observe.master import Master as Master
    from kfjob.observe.training import Training as Training
    from kfjob.observe.view import JobView as JobView
    from kfjob.spec.image import ImageSpec as ImageSpec
    from kfjob.spec.job import JobSpec as JobSpec
    from kfjob.spec.pod import EnvFromSource as EnvFromSource
    from kfjob.spec.pod import EnvVarSource as EnvVarSource
    from kfjob.spec.pod import Pod as Pod
    from kfjob.spec.pod import Resources as Resources
    from kfjob.spec.rendezvous import Elastic as Elastic
    from kfjob.spec.rendezvous import Rendezvous as Rendezvous
    from kfjob.spec.roles import MasterPod as MasterPod
    from kfjob.spec.scheduling import Gang as Gang
    from kfjob.spec.scheduling import HyperPod as HyperPod
    from kfjob.spec.scheduling import Placement as Placement
    from kfjob.spec.scheduling import Restarts as Restarts
    from kfjob.spec.scheduling import RunPolicy as RunPolicy
    from kfjob.spec.scheduling import Scheduling as Scheduling
    from kfjob.spec.scheduling import Toleration as Toleration
    from kfjob.spec.train import TrainSpec as TrainSpec
    from kfjob.spec.volumes import Volume as Volume
    from kfjob.spec.watchdog import Watchdog as Watchdog

__version__ = "0.1.0"

_MODULES = {
    "AlreadyExists": "kfjob.errors",
    "BackendError": "kfjob.errors",
    "Confidence": "kfjob.observe.master",
    "Diagnosis": "kfjob.observe.diagnose.diagnosis",
    "Elastic": "kfjob.spec.rendezvous",
    "EnvVarSource": "kfjob.spec.pod",
    "EnvFromSource": "kfjob.spec.pod",
    "Forbidden": "kfjob.errors",
    "Gang": "kfjob.spec.scheduling",
    "HyperPod": "kfjob.spec.scheduling",
    "ImageRef": "kfjob.image.references",
    "ImageSpec": "kfjob.spec.image",
    "JobFailed": "kfjob.errors",
    "JobPhase": "kfjob.events",
    "JobSnapshot": "kfjob.events",
    "JobSpec": "kfjob.spec.job",
    "JobStopped": "kfjob.errors",
    "JobUnfinished": "kfjob.errors",
    "JobView": "kfjob.observe.view",
    "KfjobError": "kfjob.errors",
    "Master": "kfjob.observe.master",
    "NoEvidence": "kfjob.errors",
    "NotFound": "kfjob.errors",
    "MasterPod": "kfjob.spec.roles",
    "Placement": "kfjob.spec.scheduling",
    "Pod": "kfjob.spec.pod",
    "PodPhase": "kfjob.events",
    "Problem": "kfjob.errors",
    "Refused": "kfjob.errors",
    "Rendezvous": "kfjob.spec.rendezvous",
    "Resources": "kfjob.spec.pod",
    "Restarts": "kfjob.spec.scheduling",
    "Run": "kfjob.api.run",
    "RunPolicy": "kfjob.spec.scheduling",
    "Scheduling": "kfjob.spec.scheduling",
    "Settings": "kfjob.api.settings",
    "SpecError": "kfjob.errors",
    "Toleration": "kfjob.spec.scheduling",
    "TrainSpec": "kfjob.spec.train",
    "Training": "kfjob.observe.training",
    "Unreachable": "kfjob.errors",
    "UsageError": "kfjob.errors",
    "Volume": "kfjob.spec.volumes",
    "WaitTimeout": "kfjob.errors",
    "Watchdog": "kfjob.spec.watchdog",
    "apply": "kfjob.api.jobs",
    "attach": "kfjob.api.jobs",
    "from_pytorchjob": "kfjob.api.specs.sdk",
    "list_jobs": "kfjob.api.jobs",
    "push_image": "kfjob.api.images.push_image",
    "render": "kfjob.api.jobs",
    "stop": "kfjob.api.jobs",
    "submit": "kfjob.api.jobs",
    "to_pytorchjob": "kfjob.api.specs.sdk",
}

__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 - a table of names


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("kfjob.aio")
    if name not in _MODULES:
        raise AttributeError(f"module `kfjob` has no attribute `{name}`")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
