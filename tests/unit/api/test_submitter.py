"""Who submitted a launch: recorded with it, and asked before a job of another user is replaced."""

from __future__ import annotations

import dataclasses
import getpass
import os
import re

import pytest
from msgspec.structs import replace

import kfjob as api
from kfjob.api.planning import plan_job
from kfjob.api.preflight.examine import examine
from kfjob.api.settings import Settings, load_settings
from kfjob.api.target import find_target
from kfjob.base.errors import AlreadyExists
from kfjob.joblog.events import JobChanged, JobPhase
from kfjob.kinds.launch_record import add_submit_record
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Positions
from tests.fakes.backend import FakeBackend
from tests.pytorchjobs import snapshot

SPEC = JobSpec(name="train", image="a:1", command=["python", "a.py"])
OTHER = SPEC.model_copy(update={"image": "b:1"})
RUNNING = JobChanged(phase=JobPhase.RUNNING)
ENDED = JobChanged(phase=JobPhase.FAILED, ended=1_700_000_000_000_000_000)
AT = "and it ended at 2023-11-14 22:13:20 UTC (Failed)"
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


TEMPLATE = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: "a:1", command: [torchrun, a.py]}]}}
"""


@pytest.mark.parametrize("source", ["template", "spec"])
def test_own_job_of_a_template_that_has_ended_is_replaced(fake, kfjob, here, monkeypatch, source):
    monkeypatch.setenv("KFJOB_USER", ME)
    (here / "t.yaml").write_text(TEMPLATE)
    (here / "spec.yaml").write_text("name: train\nimage: a:1\ncommand: torchrun a.py\n")
    assert kfjob("submit", "--template", "t.yaml") == 0
    submitted = fake.jobs["default", "train"].snapshot
    assert kfjob("submit", "--template", "t.yaml") == 1
    assert f"error: job `train` exists already\n  cause: `{ME}` submitted it (Pending)" in kfjob.err
    fake.play("train", ENDED, manifest=submitted.manifest, submitted_by=submitted.submitted_by)
    assert kfjob("submit", *(["--template", "t.yaml"] if source == "template" else ["spec.yaml"])) == 0
    assert "the last launch of `train` has ended (Failed), and goes to the archive" in kfjob.err
    assert fake.calls == [("submit", "train"), ("stop", "train"), ("submit", "train")]


def test_job_of_a_template_that_another_user_submitted_stays(fake, kfjob, here):
    (here / "t.yaml").write_text(TEMPLATE)
    fake.play("train", ENDED, manifest="[]", submitted_by="you@there")
    assert kfjob("submit", "--template", "t.yaml") == 1
    assert f"`you@there` submitted it, {AT}" in kfjob.err
    assert fake.calls == []


@pytest.mark.parametrize(
    ("submitted_by", "spec", "cause"),
    [
        ("you@there", SPEC, f"`you@there` submitted it, {AT}\nyou are `{ME}`"),
        ("", SPEC, f"it has no record of who submitted it, {AT}\nyou are `{ME}`"),
        (ME, None, f"it has no spec that kfjob can read\n`{ME}` submitted it, {AT}"),
    ],
)
def test_launch_of_another_user_is_not_replaced_without_being_asked(fake, settings, submitted_by, spec, cause):
    play(fake, submitted_by, spec=spec)
    with pytest.raises(AlreadyExists) as caught:
        api.submit(SPEC, settings=settings)
    assert (caught.value.title, caught.value.cause) == ("job `train` exists already", cause)
    assert "`kfjob stop train` archives its logs and removes it" in str(caught.value.hint)
    assert ("KFJOB_USER" in str(caught.value.hint)) == (spec is not None)
    assert fake.calls == []
    api.submit(SPEC, settings=settings, replace=True)
    assert fake.calls == [("stop", "train"), ("submit", "train")]


def test_pytorchjob_records_the_user_and_the_file_when_it_is_submitted_only():
    plan = resolve(SPEC, Context(backend="kubernetes", launch="l1"))
    assert "kfjob.dev/submitted-by" not in compile_pytorchjob(plan)["metadata"]["annotations"]
    (job,) = add_submit_record([compile_pytorchjob(plan)], submitter=ME, spec_file="0 /a")
    job["metadata"] |= {"uid": "u"}
    assert (snapshot(job, now=0).submitted_by, snapshot(job, now=0).spec_file) == (ME, "0 /a")


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
        (("you@there", ENDED), "job `train` exists already", f"`you@there` submitted it, {AT}"),
        ((ME, RUNNING), None, "job `train` runs already with this spec (launch l1); a submit starts nothing"),
        (("you@there", RUNNING), None, "job `train` runs already with this spec"),
        ((ME, RUNNING, OTHER), "job `train` runs already (Running)", "the new spec differs"),
    ],
)
def test_preflight_says_what_a_submit_does_with_the_name(fake, settings, holder, title, message):
    play(fake, holder[0], state=holder[1], spec=holder[2] if len(holder) > 2 else SPEC)
    result = examine(plan_job(LoadedSpec(SPEC, Positions()), find_target(settings)))
    problems = [problem for problem in result.problems if problem.path == "name"]
    assert [problem.title for problem in problems] == ([title] if title else [])
    assert message in "\n".join([*result.good, *(problem.detail or "" for problem in problems)])
    if title:
        with pytest.raises(AlreadyExists, match=re.escape(title)):
            api.submit(SPEC, settings=settings)
    else:
        api.submit(SPEC, settings=settings)
        assert bool(fake.calls) == holder[1].phase.ended


@pytest.fixture
def local(settings: Settings, on_machine: FakeBackend) -> Settings:
    """Return settings of the local backend, which the scripted one replaces."""
    assert on_machine.name == "local"
    return dataclasses.replace(settings, backend="local")


def examine_local(settings: Settings) -> tuple[list[str], str]:
    result = examine(plan_job(LoadedSpec(SPEC, Positions()), find_target(settings)))
    problems = [problem for problem in result.problems if problem.path == "name"]
    return [*result.good, *(problem.title for problem in problems)], "".join(problem.detail or "" for problem in problems)


def test_preflight_and_submit_agree_on_the_folder_of_a_local_job(fake, here, local):
    (here / "a.py").write_text("print(1)")
    play(fake, ME, state=RUNNING)
    job = fake.jobs["default", "train"]
    job.snapshot = replace(job.snapshot, start_folder=str(here))
    assert "job `train` runs already with this spec (launch l1); a submit starts nothing" in examine_local(local)[0]
    assert api.submit(SPEC, settings=local).launch == "l1"
    job.snapshot = replace(job.snapshot, start_folder="/elsewhere")
    good, detail = examine_local(local)
    assert "job `train` runs already (Running)" in good
    assert "the folder where it starts: /elsewhere" in detail
    with pytest.raises(AlreadyExists, match="runs already"):
        api.submit(SPEC, settings=local)
    assert fake.calls == []


def test_every_ended_job_of_this_machine_is_the_users_own(fake, here, local):
    (here / "a.py").write_text("print(1)")
    play(fake, "root@ci-pod-1")
    assert "job `train` has ended, and gives its name to the next launch" in examine_local(local)[0]
    api.submit(SPEC, settings=local)
    assert fake.calls == [("stop", "train"), ("submit", "train")]
