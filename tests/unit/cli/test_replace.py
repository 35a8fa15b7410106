"""Several commands replace or stop one job at once: one launch is left, and the commands that lose get an error."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import kfjob
from kfjob import JobSpec
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.base.concurrency import Task
from kfjob.base.errors import AlreadyExists, KfjobError, NotFound
from tests.unit.cli.object_server import ObjectServer

SPEC = JobSpec(name="train", image="a:1", nodes=2, command=["torchrun", "train.py"])
KEY = ("default", "pytorchjobs", "train")
RACERS = 3


def settings(here) -> Settings:
    return Settings(state=here / "state", backend="kubernetes")


def race(actions: list[Callable[[], object]]) -> list[object]:
    """Return what each action returned or raised; they run at the same time."""

    def run(action: Callable[[], object]) -> object:
        try:
            return action()
        except KfjobError as err:
            return err

    tasks = [Task(lambda action=action: run(action), name="race") for action in actions]  # type: ignore[misc]
    return [task.result() for task in tasks]


@pytest.fixture
def run(cluster, here, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Submit the job, and let every racer see it before one of them stops it: all check their images at the same time."""
    first = kfjob.submit(SPEC, settings=settings(here))
    barrier = threading.Barrier(RACERS)
    monkeypatch.setattr("kfjob.api.lifecycle.preparation.check_job_images", lambda *_args, **_options: barrier.wait(timeout=30))
    return first


def check_one_winner(results: list[object], cluster: ObjectServer) -> None:
    winners = [result for result in results if isinstance(result, Run)]
    losers = [result for result in results if isinstance(result, KfjobError)]
    assert len(winners) == 1, results
    assert len(losers) == RACERS - 1
    assert all(isinstance(err, AlreadyExists) and "in the meantime" in err.title for err in losers), losers
    assert cluster.objects[KEY]["metadata"]["uid"] == winners[0]._reader.ref.uid
    assert [uid for uid in cluster.created if uid.startswith("uid-train")][-1] == winners[0]._reader.ref.uid
    assert len(cluster.created) == 2, "the losers created nothing"


@pytest.mark.usefixtures("run")
def test_of_several_replacing_submits_one_wins(cluster, here):
    results = race([lambda: kfjob.submit(SPEC, settings=settings(here), replace=True)] * RACERS)
    check_one_winner(results, cluster)


def test_of_several_changed_relaunches_one_wins(cluster, run):
    check_one_winner(race([lambda: run.relaunch(changes={"nodes": 3})] * RACERS), cluster)
    assert cluster.objects[KEY]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3


@pytest.mark.parametrize("action", [Run.stop, Run.relaunch])
def test_an_earlier_launch_cannot_change_a_later_one(cluster, here, action):
    run = kfjob.submit(SPEC, settings=settings(here))
    again = run.relaunch()
    with pytest.raises(NotFound, match="a later one has its name"):
        action(run)
    assert cluster.objects[KEY]["metadata"]["uid"] == again._reader.ref.uid


def test_stops_and_relaunches_at_once_leave_at_most_one_launch(cluster, here):
    run = kfjob.submit(SPEC, settings=settings(here))
    results = race([run.stop, run.relaunch, run.stop, run.relaunch])
    relaunched = [result for result in results if isinstance(result, Run)]
    errors = [result for result in results if isinstance(result, KfjobError)]
    assert len(relaunched) == 1, results
    assert all(isinstance(err, AlreadyExists | NotFound) for err in errors)
    assert cluster.objects[KEY]["metadata"]["uid"] == relaunched[0]._reader.ref.uid


def test_a_replacing_submit_starts_a_job_whose_name_is_free(cluster, here):
    run = kfjob.submit(SPEC, settings=settings(here), replace=True)
    assert cluster.objects[KEY]["metadata"]["uid"] == run._reader.ref.uid
