"""Tests of the Kubernetes backend with a real API server, operator and kubelet, in addition to the contract suite."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.backends.base import JobRef, LogRange
from kfjob.base.errors import AlreadyExists, KfjobError, NotFound, Refused, WaitTimeout
from kfjob.base.http import Limits, Stream
from kfjob.cluster import requests
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.cluster.requests import Request
from kfjob.cluster.transport import Transport
from kfjob.joblog.events import JobChanged, JobPhase, LogGap, LogLine, OpenLine, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import prefilter_factory
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.kinds.registry import find_kind
from kfjob.spec.job import Volume
from tests.cluster.facts import PATIENCE, Space, apply, submit, until

EXITS_ON_SIGTERM = [
    "python3",
    "-c",
    "import signal\nsignal.signal(15, lambda *_: exit(0))\nprint('up', flush=True)\nwhile True: signal.pause()",
]
IGNORES_SIGTERM = ["python3", "-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"]  # SIGTERM does not end PID 1


def all_pods_run(backend: KubernetesBackend, ref: JobRef) -> bool:
    pods = backend.get(ref.name, namespace=ref.namespace).pods
    return bool(pods) and all(pod.phase is PodPhase.RUNNING and pod.ready for pod in pods)


def exists(space: Space, resource: str, name: str) -> bool:
    try:
        is_job = resource == "pytorchjobs"
        request = requests.get_job(find_kind(""), space.name, name) if is_job else requests.get(resource, space.name, name)
        space.client.call(request)
    except NotFound:
        return False
    return True


def test_own_etcd_is_created_and_deleted_with_the_job(space: Space, backend: KubernetesBackend, name: str):
    plan = space.plan(name, EXITS_ON_SIGTERM, rendezvous="etcd")
    ref = submit(backend, plan)
    etcd = f"{name}-etcd"
    for resource in ("pods", "services"):
        resource_object = space.client.call(requests.get(resource, space.name, etcd))
        assert [owner["uid"] for owner in resource_object["metadata"]["ownerReferences"]] == [ref.uid]
    until(lambda: all_pods_run(backend, ref))  # the workers' init container waits for etcd
    (line, *_) = backend.logs(ref, etcd, LogRange(container="etcd", tail=1))
    assert isinstance(line, LogLine)
    with pytest.raises(NotFound, match="has no container `etcd`"):
        list(backend.logs(ref, f"{name}-worker-0", LogRange(container="etcd", follow=True)))
    assert [pod.pod for pod in backend.get(name, namespace=space.name).pods] == [f"{name}-worker-0"]
    backend.stop(ref, timeout=PATIENCE)
    assert not exists(space, "pods", etcd)
    assert not exists(space, "services", etcd)


def test_job_is_deleted_if_its_etcd_cannot_be_created(space: Space, backend: KubernetesBackend, name: str):
    metadata = {"name": f"{name}-etcd", "namespace": space.name}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
    space.client.call(requests.create(service))
    with pytest.raises(AlreadyExists, match=f"there is a service `{name}-etcd`"):
        submit(backend, space.plan(name, EXITS_ON_SIGTERM, rendezvous="etcd"))
    until(lambda: not exists(space, "pytorchjobs", name))
    assert exists(space, "services", f"{name}-etcd")


def test_namespace_does_not_exist(space: Space, backend: KubernetesBackend, name: str):
    with pytest.raises(NotFound, match="there is no namespace `not-there`"):
        submit(backend, replace(space.plan(name, EXITS_ON_SIGTERM), namespace="not-there"))
    assert backend.list(namespace="not-there") == []


class OtherApiGroup:
    """A transport that sends requests for PyTorchJobs to a missing API group, as if the operator were not installed."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def open(self, request: Request, limits: Limits) -> Stream:
        return self._inner.open(replace(request, path=request.path.replace("kubeflow.org", "other.org")), limits)

    def open_websocket(self, request: Request) -> object:
        return self._inner.open_websocket(request)

    def close(self) -> None:
        self._inner.close()


def test_operator_is_not_installed(space: Space, name: str):
    backend = KubernetesBackend(Client(OtherApiGroup(space.client._transport), host=space.client.host))
    for call in (
        lambda: submit(backend, space.plan(name, EXITS_ON_SIGTERM)),
        lambda: backend.get(name, namespace=space.name),
        lambda: backend.list(namespace=space.name),
    ):
        with pytest.raises(Refused, match="the training operator is not installed"):
            call()


def test_apply_adds_workers_and_refuses_other_changes(space: Space, backend: KubernetesBackend, name: str):
    elastic: dict[str, Any] = {"elastic": {"min": 1, "max": 2}}
    ref = submit(backend, space.plan(name, EXITS_ON_SIGTERM, launch="first", **elastic))
    assert apply(backend, space.plan(name, EXITS_ON_SIGTERM, launch="first", nodes=2, **elastic)) == ref
    until(lambda: len(backend.get(name, namespace=space.name).pods) == 2)
    with pytest.raises(Refused) as caught:
        apply(backend, space.plan(name, EXITS_ON_SIGTERM, launch="first", nodes=2, env={"COLOUR": "blue"}, **elastic))
    assert "containers[pytorch].env[COLOUR]" in (caught.value.cause or "")
    assert f"kfjob stop {name}" in str(caught.value)
    snapshot = backend.get(name, namespace=space.name)
    assert (snapshot.uid, snapshot.launch) == (ref.uid, "first")
    backend.stop(ref, timeout=PATIENCE)
    with pytest.raises(NotFound):
        apply(backend, space.plan(name, EXITS_ON_SIGTERM))


def test_foreign_job_is_listed_but_not_changed(space: Space, backend: KubernetesBackend, name: str):
    plan = space.plan(name, EXITS_ON_SIGTERM)
    manifest = compile_pytorchjob(plan)
    manifest["metadata"] = {"name": name, "namespace": space.name}
    manifest["spec"]["runPolicy"]["suspend"] = True
    space.client.call(requests.create(manifest))
    until(lambda: backend.get(name, namespace=space.name).job.phase is JobPhase.SUSPENDED)
    (job,) = (job for job in backend.list(namespace=space.name) if job.name == name)
    assert (job.launch, job.spec, job.image, job.pods) == ("", None, plan.image, ())
    with pytest.raises(Refused, match="was not submitted by kfjob"):
        apply(backend, plan)


def test_stop_timeout_names_the_pods(space: Space, backend: KubernetesBackend, name: str):
    ref = submit(backend, replace(space.plan(name, IGNORES_SIGTERM), grace_seconds=4))
    until(lambda: all_pods_run(backend, ref))
    with pytest.raises(WaitTimeout) as caught:
        backend.stop(ref, timeout=0.5)
    assert f"`{name}-worker-0`" in (caught.value.cause or "")
    (pod,) = backend.get(name, namespace=space.name).pods
    assert pod.reason == "Terminating"
    backend.stop(ref, timeout=PATIENCE)  # the deletion continues
    assert not exists(space, "pods", f"{name}-worker-0")
    assert not exists(space, "services", f"{name}-worker-0")


FAILS_ONCE = """
import os, sys, time
for number in range(40):
    print('out', number, flush=True)
    print('err', number, file=sys.stderr, flush=True)
    if number % 10 == 9:
        time.sleep(0.3)
if not os.path.exists('/volume/second'):
    open('/volume/second', 'w').close()
    sys.exit(1)
"""


def test_follow_across_a_container_restart(space: Space, backend: KubernetesBackend, name: str):
    plan = space.plan(name, ["python3", "-c", FAILS_ONCE], restarts={"policy": "OnFailure"})
    volume = Volume(name="state", mount_path="/volume", empty_dir=True)
    ref = submit(backend, replace(plan, volumes=(*plan.volumes, volume)))
    lines = list(backend.logs(ref, f"{name}-worker-0", LogRange(follow=True)))
    assert not [line for line in lines if isinstance(line, LogGap)]
    log_lines = [line for line in lines if isinstance(line, LogLine)]
    first, second = dict.fromkeys(line.container_id for line in log_lines)
    for container in (first, second):
        for stream in ("out", "err"):
            texts = [line.text for line in log_lines if line.container_id == container and line.text.startswith(stream)]
            assert texts == [f"{stream} {number}" for number in range(40)]
    (pod,) = backend.get(name, namespace=space.name).pods
    assert (pod.restarts, pod.container_id) == (1, second)


BAR = """
import sys, time
print('begin', flush=True)
for step in range(1, 801):
    sys.stderr.write(f'\\rEpoch 0: {step // 8:3d}%|{"#" * 20}| {step}/800 [00:01<00:09,  4.50it/s, train_loss=2.50]')
    sys.stderr.flush()
    time.sleep(0.01)
sys.stderr.write('\\n')
"""


def test_progress_bar_shows_before_its_line_ends(space: Space, backend: KubernetesBackend, name: str):
    """The container runtime passes on a part of a line every 16 KiB."""
    ref = submit(backend, space.plan(name, ["python3", "-c", BAR]))
    line_filter = prefilter_factory(ObserveConfig())
    assert line_filter
    events = list(backend.filtered_logs(ref, f"{name}-worker-0", LogRange(follow=True), line_filter))
    begin, whole = (event for event in events if isinstance(event, LogLine))
    partial = [event for event in events if isinstance(event, OpenLine)]
    assert (begin.text, whole.text.count("\r")) == ("begin", 800)
    assert len(partial) >= 2
    view = JobView()
    for line in partial:
        step, view = view.training.step or 0, reduce_all(view, [line])
        assert step < (view.training.step or 0) < 800
        assert view.training.loss == 2.5
        assert line.time > (whole.time or 0)
    view = reduce_all(view, [whole])
    assert (view.training.step, view.lines, view.training.last_time) == (800, 1, partial[-1].time)


def test_follow_and_watch_survive_an_outage(space: Space, name: str, tmp_path):
    with space.through_a_proxy(tmp_path) as (backend, proxy):
        ref = submit(backend, space.plan(name, ["python3", "-c", COUNT]))
        texts: list[str] = []
        phases: list[JobPhase] = []
        failures: list[KfjobError] = []

        def read() -> None:
            try:
                lines = backend.logs(ref, f"{name}-worker-0", LogRange(follow=True))
                texts.extend(line.text if isinstance(line, LogLine) else str(line) for line in lines)
            except KfjobError as err:
                failures.append(err)

        def watch() -> None:
            try:
                phases.extend(event.phase for event in backend.watch(ref) if isinstance(event, JobChanged))
            except KfjobError as err:
                failures.append(err)

        threads = [threading.Thread(target=work, daemon=True) for work in (read, watch)]
        for thread in threads:
            thread.start()
        until(lambda: len(texts) > 50)
        for _ in range(3):
            count = len(texts)
            proxy.cut()
            until(lambda count=count: len(texts) > count + 20 or bool(failures))  # type: ignore[misc]
        proxy.cut(refuse_for=1.0)
        for thread in threads:
            thread.join(PATIENCE)
        assert failures == []
        assert texts == [f"line {number}" for number in range(600)]
        assert phases[-1] is JobPhase.SUCCEEDED


COUNT = """
import time
for number in range(600):
    print('line', number, flush=True)
    time.sleep(0.01)
"""
