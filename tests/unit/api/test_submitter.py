"""Who submitted a launch: recorded with it, and asked before a job of another user is replaced."""

from __future__ import annotations

import dataclasses
import getpass
import os

import pytest

import kfjob as api
from kfjob.api.preflight.examine import examine
from kfjob.api.settings import Settings, load_settings
from kfjob.backends.fake import FakeBackend
from kfjob.backends.kubernetes.objects import snapshot
from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.errors import AlreadyExists
from kfjob.events import JobChanged, JobPhase
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, Positions

SPEC = JobSpec(name="train", image="a:1", command=["python", "a.py"])
ENDED = JobChanged(phase=JobPhase.FAILED, ended=1_700_000_000_000_000_000)
ME = "me@here"


@pytest.fixture
def settings(here) -> Settings:
    return Settings(state=here / "state", backend="kubernetes", user=ME)


def play(fake: FakeBackend, submitted_by: str, *, spec: JobSpec | None = SPEC, state: JobChanged = ENDED) -> None:
    fake.play("train", state, spec=spec.model_dump_json(exclude_unset=True) if spec else None, submitted_by=submitted_by)


def test_submit_records_the_user(fake, settings):
    run = api.submit(SPEC, settings=settings)
    assert fake.jobs["default", "train"].snapshot.submitted_by == ME
    run.relaunch()
    assert fake.jobs["default", "train"].snapshot.submitted_by == ME


def test_own_launch_that_has_ended_is_replaced(fake, settings):
    play(fake, ME)
    api.submit(SPEC, settings=settings)
    assert fake.calls == [("stop", "train"), ("submit", "train")]


@pytest.mark.parametrize(
    ("submitted_by", "spec", "cause"),
    [
        ("you@there", SPEC, "`you@there` submitted it, and it ended at 2023-11-14 22:13:20 UTC (Failed)"),
        ("", SPEC, "it has no record of who submitted it, and it ended at 2023-11-14 22:13:20 UTC (Failed)"),
        (
            ME,
            None,
            f"`{ME}` submitted it, and it ended at 2023-11-14 22:13:20 UTC (Failed)\nit has no spec that kfjob can read",
        ),
    ],
)
def test_launch_of_another_user_is_not_replaced_without_being_asked(fake, settings, submitted_by, spec, cause):
    play(fake, submitted_by, spec=spec)
    with pytest.raises(AlreadyExists) as caught:
        api.submit(SPEC, settings=settings)
    assert (caught.value.title, caught.value.cause) == ("job `train` exists already", cause)
    assert "`kfjob stop train` archives its logs and removes it" in str(caught.value.hint)
    assert fake.calls == []
    api.submit(SPEC, settings=settings, replace=True)
    assert fake.calls == [("stop", "train"), ("submit", "train")]


def test_running_job_of_another_user_with_the_same_spec_is_found(fake, settings):
    play(fake, "you@there", state=JobChanged(phase=JobPhase.RUNNING))
    assert api.submit(SPEC, settings=settings).launch == "l1"
    assert fake.calls == []


def test_pytorchjob_carries_the_user_when_it_is_submitted_only():
    plan = resolve(SPEC, Context(backend="kubernetes", launch="l1"))
    assert "kfjob.dev/submitted-by" not in compile_pytorchjob(plan)["metadata"]["annotations"]
    job = compile_pytorchjob(dataclasses.replace(plan, submitted_by=ME))
    job["metadata"] |= {"uid": "u"}
    assert snapshot(job, now=0).submitted_by == ME


def test_user_is_a_setting_and_by_default_that_of_the_process(here, monkeypatch):
    monkeypatch.delenv("KFJOB_USER", raising=False)
    default = load_settings(environ={}, folder=here).submitter
    assert default == f"{getpass.getuser()}@{os.uname().nodename}"
    assert load_settings(environ={"KFJOB_USER": "team"}, folder=here).submitter == "team"

    def fail() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert load_settings(environ={}, folder=here).submitter == f"{os.getuid()}@{os.uname().nodename}"


@pytest.mark.parametrize(
    ("holder", "title", "message"),
    [
        ((ME, ENDED), None, "job `train` has ended, and gives its name to the next launch"),
        (
            ("you@there", ENDED),
            "job `train` exists already",
            "`you@there` submitted it, and it ended at 2023-11-14 22:13:20 UTC",
        ),
        ((ME, JobChanged(phase=JobPhase.RUNNING)), "job `train` runs already (Running)", ""),
    ],
)
def test_preflight_says_what_a_submit_does_with_the_name(fake, settings, holder, title, message):
    play(fake, holder[0], state=holder[1])
    result = examine(LoadedSpec(SPEC, Positions()), settings=settings)
    problems = [problem for problem in result.problems if problem.path == "name"]
    assert [problem.title for problem in problems] == ([title] if title else [])
    assert message in "\n".join([*result.good, *(problem.detail or "" for problem in problems)])
