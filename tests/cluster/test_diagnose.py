"""Diagnosis of missing, pending and crashing pods on the real cluster, from the cluster's own messages."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfjob.api.jobs import attach
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE
from tests.cluster import facts
from tests.cluster.broken_jobs import BOUNDED, OPEN, bound, stub_registry, submitted, surroundings
from tests.cluster.facts import PATIENCE, Space
from tests.cluster.shell import Shell


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


def wait_for_issue(run: Run, rule: str) -> Issue:
    """Wait until the first cause or warning is this rule, and return it."""

    def first_issue(diagnosis: Diagnosis) -> Issue | None:
        return diagnosis.first_cause or next(iter(diagnosis.warnings), None)

    issue = first_issue(until(run, lambda diagnosis: (issue := first_issue(diagnosis)) is not None and issue.rule == rule))
    assert issue
    assert issue.evidence[0] if issue.rule != "operator-missing" else not issue.evidence
    assert UNKNOWN_VALUE not in issue.title + issue.cause + issue.remedy
    assert "{" not in issue.remedy
    return issue


def test_operator_cannot_create_the_pods(bounded: tuple[Space, dict[str, str]], run_of: Callable[[str, Space], Run]):
    space, names = bounded
    for rule in sorted(BOUNDED):
        run = run_of(names[rule], space)
        issue = wait_for_issue(run, rule)
        assert issue.pod == ""
        if rule == "quota-exceeded":
            assert issue.title == "the namespace's quota `small` is used up"
        else:
            assert run.status().headline.startswith("Pending, no pods: FailedCreatePod: Error creating: ")


SLOW_RULE_LAST = sorted(OPEN, key=lambda rule: rule == "operator-missing")  # it takes half a minute


@pytest.mark.parametrize("rule", SLOW_RULE_LAST)
def test_reason_of_a_pending_pod(rule: str, jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]):
    issue = wait_for_issue(run_of(jobs[rule], space), rule)
    assert issue.pod == (f"{jobs[rule]}-worker-0" if OPEN[rule].of_pod else "")


def test_restarted_container_was_killed_for_memory(jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]):
    run = run_of(jobs["out-of-memory"], space)
    until(run, lambda _: run.snapshot().pods[0].restarts > 1)
    (pod,) = run.snapshot().pods
    assert (pod.last_reason, pod.exit_code) == ("OOMKilled", 137)
    assert pod.last_ended is not None
    assert wait_for_issue(run, "out-of-memory").time is not None


def test_stop_archives_the_cluster_events(jobs: dict[str, str], space: Space, run_of: Callable[[str, Space], Run]):
    run = run_of(jobs["webhook-down"], space)
    issue = wait_for_issue(run, "webhook-down")
    folder = run.stop()
    assert folder
    assert (folder / "events.json").exists()
    archived = run_of(jobs["webhook-down"], space)
    assert "archived" in repr(archived)
    assert wait_for_issue(archived, "webhook-down").evidence == issue.evidence


def test_bundle_of_a_failed_job_is_diagnosed_on_another_machine(jobs: dict[str, str], space: Space, tmp_path: Path):
    name, shell = jobs["command-not-found"], Shell(space, tmp_path)
    shell("wait", name, "--timeout", "120", code=100)
    shell("archive", name, "-o", "b.zip")
    live = json.loads(shell("diagnose", name, "-o", "json"))
    elsewhere = Shell(space, tmp_path, kubeconfig="/dev/null", env={"KFJOB_STATE": str(tmp_path / "other")})
    saved = json.loads(elsewhere("diagnose", "--from", "b.zip", "-o", "json"))
    assert saved["headline"] == live["headline"]
    assert "step 1/10 loss 2.5" in elsewhere("logs", "--from", "b.zip", "-o", "raw")
    with zipfile.ZipFile(tmp_path / "b.zip") as packed:
        assert not [file for file in packed.namelist() if b"kf-hunter2" in packed.read(file)]


def test_watchdog_ends_a_crash_loop_and_archives_its_logs(jobs: dict[str, str], space: Space, tmp_path: Path):
    name, shell = jobs["module-not-found"], Shell(space, tmp_path)
    message = shell("wait", name, "--timeout", "200", code=103)
    assert f"pod `{name}-worker-0` was restarted" in message
    assert "there is no job" in shell("suspend", name, code=3)
    assert "No module named 'flash_attn'" in shell("logs", name, "--pod", f"{name}-worker-0")
