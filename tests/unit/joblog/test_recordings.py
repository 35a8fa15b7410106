"""Recorded logs of real agents (tests/data/agent-logs; its README describes each case)."""

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfjob.joblog.agents.agent_log import AgentLog
from kfjob.joblog.agents.agent_records import RendezvousResult
from kfjob.joblog.events import LinesSkipped, LogLine
from kfjob.joblog.master.evidence import Confidence, EvidenceKind, Master, NoMaster
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

FEWER = settings(max_examples=40)  # each example is a whole log
ROOT = Path(__file__).parents[2] / "data" / "agent-logs"
EXPECTED = {case["case"]: case for case in json.loads((ROOT / "expected.json").read_text())}
CASES = sorted(EXPECTED)
FILES = sorted(ROOT.glob("*/*.log"))
WITH_BLOCKS = [path for path in FILES if "Rendezvous complete for workers" in path.read_text()]


def pod_and_container(stem: str) -> tuple[str, str]:
    """`fsdp-master-0-b` is the second container of `fsdp-master-0`."""
    match = re.fullmatch(r"(.*-\d+)(?:-(b|rerun))?", stem)
    assert match
    return match[1], match[2] or "a"


def printer(case: str) -> str | None:
    stem = EXPECTED[case]["last_progress_from"]
    return pod_and_container(stem)[0] if stem else None


def read(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(lines)


def events(case: str, keep: Callable[[str], bool] = lambda _: True, *, backwards: bool = False) -> Iterator[LogLine]:
    """Yield the lines of a case file by file; second containers come after all first ones."""
    paths = sorted((ROOT / case).glob("*.log"), reverse=backwards)
    for path in sorted(paths, key=lambda path: pod_and_container(path.stem)[1] != "a"):
        pod, container = pod_and_container(path.stem)
        yield from (LogLine(pod=pod, text=text, container_id=container) for text in read(path) if keep(text))


def results(lines: list[str]) -> list[RendezvousResult]:
    """Return the newest result of each block and of each other line with ranks."""
    state = AgentLog()
    newest: dict[tuple[int, str], RendezvousResult] = {}
    for number, text in enumerate(lines):
        state, records = state.feed(number, text)
        newest |= {(result.line, result.source): result for result in records if isinstance(result, RendezvousResult)}
    return list(newest.values())


def essence(items: list[RendezvousResult]) -> list[tuple[object, ...]]:
    return [
        (result.source, result.group_rank, result.group_world_size, result.master_addr, result.master_port, result.global_ranks)
        for result in items
    ]


@cache
def whole_essence(path: Path) -> list[tuple[object, ...]]:
    return essence(results(read(path)))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_pod_that_printed_last_is_the_master(case: str, *, backwards: bool):
    master = reduce_all(JobView(), events(case, backwards=backwards)).master
    if printer(case) is None:
        assert isinstance(master, NoMaster) or master.confidence is not Confidence.CONFIRMED
    else:
        assert isinstance(master, Master)
        assert (master.pod, master.confidence, master.evidence.kind) == (printer(case), "confirmed", "progress line")


@pytest.mark.parametrize("case", [case for case in CASES if printer(case)])
def test_group_rank_decides_without_progress_lines(case: str):
    lines = [event for event in events(case) if " Loss: " not in event.text]
    master = reduce_all(JobView(), lines).master
    if case.endswith("c10d-loglevel-unset"):
        assert isinstance(master, NoMaster)  # these logs contain no evidence
        assert "LOGLEVEL" in str(master.to_error("fsdp"))
    else:
        assert isinstance(master, Master)
        assert (master.pod, master.confidence, master.evidence.kind) == (
            printer(case),
            Confidence.LIKELY,
            EvidenceKind.GROUP_RANK,
        )


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_block_is_read_completely(path: Path):
    text = path.read_text()
    blocks = [result for result in results(read(path)) if result.source == "rendezvous block"]
    assert [result.master_addr for result in blocks] == re.findall(r"  master_addr=(\S+)$", text, re.MULTILINE)
    assert [result.group_rank for result in blocks] == [
        int(rank) for rank in re.findall(r"  group_rank=(\d+)$", text, re.MULTILINE)
    ]
    assert all(result.complete for result in blocks)


def rounds_of(view: JobView) -> list[dict[str, int | None]]:
    return [{member.pod: member.result.group_rank for member in item.members} for item in view.rounds]


@pytest.mark.parametrize("backwards", [False, True])
def test_rounds_are_assembled_from_logs_in_any_order(*, backwards: bool):
    view = reduce_all(JobView(), events("2.15.0-c10d-elastic-kill-rank0-rejoin-OPTOUT", backwards=backwards))
    assert rounds_of(view) == [
        {"fsdp-master-0": 0, "fsdp-worker-0": 1, "fsdp-worker-2": 2},
        {"fsdp-worker-0": 0, "fsdp-worker-2": 1},
        {"fsdp-master-0": 0, "fsdp-worker-0": 1, "fsdp-worker-2": 2},
    ]


@pytest.mark.parametrize("case", CASES)
def test_ranks_are_unique_within_a_round(case: str):
    for ranks in rounds_of(reduce_all(JobView(), events(case))):
        assert len(set(ranks.values())) == len(ranks)


FRAMES: dict[str, Callable[[str], str]] = {
    "CRLF": lambda text: text.rstrip("\r\n") + "\r\n",
    "no line end": lambda text: text.rstrip("\r\n"),
    "kubectl --timestamps": lambda text: f"2026-11-21T06:18:58.464000123Z {text}",
    "kubectl --prefix --timestamps": lambda text: f"[pod/fsdp-worker-0/pytorch] 2026-11-21T06:18:58.464000123Z {text}",
    "containerd": lambda text: f"2026-11-21T06:18:58.464000123+01:00 stderr F {text}",
    "colours": lambda text: f"\x1b[32m{text.rstrip()}\x1b[0m",
    "--tee": lambda text: f"[default0]:{text}",
    "progress bar in front": lambda text: f" 10%|█   | 5/50 [00:01<00:09,  4.5it/s]{text}" if text[:1] in "I[" else text,
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_prefixes_of_log_tools_change_nothing(path: Path, frame: str):
    lines = read(path)
    assert essence(results([FRAMES[frame](text) for text in lines])) == whole_essence(path)


NOISE = (
    "Traceback (most recent call last):",
    "[rank1]: RuntimeError: something else",
    "group_rank=7",
    "my settings: master_addr=elsewhere",
    "[default1]:  group_rank=3",
    "",
    '  File "/usr/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py", line 1, in run',
    "{'loss': 2.1, 'learning_rate': 5e-05, 'epoch': 0.1}",
)


@FEWER
@given(seed=st.integers(0, 10**6), path=st.sampled_from(WITH_BLOCKS))
def test_interleaved_lines_of_other_processes_change_nothing(seed: int, path: Path):
    lines, chance = read(path), random.Random(seed)  # noqa: S311 - which lines stand where is no secret
    mixed = [item for text in lines for item in (*chance.choices(NOISE, k=chance.randrange(3)), text)]
    assert essence(results(mixed)) == essence(results(lines))


@FEWER
@given(path=st.sampled_from(WITH_BLOCKS), data=st.data())
def test_truncated_log_never_changes_a_rank(path: Path, data: st.DataObject):
    lines = read(path)
    begin = data.draw(st.integers(0, len(lines)))
    end = data.draw(st.integers(begin, len(lines)))
    matches = [re.search(r"  group_rank=(\d+)\s*$| as rank (\d+)\. Full", text) for text in lines[begin:end]]
    ranks = [int(match[1] or match[2]) for match in matches if match]
    assert [result.group_rank for result in results(lines[begin:end])] == ranks


@FEWER
@given(path=st.sampled_from(WITH_BLOCKS), data=st.data())
def test_lost_lines_never_mix_two_blocks(path: Path, data: st.DataObject):
    """A reader may read the head and the tail of a log: blocks are then incomplete, but never mixed."""
    lines = read(path)
    whole = results(lines)
    head = data.draw(st.integers(0, len(lines)))
    tail = data.draw(st.integers(head, len(lines)))
    for part in results(lines[:head] + lines[tail:]):
        same = [
            result
            for result in whole
            if all(
                getattr(part, name) in (getattr(result, name), None, ())
                for name in ("group_rank", "master_port", "global_ranks")
            )
        ]
        assert same


@FEWER
@given(path=st.sampled_from(FILES), data=st.data())
def test_reading_in_batches_changes_nothing(path: Path, data: st.DataObject):
    lines = [LogLine(pod="p", text=text) for text in read(path)]
    cut = data.draw(st.integers(0, len(lines)))
    assert reduce_all(reduce_all(JobView(), lines[:cut]), lines[cut:]) == reduce_all(JobView(), lines)


@pytest.mark.parametrize("config", [ObserveConfig(), ObserveConfig(trainer="reference")], ids=["all", "reference"])
@pytest.mark.parametrize("case", CASES)
def test_prefilter_does_not_change_the_view(case: str, config: ObserveConfig):
    lines = list(events(case))
    selected: list[LogLine | LinesSkipped] = []
    for pod, container in dict.fromkeys((event.pod, event.container_id) for event in lines):
        own = [event.text.rstrip("\n") for event in lines if (event.pod, event.container_id) == (pod, container)]
        prefilter, skipped = Prefilter(config), 0
        for batch in (own[i : i + 7] for i in range(0, len(own), 7)):
            block = "".join(f"{text}\n" for text in batch).encode()
            selection, position = dict(prefilter.select(block)), 0
            for text in batch:
                if position in selection:
                    selected.append(LinesSkipped(pod=pod, count=skipped, container_id=container))
                    selected.append(LogLine(pod=pod, text=text, container_id=container))
                skipped = 0 if position in selection else skipped + 1
                position += len(text.encode()) + 1
    whole, filtered = reduce_all(JobView(config=config), lines), reduce_all(JobView(config=config), selected)
    assert rounds_of(filtered) == rounds_of(whole)
    assert filtered.training == whole.training
    assert filtered.news == whole.news
    assert getattr(filtered.master, "pod", None) == getattr(whole.master, "pod", None)
    assert sum(isinstance(event, LogLine) for event in selected) <= len(lines)


def healthy(case: str) -> bool:
    """Return whether nothing was killed and every agent succeeded, according to the case's notes."""
    notes = (ROOT / case / "NOTES.txt").read_text()
    codes = json.loads(notes.rpartition(" rc ")[2])
    return "kill" not in notes and set(codes.values()) == {0}


HEALTHY = [case for case in CASES if healthy(case)]


def test_recordings_include_healthy_cases():
    assert len(HEALTHY) > 10


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_recording_has_no_failure_event(case: str):
    kinds = {news.kind for news in reduce_all(JobView(), events(case)).news}
    assert kinds <= {"succeeded"}


@pytest.mark.parametrize("case", sorted(set(CASES) - set(HEALTHY) - {"2.15.0-c10d-elastic-kill-rank0-rejoin-OPTOUT"}))
def test_failed_recording_has_a_failure_event(case: str):
    kinds = {news.kind for news in reduce_all(JobView(), events(case)).news}
    silent = ("loglevel-info-lower", "server-without-v2", "no-python-etcd")  # these end before an agent prints
    assert kinds & {"failed", "worker failed"} or case.endswith(silent)


def test_recording_that_is_neither_healthy_nor_failed():
    kinds = [news.kind for news in reduce_all(JobView(), events("2.15.0-c10d-elastic-kill-rank0-rejoin-OPTOUT")).news]
    assert "restarting" in kinds
    assert "membership" in kinds
    assert "failed" not in kinds


def test_store_host_and_rank_0_can_differ():
    lines = [event for event in events("2.15.0-c10d-elastic-kill-rank0-rejoin") if event.pod == "fsdp-worker-0"]
    until = max(i for i, event in enumerate(lines) if "  group_rank=1" in event.text)
    master = reduce_all(JobView(), lines[: until + 8]).master
    assert isinstance(master, Master)
    assert (master.pod, master.group_rank) == ("fsdp-worker-0", 1)  # only its own store's address is evidence
    assert master.evidence.kind is EvidenceKind.MASTER_ADDR
