"""Check `kfjob logs`: selection of pods and lines, output formats, and following through new pods and hand-overs."""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from kfjob.api.jobs import attach
from kfjob.api.logs import follow, merge
from kfjob.api.logs.agents import AgentFilter
from kfjob.api.logs.selection import LAST, PodSelection, parse_ranks
from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends.base import JobRef, LogRange
from kfjob.base.errors import NotFound, UsageError
from kfjob.joblog.events import Event, JobChanged, JobPhase, LogGap, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from tests.fakes.backend import FakeBackend
from tests.hostile_server import wait_until
from tests.unit.api import script


def lines(out: str) -> list[str]:
    return [line.partition(" | ")[2] or line for line in out.splitlines()]


def prefixes(out: str) -> set[str]:
    """Return the pods in the prefixes."""
    return {line.partition(" | ")[0].strip() for line in out.splitlines()}


def play_eight_pods(fake: FakeBackend) -> None:
    """Play eight pods with two ranks each on four nodes. The last pod has ranks 0 and 1; worker-3 has failed."""
    events: list[Event] = [script.job(JobPhase.RUNNING)]
    for index in range(8):
        failed = {"exit_code": 1, "reason": "Error"} if index == 3 else {}
        phase = PodPhase.FAILED if index == 3 else PodPhase.RUNNING
        events.append(script.pod(index, phase, node=f"node-{index // 2}", **failed))
        rank = (index + 1) % 8
        for line in script.block(index, rank, 1):
            two_ranks = replace(
                line, text=re.sub(r"global_ranks=\[\d+\]", f"global_ranks=[{2 * rank}, {2 * rank + 1}]", line.text)
            )
            events.append(replace(two_ranks, text=re.sub(r"(_world_sizes?)=\[?\d\]?", r"\1=[16, 16]", two_ranks.text)))
        events.append(script.line(index, f"here is {index}", 20 - index))
    fake.play("train", *events)


@pytest.mark.parametrize(
    ("argv", "pods"),
    [
        ((), range(8)),
        (("--all",), range(8)),
        (("--pod", "train-worker-2", "--pod", "train-worker-5"), (2, 5)),
        (("--node", "node-1"), (2, 3)),
        (("--rank", "2-6"), (0, 1, 2)),
        (("--rank", "1,last"), (7, 6)),
        (("--rank", "15", "--node", "node-0"), (6, 0, 1)),
        (("--node", "node-1", "--node", "node-0"), (0, 1, 2, 3)),
    ],
)
def test_options_select_pods(fake, kfjob, argv, pods):
    play_eight_pods(fake)
    assert kfjob("logs", "train", "--include", "here is", *argv) == 0
    assert prefixes(kfjob.out) == {f"train-worker-{index}" for index in pods}
    texts = lines(kfjob.out)
    assert texts == sorted(texts, key=lambda text: -int(text.split()[-1]))  # by time: the last pod printed first


def test_log_of_one_failed_pod_has_no_prefix(fake, kfjob):
    play_eight_pods(fake)
    assert kfjob("logs", "train", "--failed", "--tail", "1") == 0
    assert kfjob.out == "here is 3\n"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("--node", "node-9"), 3, "no pod of the job is on node `node-9`"),
        (("--first-error", "--pod", "train-worker-0"), 2, "cannot be used together"),
        (("--first-error", "--since", "5m"), 2, "`--first-error` and `--since` cannot be used together"),
        (("--first-error", "-c", "sidecar"), 2, "`--first-error` and `--container` cannot be used together"),
        (("--include", "(?=a)"), 2, "kfjob uses RE2, whose syntax has no look-ahead"),
        (("--exclude", r"(a)\1"), 2, "no look-ahead, look-behind or back-references"),
    ],
)
def test_invalid_selection_is_an_error(fake, kfjob, argv, code, message):
    play_eight_pods(fake)
    assert kfjob("logs", "train", *argv) == code
    assert message in kfjob.err
    assert kfjob.out == ""


def test_container_that_no_pod_has_is_not_found(fake, kfjob, monkeypatch):
    play_eight_pods(fake)

    def raise_not_found(ref: object, pod: str, log_range: object, **_: object) -> NoReturn:
        raise NotFound(f"pod `{pod}` has no container `sidecar`")

    monkeypatch.setattr(fake, "logs", raise_not_found)
    assert kfjob("logs", "train", "-c", "sidecar") == 3
    assert "pod `train-worker-0` has no container `sidecar`" in kfjob.err
    assert kfjob.out == ""


def test_saved_logs_of_previous_containers_are_read(kfjob, tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    for index, name in enumerate(("w-0.previous.log", "w-1.log")):
        text = "\n".join(line.text for line in script.block(index, index, 1))
        (saved / name).write_text(text + ("\nBatch 3 Loss: 2.5, Speed: 0.43 samples/sec\n" if index == 0 else "\n"))
    assert kfjob("master", "--from", str(saved)) == 0
    assert kfjob.out.startswith("`w-0` ")


def test_saved_logs_without_timestamps_print_a_notice(kfjob, tmp_path):
    for pod in ("w-0", "w-1"):
        (tmp_path / f"{pod}.log").write_text("hello\n")
    for option in (("--since", "5m"), ("--timestamps",)):
        assert kfjob("logs", "--from", str(tmp_path), *option) == 0
        assert kfjob.out == "w-0 | hello\nw-1 | hello\n"
        assert kfjob.err.count("the saved logs have no timestamps") == 1
    for pod in ("w-0", "w-1"):
        (tmp_path / f"{pod}.log").write_text("2026-11-21T12:00:00Z hello\n")
    assert kfjob("logs", "--from", str(tmp_path), "--since", "2026-11-21T12:00:01Z") == 0
    assert (kfjob.out, kfjob.err) == ("", "")


def test_containerd_log_files_are_read_as_saved_logs(kfjob, tmp_path):
    (tmp_path / "w-0.log").write_text("2026-11-21T12:00:00Z stderr F hello\n2026-11-21T12:00:01Z stdout F \n")
    assert kfjob("logs", "--from", str(tmp_path), "-o", "raw") == 0
    assert kfjob.out == "hello\n\n"


def test_ranks_are_those_of_the_newest_round(fake, kfjob):
    first = [*script.block(0, 0, 1), *script.block(1, 1, 1)]
    shrunk = [
        replace(line, text=line.text.replace("world_size=2", "world_size=1").replace("sizes=[2]", "sizes=[1]"))
        for line in script.block(0, 0, 9)
    ]
    fake.play("train", *script.STARTING, *first, script.pod(1, PodPhase.FAILED, exit_code=137), *shrunk)
    assert kfjob("logs", "train", "--rank", "last", "--tail", "1", "-o", "json") == 0
    assert json.loads(kfjob.out)["pod"] == "train-worker-0"  # no pod has rank 1 now
    assert kfjob("logs", "train", "--rank", "1") == 3
    handover = [*script.block(1, 0, 1), *script.block(0, 1, 1), script.pod(1, PodPhase.FAILED, exit_code=137), *shrunk]
    fake.play("train", *script.STARTING, *handover)
    assert kfjob("logs", "train", "--rank", "0", "--tail", "1", "-o", "json") == 0
    assert json.loads(kfjob.out)["pod"] == "train-worker-0"  # not the failed pod that had rank 0 before


def test_unknown_ranks_are_not_guessed(fake, kfjob):
    fake.play("train", *script.STARTING, script.line(0, "hello", 3))
    assert kfjob("logs", "train", "--rank", "0") == 3
    assert "the ranks of the pods are not known yet" in kfjob.err


def test_ranks_are_parsed():
    assert parse_ranks("0,8-15,last") == ((0, 0), (8, 15), (LAST, LAST))
    for text in ("", "3-1", "-1", "a", "1,,2"):
        with pytest.raises(UsageError):
            parse_ranks(text)


def test_lines_are_filtered_and_printed_as_json(fake, kfjob):
    fake.play("train", *script.TRAINING)
    assert kfjob("logs", "train", "--include", "Loss", "--exclude", r"Batch \d\d", "--exclude", "Batch 9", "-o", "raw") == 0
    assert [re.findall(r"Batch (\d+)", line) for line in kfjob.out.splitlines()] == [[str(step)] for step in range(1, 9)]
    assert kfjob("logs", "train", "--include", "Batch 20 ", "-o", "json") == 0
    result = json.loads(kfjob.out)
    assert (result["time"], result["pod"]) == ("2026-11-18T11:07:10.000000000Z", "train-worker-1")
    assert result["text"].startswith("2026-11-21 06:37:50 I [train.py:102] Batch 20 ")
    assert kfjob("logs", "train", "--include", "Batch 20 ", "--timestamps", "-o", "raw") == 0
    assert kfjob.out.startswith("2026-11-18T11:07:10.000000000Z 2026-11-21")


def test_prefixes_have_the_same_colour_in_every_run(fake, kfjob):
    play_eight_pods(fake)
    assert kfjob("logs", "train", "--include", "here is", "--color", "always") == 0
    colours = {re.findall(r"worker-\d", line)[0]: line[:5] for line in kfjob.out.splitlines()}
    assert len(set(colours.values())) > 2
    assert kfjob("logs", "train", "--include", "here is", "--color", "always", "--node", "node-2") == 0
    for line in kfjob.out.splitlines():
        assert line.startswith(colours[re.findall(r"worker-\d", line)[0]])
    assert kfjob("logs", "train") == 0
    assert "\x1b" not in kfjob.out


def test_first_error_is_printed_with_its_context(fake, kfjob):
    before = [script.line(0, f"before {number}", 2) for number in range(30)]
    after = [script.line(0, f"after {number}", 8) for number in range(30)]
    fake.play("train", *script.STARTING, *before, *script.FAILED[len(script.STARTING) :][:1], *after, *script.FAILED[-2:])
    assert kfjob("logs", "train", "--first-error") == 0
    texts = kfjob.out.splitlines()
    assert texts[10] == "ModuleNotFoundError: No module named 'flash_attn'"
    assert (texts[0], texts[-1]) == ("before 20", "after 24")
    assert "line 31 of `train-worker-0`" in kfjob.err


def test_first_error_of_an_agent_is_printed_with_its_context(fake, kfjob):
    agent = "E1121 06:38:10.000000 1 torch/distributed/elastic/multiprocessing/api.py:1002]"
    failed = script.line(0, f"{agent} failed (exitcode: -9) local_rank: 0 (pid: 7) of binary: /usr/bin/python", 7)
    fake.play("train", *script.STARTING, *script.block(0, 0, 5), failed)
    assert kfjob("logs", "train", "--first-error") == 0
    assert failed.text in kfjob.out.splitlines()
    assert "left out" not in kfjob.err


def test_more_pods_than_threads_are_merged_by_time(fake, monkeypatch):
    ref = fake.play("train", *script.STARTING)
    slots = threading.Semaphore(merge.THREADS)

    def read_log(ref: JobRef, pod: str, log_range: LogRange, **_: object) -> Iterator[LogLine]:
        assert slots.acquire(blocking=False), "too many logs are open"
        number = int(pod.rpartition("-")[2])
        for index in range(250):
            yield LogLine(pod=pod, text=f"{index}", time=script.START + index * 1000 + number)
        slots.release()

    monkeypatch.setattr(fake, "logs", read_log)
    reader = make_reader(fake, ref)
    merged = list(merge.merge_logs(reader, [(f"w-{number}", LogRange()) for number in range(40)]))
    assert [(line.text, line.pod) for line in merged if isinstance(line, LogLine)] == [
        (f"{index}", f"w-{number}") for index in range(250) for number in range(40)
    ]


def make_reader(fake: FakeBackend, ref: JobRef) -> LiveReader:
    target = Target(Settings(state=Path(os.devnull)), "kubernetes", "default")
    target.__dict__["cluster"] = fake
    return LiveReader(
        target, ref, ObserveConfig(workers=("train-worker-0", "train-worker-1"), rendezvous="etcd"), secrets=frozenset()
    )


class LiveBackend(FakeBackend):
    """A job that the test controls: states come from a queue, and a followed log ends when its pod is in `gone`."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[JobChanged | PodChanged] = []
        self.texts: dict[tuple[str, str], list[LogLine]] = {}  # by pod and uid
        self.gone: set[tuple[str, str]] = set()
        self.requests: list[tuple[str, LogRange]] = []

    def add_states(self, *states: JobChanged | PodChanged) -> None:
        self.states += states
        job = self.jobs["default", "train"]
        pods = {pod.pod: pod for pod in (*job.snapshot.pods, *(state for state in states if isinstance(state, PodChanged)))}
        newest = [state for state in self.states if isinstance(state, JobChanged)]
        job.snapshot = replace(job.snapshot, pods=tuple(pods.values()), job=newest[-1] if newest else job.snapshot.job)

    def has_state(self, number: int) -> bool:
        return len(self.states) > number

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:  # noqa: ARG002 - part of the protocol
        for index in itertools.count():
            wait_until(partial(self.has_state, index))
            yield self.states[index]
            if isinstance(self.states[index], JobChanged) and self.states[index].phase.ended:
                return

    def logs(
        self,
        ref: JobRef,  # noqa: ARG002 - part of the protocol
        pod: str,
        log_range: LogRange,
        *,
        pod_state: PodChanged | None = None,  # noqa: ARG002
    ) -> Iterator[LogLine | LogGap]:
        self.requests.append((pod, log_range))
        uid = next(state.uid for state in reversed(self.states) if isinstance(state, PodChanged) and state.pod == pod)
        shown = 0
        while True:
            ended = (pod, uid) in self.gone
            texts = self.texts.get((pod, uid), [])
            yield from (line for line in texts[shown:] if log_range.since is None or (line.time or 0) >= log_range.since)
            shown = len(texts)
            if ended or not log_range.follow:
                return
            time.sleep(0.01)


@pytest.fixture
def live() -> LiveBackend:
    backend = LiveBackend()
    backend.play("train")
    return backend


def collect_lines(lines: Iterator[LogLine | LogGap]) -> tuple[list[LogLine], threading.Thread]:
    received: list[LogLine] = []
    thread = threading.Thread(target=lambda: received.extend(line for line in lines if isinstance(line, LogLine)), daemon=True)
    thread.start()
    return received, thread


def follow_all(live: LiveBackend, **selection):
    ref = JobRef(backend="kubernetes", namespace="default", name="train", uid="uid-l1", launch="l1")
    return follow.follow_logs(make_reader(live, ref), PodSelection(**selection), LogRange(follow=True))


def test_following_includes_new_and_recreated_pods(live):
    live.add_states(script.job(JobPhase.RUNNING), script.pod(0, PodPhase.PENDING))
    received, thread = collect_lines(follow_all(live))

    def has_received(*texts: str) -> bool:
        return [line.text for line in received] == [*texts]

    live.texts["train-worker-0", "pod-0"] = [script.line(0, "first", 1)]
    live.add_states(script.pod(0, PodPhase.RUNNING))
    wait_until(lambda: has_received("first"))
    live.texts["train-worker-1", "pod-1"] = [script.line(1, "later", 2)]
    live.add_states(script.pod(1, PodPhase.RUNNING))  # an elastic job has grown
    wait_until(lambda: has_received("first", "later"))
    live.gone.add(("train-worker-0", "pod-0"))
    live.texts["train-worker-0", "new"] = [script.line(0, "again", 3)]
    live.add_states(replace(script.pod(0, PodPhase.DELETED)), script.pod(0, PodPhase.RUNNING, uid="new"))
    wait_until(lambda: has_received("first", "later", "again"))
    live.gone |= {("train-worker-0", "new"), ("train-worker-1", "pod-1")}
    live.add_states(script.job(JobPhase.SUCCEEDED))
    thread.join(20)
    assert not thread.is_alive()


def test_following_named_pods_ends_when_they_have_succeeded(live):
    live.add_states(script.job(JobPhase.RUNNING), script.pod(0, PodPhase.RUNNING), script.pod(1, PodPhase.RUNNING))
    live.texts["train-worker-1", "pod-1"] = [script.line(1, "mine", 1)]
    live.texts["train-worker-0", "pod-0"] = [script.line(0, "not mine", 1)]
    received, thread = collect_lines(follow_all(live, pods=("train-worker-1",)))
    wait_until(lambda: [line.text for line in received] == ["mine"])
    live.gone.add(("train-worker-1", "pod-1"))
    live.add_states(script.pod(1, PodPhase.SUCCEEDED))
    thread.join(20)
    assert not thread.is_alive()
    assert {pod for pod, _ in live.requests} == {"train-worker-1"}


def test_following_the_master_continues_with_the_next_master(live, monkeypatch):
    monkeypatch.setattr(follow, "SILENT_SECONDS", 0.2)
    live.add_states(script.job(JobPhase.RUNNING), script.pod(0, PodPhase.RUNNING), script.pod(1, PodPhase.RUNNING))
    ref = JobRef(backend="kubernetes", namespace="default", name="train", uid="uid-l1", launch="l1")
    notices: list[str] = []
    received, thread = collect_lines(follow.follow_master(make_reader(live, ref), LogRange(follow=True), notices.append))
    wait_until(lambda: any("waiting for the pod that prints progress" in notice for notice in notices))  # no evidence yet
    live.texts["train-worker-0", "pod-0"] = [*script.block(0, 1, 5)]
    live.texts["train-worker-1", "pod-1"] = [*script.block(1, 0, 5), script.progress(1, 1, 8.0)]
    wait_until(lambda: len(received) == 12 and "Batch 1 " in received[-1].text)
    live.texts["train-worker-1", "pod-1"] += script.block(1, 1, 20)
    live.texts["train-worker-0", "pod-0"] += [*script.block(0, 0, 20), script.progress(0, 12, 7.0)]
    wait_until(lambda: "Batch 12 " in received[-1].text)
    assert {line.pod for line in received[:-1]} == {"train-worker-1", "train-worker-0"}
    assert [notice.partition(" prints")[0] for notice in notices if "prints progress" in notice][1:] == [
        "`train-worker-1`",
        "`train-worker-0`",
    ]
    live.gone |= {("train-worker-0", "pod-0"), ("train-worker-1", "pod-1")}
    live.add_states(script.job(JobPhase.SUCCEEDED))
    thread.join(20)
    assert not thread.is_alive()
    assert len(received) == len(set(received))


def test_python_filters_lines_before_it_takes_the_last(fake):
    play_eight_pods(fake)
    run = attach("train")

    def texts(logs: Iterator[LogLine | LogGap]) -> list[str]:
        return [line.text for line in logs if isinstance(line, LogLine)]

    assert texts(run.logs(include=r"here is [35]")) == ["here is 5", "here is 3"]
    last = texts(run.logs("train-worker-3", include="world_size", tail=1))
    assert last == [text for text in texts(run.logs("train-worker-3")) if "world_size" in text][-1:] != []
    with pytest.raises(UsageError, match="is not a regular expression") as caught:
        list(run.logs(include="(?=a)"))
    assert "RE2" in str(caught.value)


def play_two_printers(fake: FakeBackend) -> None:
    """Play two pods that print ten lines each after the lines of their agents, and agents' lines at the end."""
    events: list[Event] = [script.job(JobPhase.RUNNING)]
    for index in range(2):
        events += [script.pod(index, PodPhase.RUNNING), *script.block(index, index, 1)]
        events += [script.line(index, f"step {number} of {index}", number) for number in range(10)]
        events += script.block(index, index, 20)
    fake.play("train", *events)


def count_agent_lines() -> int:
    return 4 * len(script.block(0, 0, 1))


def test_agents_lines_are_left_out_and_counted_once(fake, kfjob):
    play_two_printers(fake)
    assert kfjob("logs", "train") == 0
    assert [line.split()[0] for line in lines(kfjob.out)] == ["step"] * 20
    assert kfjob.err == f"note: {count_agent_lines()} lines of torchrun's agents left out; `--agents` shows them\n"


@pytest.mark.parametrize("option", [("--agents",), ("-o", "raw"), ("-o", "json")])
def test_all_lines_are_printed_on_request_and_for_programs(fake, kfjob, option):
    play_two_printers(fake)
    assert kfjob("logs", "train", *option) == 0
    assert len(lines(kfjob.out)) == 20 + count_agent_lines()
    assert kfjob.err == ""


def test_tail_counts_the_programs_lines(fake, kfjob, monkeypatch):
    monkeypatch.setattr("kfjob.api.logs.agents._FIRST_EXTRA", 0)  # so that the first read holds agents' lines only
    play_two_printers(fake)
    assert kfjob("logs", "train", "--tail", "2") == 0
    assert sorted(lines(kfjob.out)) == ["step 8 of 0", "step 8 of 1", "step 9 of 0", "step 9 of 1"]
    assert "note: 4 lines of torchrun's agents left out" in kfjob.err
    assert kfjob("logs", "train", "--tail", "2", "--include", "of 1") == 0
    assert lines(kfjob.out) == ["step 8 of 1", "step 9 of 1"]


def test_include_of_agents_lines_says_how_to_see_them(fake, kfjob):
    play_two_printers(fake)
    assert kfjob("logs", "train", "--include", "group_rank=") == 0
    assert kfjob.out == ""
    assert "4 lines of torchrun's agents left out; `--agents` shows them" in kfjob.err
    assert kfjob("logs", "train", "--include", "group_rank=", "--agents") == 0
    assert len(lines(kfjob.out)) == 4


def test_lines_around_an_error_of_the_agent_are_all_shown():
    around = script.block(0, 0, 1)
    agents = AgentFilter(lambda _: True)
    assert list(agents.filter_unless_empty(around)) == around
    assert agents.left_out == 0
    mixed = [*around, script.line(0, "boom", 2)]
    assert list(agents.filter_unless_empty(mixed)) == mixed[-1:]
    assert agents.left_out == len(around)
