"""A backend that plays a script: for tests of whatever stands on a Backend, ours and those of other packages.

    fake = FakeBackend()
    fake.play("train", JobChanged(phase=JobPhase.RUNNING), LogLine(pod="train-worker-0", text="…"), JobChanged(phase=…))

`watch` gives the states in order, `logs` the lines of a pod, `get` the newest states. Nothing waits, nothing runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct, field

from kfjob.backends.base import JobRef, LogRange
from kfjob.errors import AlreadyExists, NotFound, Refused
from kfjob.events import Event, JobChanged, JobPhase, JobSnapshot, KubernetesEvent, LogGap, LogLine, PodChanged, WorkloadStatus
from kfjob.plan import BackendName, JobPlan


class _Job(Struct):
    snapshot: JobSnapshot
    script: list[Event] = field(default_factory=list)


class FakeBackend:
    """Jobs in a dictionary."""

    name: ClassVar[BackendName] = "kubernetes"

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], _Job] = {}
        self.calls: builtins.list[tuple[str, str]] = []  # (verb, job) of what changed something

    def play(
        self, name: str, *script: Event, namespace: str = "default", spec: str | None = None, launch: str = "l1"
    ) -> JobRef:
        """Put a job there whose events are `script`."""
        snapshot = JobSnapshot(
            name=name,
            namespace=namespace,
            job=next((e for e in reversed(script) if isinstance(e, JobChanged)), JobChanged(phase=JobPhase.PENDING)),
            pods=tuple({e.pod: e for e in script if isinstance(e, PodChanged)}.values()),
            uid=f"uid-{launch}",
            launch=launch,
            spec=spec,
        )
        self.jobs[namespace, name] = _Job(snapshot, list(script))
        return JobRef(backend=self.name, namespace=namespace, name=name, uid=snapshot.uid, launch=launch)

    def submit(self, plan: JobPlan) -> JobRef:
        """As the protocol says; the job stays pending."""
        if (plan.namespace, plan.name) in self.jobs:
            raise AlreadyExists(f"job `{plan.name}` exists already", hint=f"`kfjob stop {plan.name}` removes it")
        self.calls.append(("submit", plan.name))
        return self.play(plan.name, namespace=plan.namespace, spec=plan.spec_json, launch=plan.launch)

    def apply(self, plan: JobPlan) -> JobRef:
        """Always refused."""
        self.get(plan.name, namespace=plan.namespace)
        raise Refused(
            f"job `{plan.name}` cannot be changed in place",
            hint=f"`kfjob stop {plan.name}`, then `kfjob submit` with the new spec",
        )

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """As the protocol says."""
        return self._job(name, namespace).snapshot

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """As the Kubernetes backend's."""
        if (namespace, name) not in self.jobs:
            return "", ()
        snapshot = self.get(name, namespace=namespace)
        return snapshot.uid, snapshot.pods

    def list(self, *, namespace: str) -> list[JobSnapshot]:
        """As the protocol says."""
        return [job.snapshot for (place, _), job in self.jobs.items() if place == namespace]

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """The states of the script."""
        yield from (e for e in self._job(ref.name, ref.namespace).script if isinstance(e, JobChanged | PodChanged))

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """Those of the script."""
        script = self._job(ref.name, ref.namespace).script
        return [e for e in script if isinstance(e, KubernetesEvent | WorkloadStatus)]

    def logs(self, ref: JobRef, pod: str, wanted: LogRange) -> Iterator[LogLine | LogGap]:
        """The lines of the script."""
        script = self._job(ref.name, ref.namespace).script
        lines: builtins.list[LogLine | LogGap] = [e for e in script if isinstance(e, LogLine | LogGap) and e.pod == pod]
        if not lines:
            raise NotFound(f"pod `{pod}` has no log")
        yield from lines if wanted.tail is None else lines[max(len(lines) - wanted.tail, 0) :]

    def stop(self, ref: JobRef, *, timeout: float) -> None:  # noqa: ARG002 - the protocol's signature
        """As the protocol says."""
        self._job(ref.name, ref.namespace)
        self.calls.append(("stop", ref.name))
        del self.jobs[ref.namespace, ref.name]

    def _job(self, name: str, namespace: str) -> _Job:
        if (namespace, name) not in self.jobs:
            raise NotFound(f"there is no job `{name}` in namespace `{namespace}`", hint="`kfjob list` shows what there is")
        return self.jobs[namespace, name]
