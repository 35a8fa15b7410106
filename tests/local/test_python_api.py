"""The Python API on real jobs of this machine: submit, wait, logs, errors, the coroutines, and the page's examples."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kfjob import JobFailed, JobPhase, JobSpec, JobStopped, NotFound, Run, aio, attach, list_jobs, stop, submit
from kfjob.api.settings import Settings
from kfjob.base.concurrency import Task
from kfjob.base.errors import AlreadyExists, Refused, WaitTimeout
from tests.local.machine import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
FOREVER = "import time\nprint('ready', flush=True)\ntime.sleep(600)"


def spec(code: str, name: str = "job", **fields) -> JobSpec:
    return JobSpec(name=name, processes_per_node=1, command=[sys.executable, "-c", code], **fields)


@pytest.fixture
def settings(tmp_path) -> Iterator[Settings]:
    settings = Settings(state=tmp_path / "state", backend="local")
    yield settings
    for job in list_jobs(settings=settings):
        stop(job.name, settings=settings)


def wait_for_line(run: Run, text: str) -> None:
    def has_line() -> bool:
        with suppress(NotFound):  # the pod has not started
            return any(text in getattr(line, "text", "") for line in run.logs())
        return False

    wait_until(has_line, pause=0.05)


def test_succeeded_job_returns_its_phase_and_its_lines(settings):
    run = submit(spec("print('hello')", nodes=2), settings=settings)
    assert repr(run) == f"<Run job (local/default, launch {run.launch})>"
    assert run.wait(check=True) is JobPhase.SUCCEEDED
    assert sum("hello" in str(line) for line in run.logs("job-worker-0")) == 1
    assert sum("hello" in getattr(line, "text", "") for line in run.logs()) == 2
    assert sum("hello" in getattr(line, "text", "") for line in run.logs("job-worker-1", tail=50)) == 1
    assert run.snapshot().job.phase is JobPhase.SUCCEEDED
    view = run.status()
    assert view.phase is JobPhase.SUCCEEDED
    assert repr(view) == "<JobView Succeeded, but no progress was printed (2 pods)>"
    assert "<td>job-worker-1</td><td>Succeeded</td>" in view._repr_html_()
    assert [job.name for job in list_jobs(settings=settings)] == ["job"]
    assert "<b>job</b> Succeeded" in run._repr_html_()
    with pytest.raises(NotFound, match="has no pod `job-worker-7`"):
        run.logs("job-worker-7")
    run.stop()
    assert run.wait(check=True) is JobPhase.SUCCEEDED


def test_failed_job_raises_its_cause_only_if_asked(settings):
    run = submit(spec("import missing_module", restarts={"max": 0}), settings=settings)
    assert run.wait() is JobPhase.FAILED
    with pytest.raises(JobFailed, match="job `job` has failed") as caught:
        run.wait(check=True)
    assert "missing_module" in (caught.value.cause or "")
    assert caught.value.hint


def test_archived_job_is_attached_and_cannot_be_stopped_again(settings):
    run = submit(spec(FOREVER), settings=settings)
    wait_for_line(run, "ready")
    folder = run.stop()
    assert folder
    assert any("ready" in str(line) for line in run.logs())  # the same Run reads the archive
    assert run.wait() is JobPhase.STOPPED
    archived = attach("job", settings=settings)
    assert repr(archived) == f"<Run job (archived, launch {run.launch})>"
    assert any("ready" in getattr(line, "text", "") for line in archived.logs())
    with pytest.raises(JobStopped):
        archived.wait(check=True)
    with pytest.raises(NotFound, match="only its archive is left"):
        archived.stop()
    again = archived.relaunch(changes={"env.MODE": "off"})
    assert (again.name, again.launch == run.launch) == ("job", False)
    assert '"MODE":"off"' in (again.snapshot().spec or "").replace(" ", "")


def test_job_that_exceeded_a_limit_is_diagnosed_as_that(settings):
    run = submit(spec(FOREVER, watchdog={"deadline": 1}), settings=settings)
    with pytest.raises(JobStopped, match="its watchdog allows 1 s"):
        run.wait()
    archived = attach("job", settings=settings)
    assert archived.status().headline.startswith("Stopped: it has run for ")
    cause = archived.diagnose().first_cause
    assert cause is not None
    assert cause.rule == "limit-exceeded"
    assert "its watchdog allows 1 s" in cause.title


def test_existing_job_is_replaced_only_if_asked(settings):
    first = submit(spec(FOREVER), settings=settings)
    with pytest.raises(AlreadyExists):
        submit(spec("print('second')"), settings=settings)
    with pytest.raises(Refused):
        submit(JobSpec(name="job", command=["/nonexistent/program"]), settings=settings, replace=True)
    assert first.snapshot().job.phase is not JobPhase.STOPPED  # the job that could not be replaced still runs
    second = submit(spec("print('second')"), settings=settings, replace=True)
    with pytest.raises(NotFound, match="a later one has its name"):
        first.snapshot()
    with pytest.raises(NotFound, match="a later one has its name"):
        first.stop()
    assert second.launch != first.launch
    assert second.wait(check=True) is JobPhase.SUCCEEDED


def test_a_job_that_has_ended_gives_its_name_to_the_next_launch_whatever_its_user_was_called(settings):
    first = submit(spec("print('first')"), settings=replace(settings, user="you@renamed-laptop"))
    first.wait(check=True)
    notes: list[str] = []
    second = submit(spec("print('second')"), settings=settings, notify=notes.append)
    assert second.launch != first.launch
    assert second.wait(check=True) is JobPhase.SUCCEEDED
    assert any("the last launch of `job` has ended (Succeeded)" in note for note in notes)
    archived = settings.archive_folder / "default" / "job" / first.launch
    assert "first" in next(archived.rglob("*.log")).read_text()


def test_the_same_spec_is_not_started_twice_and_a_change_is_shown(settings, tmp_path, monkeypatch):
    first = submit(spec(FOREVER), settings=settings)
    notes: list[str] = []
    again = submit(spec(FOREVER), settings=settings, notify=notes.append)
    assert again.launch == first.launch
    assert [note.splitlines()[0] for note in notes] == [
        f"job `job` runs already with this spec (launch {first.launch}); nothing was started"
    ]
    with pytest.raises(AlreadyExists) as error:
        submit(spec(FOREVER, env={"COLOUR": "blue", "API_TOKEN": "very-secret-value"}), settings=settings)
    assert 'env.COLOUR: (not set) -> "blue"' in str(error.value.cause)
    assert "very-secret-value" not in str(error.value)
    assert "kfjob relaunch job --spec FILE" in str(error.value.hint)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(AlreadyExists) as error:
        submit(spec(FOREVER), settings=settings)
    assert "the folder where it starts" in str(error.value.cause)
    assert first.snapshot().launch == first.launch


def test_only_the_job_in_the_namespace_of_the_spec_is_found_and_replaced(settings):
    first = submit(spec(FOREVER, namespace="team"), settings=settings)
    other = submit(spec(FOREVER), settings=settings, replace=True)
    again = submit(spec(FOREVER, namespace="team"), settings=settings)
    assert (again.launch, again.snapshot().namespace) == (first.launch, "team")
    second = submit(spec(FOREVER, namespace="team"), settings=settings, replace=True)
    assert second.launch != first.launch
    assert not other.snapshot().job.phase.ended
    second.stop()


def submit_at_once(settings: Settings, *, replace: bool) -> tuple[set[str], list[AlreadyExists]]:
    """Submit a job three times at once; return the launches of those that started it, and the errors of the others."""

    def start() -> Run | AlreadyExists:
        try:
            return submit(spec(FOREVER), settings=settings, replace=replace)
        except AlreadyExists as err:
            return err

    results = [task.result() for task in [Task(start, name="submit") for _ in range(3)]]
    launches = {run.launch for run in results if isinstance(run, Run)}
    return launches, [err for err in results if isinstance(err, AlreadyExists)]


def test_of_several_submits_after_the_end_one_job_is_left(settings):
    submit(spec("pass"), settings=settings).wait(check=True)
    launches, errors = submit_at_once(settings, replace=False)
    assert launches == {job.launch for job in list_jobs(settings=settings)}
    assert all("job `job`" in err.title for err in errors)


def test_of_several_replacements_at_once_one_job_is_left(settings):
    submit(spec(FOREVER), settings=settings)
    launches, errors = submit_at_once(settings, replace=True)
    (job,) = list_jobs(settings=settings)
    assert job.launch in launches
    assert not job.job.phase.ended
    assert all("has started job `job` in the meantime" in err.title for err in errors)


def test_coroutines_do_what_the_functions_do(settings):
    async def main() -> tuple[JobPhase, list[str]]:
        run = await aio.submit(spec("print('hello')"), settings=settings)
        phase = await run.wait(check=True)
        lines = [getattr(line, "text", "") async for line in run.logs()]
        assert [job.name for job in await aio.list_jobs(settings=settings)] == [run.name]
        with pytest.raises(NotFound):
            await aio.attach("other", settings=settings)
        return phase, lines

    phase, lines = asyncio.run(main())
    assert phase is JobPhase.SUCCEEDED
    assert any("hello" in line for line in lines)


def test_leaving_the_events_or_a_wait_leaves_the_job_alone(settings):
    submitted = submit(spec(FOREVER), settings=settings)

    async def main() -> None:
        run = await aio.attach("job", settings=settings)
        async for view, _ in run.follow():
            if view.phase is JobPhase.RUNNING:
                break
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.wait(), 0.5)

    asyncio.run(main())  # it returns, although the job never ends
    assert submitted.snapshot().job.phase is JobPhase.RUNNING
    with pytest.raises(WaitTimeout):
        submitted.wait(timeout=0.1)


@pytest.mark.parametrize("example", EXAMPLES, ids=["functions", "coroutines"])
def test_examples_of_the_page_run(example, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = example.replace('"python", "-c"', f'"{sys.executable}", "-c"')
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "hello from a rank" in result.stdout or "Succeeded" in result.stdout
