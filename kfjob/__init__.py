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
    from kfjob.base.errors import AlreadyExists as AlreadyExists
    from kfjob.base.errors import BackendError as BackendError
    from kfjob.base.errors import Forbidden as Forbidden
    from kfjob.base.errors import JobFailed as JobFailed
    from kfjob.base.errors import JobStopped as JobStopped
    from kfjob.base.errors import JobUnfinished as JobUnfinished
    from kfjob.base.errors import KfjobError as KfjobError
    from kfjob.base.errors import NoEvidence as NoEvidence
    from kfjob.base.errors import NotFound as NotFound
    from kfjob.base.errors import Problem as Problem
    from kfjob.base.errors import Refused as Refused
    from kfjob.base.errors import SpecError as SpecError
    from kfjob.base.errors import Unreachable as Unreachable
    from kfjob.base.errors import UsageError as UsageError
    from kfjob.base.errors import WaitTimeout as WaitTimeout
    from kfjob.base.version import __version__ as __version__
    from kfjob.image.references import ImageRef as ImageRef
    from kfjob.joblog.diagnose.diagnosis import Diagnosis as Diagnosis
    from kfjob.joblog.events import JobPhase as JobPhase
    from kfjob.joblog.events import JobSnapshot as JobSnapshot
    from kfjob.joblog.events import PodPhase as PodPhase
    from kfjob.joblog.master.evidence import Confidence as Confidence
    from kfjob.joblog.master.evidence import Master as Master
    from kfjob.joblog.progress.training import Training as Training
    from kfjob.joblog.view.job_view import JobView as JobView
    from kfjob.spec.image import ImageSpec as ImageSpec
    from kfjob.spec.job import JobSpec as JobSpec
    from kfjob.spec.master import MasterPod as MasterPod
    from kfjob.spec.pod import EnvFromSource as EnvFromSource
    from kfjob.spec.pod import EnvVarSource as EnvVarSource
    from kfjob.spec.pod import Pod as Pod
    from kfjob.spec.pod import Resources as Resources
    from kfjob.spec.rendezvous import Elastic as Elastic
    from kfjob.spec.rendezvous import Rendezvous as Rendezvous
    from kfjob.spec.scheduling import Gang as Gang
    from kfjob.spec.scheduling import HyperPod as HyperPod
    from kfjob.spec.scheduling import Placement as Placement
    from kfjob.spec.scheduling import Restarts as Restarts
    from kfjob.spec.scheduling import RunPolicy as RunPolicy
    from kfjob.spec.scheduling import Scheduling as Scheduling
    from kfjob.spec.scheduling import Toleration as Toleration
    from kfjob.spec.volumes import Volume as Volume
    from kfjob.spec.watchdog import Watchdog as Watchdog
    from kfjob.trainspec.train_spec import TrainSpec as TrainSpec

_MODULES = {
    "__version__": "kfjob.base.version",
    "AlreadyExists": "kfjob.base.errors",
    "BackendError": "kfjob.base.errors",
    "Confidence": "kfjob.joblog.master.evidence",
    "Diagnosis": "kfjob.joblog.diagnose.diagnosis",
    "Elastic": "kfjob.spec.rendezvous",
    "EnvVarSource": "kfjob.spec.pod",
    "EnvFromSource": "kfjob.spec.pod",
    "Forbidden": "kfjob.base.errors",
    "Gang": "kfjob.spec.scheduling",
    "HyperPod": "kfjob.spec.scheduling",
    "ImageRef": "kfjob.image.references",
    "ImageSpec": "kfjob.spec.image",
    "JobFailed": "kfjob.base.errors",
    "JobPhase": "kfjob.joblog.events",
    "JobSnapshot": "kfjob.joblog.events",
    "JobSpec": "kfjob.spec.job",
    "JobStopped": "kfjob.base.errors",
    "JobUnfinished": "kfjob.base.errors",
    "JobView": "kfjob.joblog.view.job_view",
    "KfjobError": "kfjob.base.errors",
    "Master": "kfjob.joblog.master.evidence",
    "NoEvidence": "kfjob.base.errors",
    "NotFound": "kfjob.base.errors",
    "MasterPod": "kfjob.spec.master",
    "Placement": "kfjob.spec.scheduling",
    "Pod": "kfjob.spec.pod",
    "PodPhase": "kfjob.joblog.events",
    "Problem": "kfjob.base.errors",
    "Refused": "kfjob.base.errors",
    "Rendezvous": "kfjob.spec.rendezvous",
    "Resources": "kfjob.spec.pod",
    "Restarts": "kfjob.spec.scheduling",
    "Run": "kfjob.api.run",
    "RunPolicy": "kfjob.spec.scheduling",
    "Scheduling": "kfjob.spec.scheduling",
    "Settings": "kfjob.api.settings",
    "SpecError": "kfjob.base.errors",
    "Toleration": "kfjob.spec.scheduling",
    "TrainSpec": "kfjob.trainspec.train_spec",
    "Training": "kfjob.joblog.progress.training",
    "Unreachable": "kfjob.base.errors",
    "UsageError": "kfjob.base.errors",
    "Volume": "kfjob.spec.volumes",
    "WaitTimeout": "kfjob.base.errors",
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

__all__ = [*_MODULES]  # noqa: PLE0604 - a table of names


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("kfjob.aio")
    if name not in _MODULES:
        raise AttributeError(f"module `kfjob` has no attribute `{name}`")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
