"""Change a live job in place: how many nodes it has, and whether its pods exist or the job is suspended."""

from __future__ import annotations

import time

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.lifecycle.recorded_job import parse_recorded_spec
from kfjob.api.lifecycle.spec_change import SpecChange
from kfjob.api.lifecycle.start import apply
from kfjob.api.reader import open_snapshot, read_live
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.spec_source import SpecSource
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.base.concurrency import waiting_for
from kfjob.base.errors import UsageError, WaitTimeout
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.registry import find_kind
from kfjob.spec.job import JobSpec

PAUSE_SECONDS = 1.0
"""Time between two looks whether the pods are gone."""


def scale(target: Target, job: str, nodes: int, *, uid: str = "") -> None:
    """Change the number of nodes of a live elastic job.

    Raises:
        NotFound: the job does not exist; with `uid`, no job of this uid.
        UsageError: the job is not elastic, its kind has a fixed number of pods, or its spec is not recorded.
        SpecError: the number is not within the limits of `elastic`.
    """
    live = read_live(target, job, uid)
    spec = _read_spec(live)
    kind = find_kind(live.job_kind)
    if spec.elastic is None or not kind.is_scalable:
        reason = "its spec has no `elastic`" if spec.elastic is None else f"it is a {kind.name}"
        title = f"job `{job}` has a fixed number of nodes, because {reason}"
        raise UsageError(title, hint=f"`kfjob relaunch {job} --set nodes={nodes}` stops it, and starts it with {nodes}")
    _change(target, live, spec, f"nodes={nodes}")


def suspend(target: Target, job: str, *, timeout: float = STOP_TIMEOUT, uid: str = "") -> None:
    """Remove the pods of a live job until `resume`. Their logs go to the archive first, as the logs of earlier containers.

    Raises:
        NotFound: the job does not exist; with `uid`, no job of this uid.
        UsageError: the job runs on this machine, a queue decides when it runs, or its spec is not recorded.
        WaitTimeout: its pods still exist after `timeout` seconds.
    """
    live = read_live(target, job, uid)
    spec = _check_suspendable(target, live)
    with archive_job(open_snapshot(target, live), live) as path:
        _change(target, live, spec, "run.suspend=true")
        with waiting_for(f"the pods of `{job}` to end", timeout):
            _wait_without_pods(target, live, timeout)
    folder.keep_as_previous(path, (pod.pod for pod in live.pods))


def resume(target: Target, job: str, *, uid: str = "") -> None:
    """Create the pods of a suspended job again.

    Raises:
        NotFound, UsageError: as `suspend`.
    """
    live = read_live(target, job, uid)
    _change(target, live, _check_suspendable(target, live), "run.suspend=false")


def _read_spec(live: JobSnapshot) -> JobSpec:
    if live.spec is None:
        title = f"job `{live.name}` has no record of a spec, because kfjob did not submit it from one"
        raise UsageError(title, hint="`kubectl edit` changes its manifest")
    return parse_recorded_spec(live, live.spec)


def _check_suspendable(target: Target, live: JobSnapshot) -> JobSpec:
    hint = f"`kfjob stop {live.name}` and `kfjob relaunch {live.name}` do it: a training with checkpoints resumes"
    if not target.capabilities.has_api_server:
        raise UsageError(f"job `{live.name}` runs on this machine, where jobs cannot be suspended", hint=hint)
    spec = _read_spec(live)
    if spec.scheduling.queue:
        raise UsageError(f"the queue `{spec.scheduling.queue}` decides when job `{live.name}` runs", hint=hint)
    return spec


def _change(target: Target, live: JobSnapshot, spec: JobSpec, assignment: str) -> None:
    loaded = SpecChange(assignments=(assignment,)).apply(spec)
    source = SpecSource(loaded, start_folder=live.start_folder)
    apply(source, target.change(job_kind=live.job_kind or None))  # its warnings were shown when it was submitted


def _wait_without_pods(target: Target, live: JobSnapshot, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while pods := target.get_job(live.name).pods:
        if time.monotonic() > deadline:
            cause = f"still there: {', '.join(f'`{pod.pod}`' for pod in pods)}"
            raise WaitTimeout(f"job `{live.name}` is suspended, but has pods after {timeout:g} s", cause=cause)
        time.sleep(PAUSE_SECONDS)
