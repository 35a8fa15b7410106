"""Why pods are not there, do not start or do not stay, on the real cluster: in its own words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfjob.api.attach import attach
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.events import JobPhase
from kfjob.observe.diagnose.diagnosis import Diagnosis, Issue
from kfjob.observe.diagnose.rule import UNKNOWN_VALUE
from tests.cluster import facts
from tests.cluster.broken_jobs import BOUNDED, OPEN, bound, stub_registry, submitted, surroundings
from tests.cluster.facts import PATIENCE, Space


@pytest.fixture(scope="module")
def jobs(space: Space) -> Iterator[dict[str, str]]:
    with stub_registry(space) as stub, surroundings(space), submitted(space, OPEN, stub) as names:
        yield names


@pytest.fixture(scope="module")
def bounded() -> Iterator[tuple[Space, dict[str, str]]]:
    with facts.space() as space:
        bound(space)
        with submitted(space, BOUNDED, "") as names:
            yield space, names


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Space], Run]:
    def run(name: str, space: Space) -> Run:
        monkeypatch.setenv("KUBECONFIG", space.facts.kubeconfig)
        return attach(name, settings=Settings(state=tmp_path, backend="kubernetes", namespace=space.name))

    return run


def until(run: Run, condition: Callable[[Diagnosis], bool]) -> Diagnosis:
    deadline = time.monotonic() + PATIENCE
    while not condition(diagnosis := run.diagnose()):
        assert time.monotonic() < deadline, f"{run.snapshot()}\n{diagnosis}\n{run.events()}"
        time.sleep(0.5)
    return diagnosis


def found(run: Run, rule: str) -> Issue:
    """The first thing that is said, once it is this."""

    def first(diagnosis: Diagnosis) -> Issue | None:
        return diagnosis.first_cause or next(iter(diagnosis.warnings), None)

    finding = first(until(run, lambda seen: (said := first(seen)) is not None and said.rule == rule))
    assert finding
    assert finding.evidence[0] if finding.rule != "operator-absent" else not finding.evidence
    assert UNKNOWN_VALUE not in finding.title + finding.cause + finding.remedy
    assert "{" not in finding.remedy
    return finding


def test_the_operator_could_not_make_the_pods(bounded: tuple[Space, dict[str, str]], run_of: Callable[[str, Space], Run]):
    space, names = bounded
    for rule in sorted(BOUNDED):
        run = run_of(names[rule], space)
        finding = found(run, rule)
        assert finding.pod == ""
        if rule == "quota-exceeded":
            assert finding.title == "the namespace's quota `small` is used up"
        else:
            assert run.view(recorded=True).headline.startswith("Pending, no pods: FailedCreatePod: Error creating: ")


@pytest.mark.parametrize("rule", sorted(OPEN, key=lambda rule: rule == "operator-absent"))  # which takes half a minute
def test_what_keeps_a_pod_from_running(rule: str, jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]):
    finding = found(run_of(jobs[rule], space), rule)
    assert finding.pod == (f"{jobs[rule]}-worker-0" if OPEN[rule].of_pod else "")


def test_a_crash_loop_that_the_operator_calls_running(jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]):
    run = run_of(jobs["module-not-found"], space)
    diagnosis = until(run, lambda seen: "crash-loop" in {one.rule for one in seen.consequences})
    assert run.snapshot().job.phase in {JobPhase.RUNNING, JobPhase.RESTARTING}
    assert diagnosis.first_cause
    assert diagnosis.first_cause.title == "module `flash_attn` is not in the image"


def test_a_container_that_was_killed_for_memory_and_runs_again(
    jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]
):
    run = run_of(jobs["out-of-memory"], space)
    until(run, lambda _: run.snapshot().pods[0].restarts > 1)
    (pod,) = run.snapshot().pods
    assert (pod.last_reason, pod.exit_code) == ("OOMKilled", 137)
    assert pod.last_ended is not None
    assert found(run, "out-of-memory").time is not None


def test_what_the_cluster_wrote_down_is_kept_when_the_job_is_stopped(
    jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]
):
    run = run_of(jobs["webhook-down"], space)
    before = found(run, "webhook-down")
    folder = run.stop()
    assert folder
    assert (folder / "events.json").exists()
    kept = run_of(jobs["webhook-down"], space)
    assert kept.kept
    assert found(kept, "webhook-down").evidence == before.evidence
