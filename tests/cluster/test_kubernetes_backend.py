"""The Kubernetes backend on a real API server, operator and kubelet: what the contract suite does not ask of every backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from kfjob.backends.base import JobRef, LogRange
from kfjob.backends.kubernetes import requests
from kfjob.backends.kubernetes.backend import KubernetesBackend
from kfjob.backends.kubernetes.client import Client
from kfjob.backends.kubernetes.requests import Request
from kfjob.backends.kubernetes.transport import Stream, Transport
from kfjob.compile.pytorchjob import pytorchjob
from kfjob.errors import AlreadyExists, Forbidden, KfjobError, NotFound, Refused, WaitTimeout
from kfjob.events import JobChanged, JobPhase, LogGap, LogLine, PodPhase
from kfjob.observe.config import ObserveConfig
from kfjob.observe.prefilter import prefilter_factory
from kfjob.observe.view import JobView, reduce_all
from kfjob.spec.job import Volume
from tests.cluster.facts import PATIENCE, Space, until

OBEDIENT = [
    "python3",
    "-c",
    "import signal\nsignal.signal(15, lambda *_: exit(0))\nprint('up', flush=True)\nwhile True: signal.pause()",
]
STUBBORN = ["python3", "-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"]  # PID 1 does not die of a SIGTERM


def runs(backend: KubernetesBackend, ref: JobRef) -> bool:
    pods = backend.get(ref.name, namespace=ref.namespace).pods
    return bool(pods) and all(pod.phase is PodPhase.RUNNING and pod.ready for pod in pods)


def is_there(space: Space, resource: str, name: str) -> bool:
    try:
        space.client.call(requests.get(resource, space.name, name))
    except NotFound:
        return False
    return True


def test_a_job_with_its_own_etcd_comes_and_goes_as_one(space: Space, backend: KubernetesBackend, name: str):
    plan = space.plan(name, OBEDIENT, rendezvous="etcd")
    ref = backend.submit(plan)
    etcd = f"{name}-etcd"
    for resource in ("pods", "services"):
        thing = space.client.call(requests.get(resource, space.name, etcd))
        assert [one["uid"] for one in thing["metadata"]["ownerReferences"]] == [ref.uid]
    until(lambda: runs(backend, ref))  # the workers' init container waits for an etcd that answers
    (line, *_) = backend.logs(ref, etcd, LogRange(container="etcd", tail=1))
    assert isinstance(line, LogLine)
    with pytest.raises(NotFound, match="has no container `etcd`"):
        list(backend.logs(ref, f"{name}-worker-0", LogRange(container="etcd", follow=True)))
    assert [pod.pod for pod in backend.get(name, namespace=space.name).pods] == [f"{name}-worker-0"]
    backend.stop(ref, timeout=PATIENCE)
    assert not is_there(space, "pods", etcd)
    assert not is_there(space, "services", etcd)


def test_a_job_whose_etcd_cannot_be_made_is_not_left_behind(space: Space, backend: KubernetesBackend, name: str):
    metadata = {"name": f"{name}-etcd", "namespace": space.name}
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
    space.client.call(requests.create(taken))
    with pytest.raises(AlreadyExists, match=f"there is a service `{name}-etcd`"):
        backend.submit(space.plan(name, OBEDIENT, rendezvous="etcd"))
    until(lambda: not is_there(space, "pytorchjobs", name))
    assert is_there(space, "services", f"{name}-etcd")


def test_the_submitters_rights_are_enough(space: Space, name: str):
    with space.facts.user("submitter", space.name) as submitter:
        ref = submitter.submit(space.plan(name, OBEDIENT))
        (line, *_) = submitter.logs(ref, f"{name}-worker-0", LogRange(follow=True, limit_bytes=3))
        assert isinstance(line, LogLine)
        assert line.text == "up"
        until(lambda: runs(submitter, ref))
        assert name in {job.name for job in submitter.list(namespace=space.name)}
        watching = submitter.watch(ref)
        assert next(watching).phase is JobPhase.RUNNING
        assert submitter.apply(space.plan(name, OBEDIENT, launch="2")) == ref
        submitter.stop(ref, timeout=PATIENCE)
        assert list(watching)[-1].phase is JobPhase.STOPPED


def test_the_submitters_rights_are_enough_for_an_own_etcd(space: Space, name: str):
    with space.facts.user("submitter", space.name) as submitter:
        ref = submitter.submit(space.plan(name, OBEDIENT, rendezvous="etcd"))
        submitter.stop(ref, timeout=PATIENCE)


def test_without_rights_it_is_said_which_one_is_missing(space: Space, name: str):
    ref = JobRef(backend="kubernetes", namespace=space.name, name=name, uid="0b8e4a5e-7f0e-4b59-9d7e-3f1b2f6f3c11")
    plan = space.plan(name, OBEDIENT)
    with space.facts.user("nobody", space.name) as nobody:
        asked: dict[str, Callable[[], object]] = {
            "create pytorchjobs.kubeflow.org": lambda: nobody.submit(plan),
            "get pytorchjobs.kubeflow.org": lambda: nobody.get(name, namespace=space.name),
            "list pytorchjobs.kubeflow.org": lambda: list(nobody.watch(ref)),
            "delete pytorchjobs.kubeflow.org": lambda: nobody.stop(ref, timeout=1),
            "get pods": lambda: list(nobody.logs(ref, f"{name}-worker-0", LogRange(follow=True))),
        }
        for right, ask in asked.items():
            with pytest.raises(Forbidden) as caught:
                ask()
            assert f"`kubectl auth can-i {right} -n {space.name}`" in (caught.value.hint or "")


def test_what_the_operators_webhook_refuses(space: Space, backend: KubernetesBackend, name: str):
    with pytest.raises(Refused) as caught:
        backend.submit(replace(space.plan(name, OBEDIENT), image=""))
    assert "containers[0].image: Required value" in (caught.value.cause or "")
    assert not is_there(space, "pytorchjobs", name)


def test_what_the_api_servers_schema_refuses(space: Space, backend: KubernetesBackend, name: str):
    with pytest.raises(Refused) as caught:
        backend.submit(replace(space.plan(name, OBEDIENT), labels=(("team", "not a label!"),)))
    assert "not a label!" in (caught.value.cause or "")


def test_a_namespace_that_does_not_exist(space: Space, backend: KubernetesBackend, name: str):
    with pytest.raises(NotFound, match="there is no namespace `not-there`"):
        backend.submit(replace(space.plan(name, OBEDIENT), namespace="not-there"))
    assert backend.list(namespace="not-there") == []


class OtherGroup:
    """Sends what is about PyTorchJobs to an API group that this server does not have, as if the operator were not installed."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def open(self, request: Request, *, read_timeout: float) -> Stream:
        return self._inner.open(
            structs.replace(request, path=request.path.replace("kubeflow.org", "other.org")), read_timeout=read_timeout
        )

    def close(self) -> None:
        self._inner.close()


def test_an_operator_that_is_not_installed(space: Space, name: str):
    backend = KubernetesBackend(Client(OtherGroup(space.client._transport), host=space.client.host))
    for ask in (
        lambda: backend.submit(space.plan(name, OBEDIENT)),
        lambda: backend.get(name, namespace=space.name),
        lambda: backend.list(namespace=space.name),
    ):
        with pytest.raises(Refused, match="the training operator is not installed"):
            ask()


def test_workers_are_added_in_place_and_other_changes_need_a_relaunch(space: Space, backend: KubernetesBackend, name: str):
    elastic = {"elastic": {"min": 1, "max": 2}}
    ref = backend.submit(space.plan(name, OBEDIENT, launch="first", **elastic))
    assert backend.apply(space.plan(name, OBEDIENT, launch="second", nodes=2, **elastic)) == ref
    until(lambda: len(backend.get(name, namespace=space.name).pods) == 2)
    with pytest.raises(Refused) as caught:
        backend.apply(space.plan(name, OBEDIENT, launch="third", nodes=2, env={"COLOUR": "blue"}, **elastic))
    assert "containers[pytorch].env[COLOUR]" in (caught.value.cause or "")
    assert f"kfjob relaunch {name}" in str(caught.value)
    live = backend.get(name, namespace=space.name)
    assert (live.uid, live.launch) == (ref.uid, "first")
    backend.stop(ref, timeout=PATIENCE)
    with pytest.raises(NotFound):
        backend.apply(space.plan(name, OBEDIENT))


def test_jobs_of_others_are_listed_and_left_alone(space: Space, backend: KubernetesBackend, name: str):
    plan = space.plan(name, OBEDIENT)
    theirs = pytorchjob(plan)
    theirs["metadata"] = {"name": name, "namespace": space.name}
    theirs["spec"]["runPolicy"]["suspend"] = True
    space.client.call(requests.create(theirs))
    until(lambda: backend.get(name, namespace=space.name).job.phase is JobPhase.SUSPENDED)
    (listed,) = (job for job in backend.list(namespace=space.name) if job.name == name)
    assert (listed.launch, listed.spec, listed.image, listed.pods) == ("", None, plan.image, ())
    with pytest.raises(Refused, match="was not submitted by kfjob"):
        backend.apply(plan)


def test_a_stop_that_takes_too_long_names_the_pods(space: Space, backend: KubernetesBackend, name: str):
    ref = backend.submit(replace(space.plan(name, STUBBORN), grace_seconds=4))
    until(lambda: runs(backend, ref))
    with pytest.raises(WaitTimeout) as caught:
        backend.stop(ref, timeout=0.5)
    assert f"`{name}-worker-0`" in (caught.value.cause or "")
    (pod,) = backend.get(name, namespace=space.name).pods
    assert pod.reason == "Terminating"
    backend.stop(ref, timeout=PATIENCE)  # it goes on
    assert not is_there(space, "pods", f"{name}-worker-0")
    assert not is_there(space, "services", f"{name}-worker-0")


TWICE = """
import os, sys, time
for number in range(40):
    print('out', number, flush=True)
    print('err', number, file=sys.stderr, flush=True)
    if number % 10 == 9:
        time.sleep(0.3)
if not os.path.exists('/kept/second'):
    open('/kept/second', 'w').close()
    sys.exit(1)
"""


def test_a_restart_while_following(space: Space, backend: KubernetesBackend, name: str):
    plan = space.plan(name, ["python3", "-c", TWICE], restarts={"policy": "OnFailure"})
    kept = Volume(name="kept", mount_path="/kept", empty_dir=True)
    ref = backend.submit(replace(plan, volumes=(*plan.volumes, kept)))
    lines = list(backend.logs(ref, f"{name}-worker-0", LogRange(follow=True)))
    assert not [line for line in lines if isinstance(line, LogGap)]
    shown = [line for line in lines if isinstance(line, LogLine)]
    first, second = dict.fromkeys(line.container_id for line in shown)
    for container in (first, second):
        for stream in ("out", "err"):
            texts = [line.text for line in shown if line.container_id == container and line.text.startswith(stream)]
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


def test_a_bar_is_seen_while_its_line_is_open(space: Space, backend: KubernetesBackend, name: str):
    """The runtime hands on a part of a line when it has 16 KiB of it."""
    ref = backend.submit(space.plan(name, ["python3", "-c", BAR]))
    wanted = LogRange(follow=True, sieve=prefilter_factory(ObserveConfig()))
    begin, *drawn, whole = (line for line in backend.logs(ref, f"{name}-worker-0", wanted) if isinstance(line, LogLine))
    assert (begin.text, whole.open, whole.text.count("\r")) == ("begin", False, 800)
    assert len(drawn) >= 2
    assert all(line.open for line in drawn)
    view = JobView()
    for line in drawn:
        before, view = view.training.step or 0, reduce_all(view, [line])
        assert before < (view.training.step or 0) < 800
        assert view.training.loss == 2.5
        assert (line.time or 0) > (whole.time or 0)
    view = reduce_all(view, [whole])
    assert (view.training.step, view.lines, view.training.last_time) == (800, 1, drawn[-1].time)


def test_an_outage_is_not_noticed_by_who_follows_and_watches(space: Space, name: str, tmp_path):
    with space.through_a_proxy(tmp_path) as (backend, proxy):
        ref = backend.submit(space.plan(name, ["python3", "-c", COUNT]))
        seen: list[str] = []
        phases: list[JobPhase] = []
        failures: list[KfjobError] = []

        def read() -> None:
            try:
                lines = backend.logs(ref, f"{name}-worker-0", LogRange(follow=True))
                seen.extend(line.text if isinstance(line, LogLine) else str(line) for line in lines)
            except KfjobError as err:
                failures.append(err)

        def look() -> None:
            try:
                phases.extend(event.phase for event in backend.watch(ref) if isinstance(event, JobChanged))
            except KfjobError as err:
                failures.append(err)

        threads = [threading.Thread(target=work, daemon=True) for work in (read, look)]
        for thread in threads:
            thread.start()
        until(lambda: len(seen) > 50)
        for _ in range(5):
            before = len(seen)
            proxy.cut()
            until(lambda before=before: len(seen) > before + 20 or bool(failures))  # type: ignore[misc]
        proxy.cut(refuse_for=1.0)
        for thread in threads:
            thread.join(PATIENCE)
        assert failures == []
        assert seen == [f"line {number}" for number in range(600)]
        assert phases[-1] is JobPhase.SUCCEEDED


COUNT = """
import time
for number in range(600):
    print('line', number, flush=True)
    time.sleep(0.01)
"""
