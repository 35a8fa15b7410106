"""The prefilter drops irrelevant lines only."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from ahocorasick_rs import BytesAhoCorasick
from hypothesis import given
from hypothesis import strategies as st

from kfjob.joblog import prefilter as prefilter_module
from kfjob.joblog.agents.agent_log import AgentLog
from kfjob.joblog.diagnose.engine.matching import is_suspicious, match_rules
from kfjob.joblog.diagnose.engine.tracebacks import match_last_line, starts_crash
from kfjob.joblog.diagnose.rule import Subject
from kfjob.joblog.lines import vocabulary
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import RARE_WHOLE, Prefilter, find_markers
from kfjob.joblog.progress import milestones
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER, progress_reader
from kfjob.joblog.progress.figures.line_figures import parse_line
from tests.unit.diagnose.texts import LINES

DATA = Path(__file__).parents[2] / "data"
RECORDED = sorted({line for path in DATA.glob("*/**/*.log") for line in path.read_bytes().decode(errors="replace").split("\n")})
EXAMPLES = [line.text for line in LINES]
NOISE = (
    "a:312:1 [0] NCCL INFO Channel 03/0 : 1[1] -> 7[7] via P2P/CUMEM",
    "sample 7: the quick brown fox",
    '{"level": "info", "msg": "fetched shard 1 of 4096"}',
    "",
    "ünïcode …",
)
PLAIN = (
    "INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:",
    "  restart_count=0",
    "  group_rank=1",
    "  group_world_size=2",
)


def stamped(text: str) -> bytes:
    return f"2026-11-21T06:18:58.464000123Z {text}\n".encode()


def selected_lines(prefilter: Prefilter, block: bytes) -> list[bytes]:
    return [block[start:end] for start, end in prefilter.select(block)]


def shows_progress(text: str) -> bool:
    figures = parse_line(clean_line(text)[0])
    return figures.loss is not None and any(counter.priority < vocabulary.WEAK_COUNT for counter in figures.counters)


def test_no_relevant_line_is_dropped():
    config = ObserveConfig()
    relevant = [text for text in RECORDED if shows_progress(text) or milestones.parse_milestone(text)]
    relevant += [text for text in RECORDED if AgentLog().feed(0, text)[1]]
    assert relevant
    dropped = [text for text in relevant if not Prefilter(config).select(text.encode())]
    assert [
        text for text in dropped if not re.match(r"\s\s\w+(=|\s+:)", text)
    ] == []  # fields of plain blocks: their heading selects them


def test_no_line_of_the_kfjob_trainer_is_dropped():
    relevant = [
        text
        for text in RECORDED
        if milestones.parse_milestone(text) or (re.search(r"\.py:", text) and progress_reader(KFJOB_TRAINER).read(text))
    ]
    assert relevant
    for rendezvous in ("c10d", "etcd"):
        prefilter = Prefilter(ObserveConfig(trainer=KFJOB_TRAINER, rendezvous=rendezvous))
        assert all(prefilter.select(text.encode()) for text in relevant)


@pytest.mark.parametrize(
    "config", [ObserveConfig(), ObserveConfig(trainer=KFJOB_TRAINER, rendezvous="c10d")], ids=["all", "kfjob"]
)
def test_diagnosis_keeps_every_line_that_a_rule_matches(config: ObserveConfig):
    matching = [text for text in RECORDED if next(match_rules(Subject.LOG, clean_line(text)[0]), None)]
    assert matching
    for text in (
        *matching,
        *EXAMPLES,
        "W1121 06:18:58.464000 1 torch/a.py:3] it is late",
        "Traceback (most recent call last):",
    ):
        for block in (stamped(text), text.encode(), b"x\n" + text.encode()):
            assert block.split(b"\n")[-2 if block.endswith(b"\n") else -1] in selected_lines(
                Prefilter(config, diagnosis=True), block
            ), text


@pytest.mark.parametrize("text", [
    "terminate called after throwing an instance of 'x'", "terminate called without an active exception",
    "libc++abi: terminating", "Fatal Python error: Aborted", "Segmentation fault (core dumped)", "Bus error", "Aborted",
    "Floating point exception", "Illegal instruction", "Trace/breakpoint trap", "Fatal glibc error: x",
    "*** Error in `python': x", "*** Aborted at 1795000000", "*** SIGTERM received at time=1795000000 on cpu 3 ***",
    "*** SIGFPE received by PID 3",
    "*** stack smashing detected ***: terminated", "*** buffer overflow detected ***: terminated",
    "free(): invalid pointer", "malloc(): x", "realloc(): x", "munmap_chunk(): x", "malloc_consolidate(): x",
    "double free or corruption (out)", "corrupted size vs. prev_size", "corrupted double-linked list", "OMP: Error #15",
    "libgomp: Thread creation failed", "[a-0:12] *** Process received signal ***", "a: b.c:3: f(): Assertion `x' failed.",
])  # fmt: skip
def test_every_start_of_a_crash_is_suspicious(text: str):
    assert starts_crash(text)
    assert is_suspicious(text)


@pytest.mark.parametrize("text", [
    "ValueError: x", "MyException: x", "Exception: x", "KeyboardInterrupt", "ReadTimeout: x", "LockTimeout",
    "DownloadFailed: x",
    "pyarrow.lib.ArrowInvalid: x", "zipfile.BadZipFile: x", "socket.gaierror: x", "socket.herror: x", "select.error: x",
    "socket.timeout: x", "queue.Empty: x", "_queue.Empty: x", "queue.Full: x", "subprocess.TimeoutExpired: x",
    "concurrent.futures.process.BrokenProcessPool: x", "concurrent.futures.BrokenProcessPool: x", "torch.AcceleratorError: x",
    "asyncio.exceptions.CancelledError: x", "requests.exceptions.ReadTimeout: x",
])  # fmt: skip
def test_every_last_line_of_a_traceback_is_suspicious(text: str):
    assert match_last_line(text)
    assert is_suspicious(text)


def test_dotted_class_whose_name_says_nothing_is_the_accepted_gap():
    """Any literal for such a line would stand in nearly every line."""
    assert match_last_line("mypackage.Gone: x")
    assert not is_suspicious("mypackage.Gone: x")


def test_lines_after_a_traceback_heading_are_kept():
    program = ["Traceback (most recent call last):", *(f'  File "a.py", line {i}, in f' for i in range(299)), "MyFault"]
    block = b"".join(map(stamped, (*NOISE, *program, *NOISE)))
    selected = selected_lines(Prefilter(ObserveConfig(trainer=KFJOB_TRAINER, rendezvous="c10d"), diagnosis=True), block)
    assert [line.split(b" ", 1)[1].decode() for line in selected] == program


def test_irrelevant_lines_are_dropped():
    block = b"".join(map(stamped, NOISE * 100))
    assert Prefilter(ObserveConfig()).select(block) == []
    assert Prefilter(ObserveConfig(), diagnosis=True).select(block) == []


def test_custom_pattern_keeps_every_line():
    block = b"".join(map(stamped, NOISE))
    assert len(Prefilter(ObserveConfig(progress_pattern=r"(?P<step>\d+)")).select(block)) == len(NOISE)


LINE = st.one_of(st.sampled_from(RECORDED), st.sampled_from(NOISE), st.sampled_from(EXAMPLES), st.sampled_from(PLAIN))


@given(
    lines=st.lists(LINE, max_size=60),
    cuts=st.sets(st.integers(0, 60)),
    diagnosis=st.booleans(),
    config=st.sampled_from((ObserveConfig(), ObserveConfig(trainer=KFJOB_TRAINER, rendezvous="c10d"))),
)
def test_block_boundaries_do_not_change_the_selection(
    lines: list[str], cuts: set[int], *, diagnosis: bool, config: ObserveConfig
):
    single, in_blocks = Prefilter(config, diagnosis=diagnosis), Prefilter(config, diagnosis=diagnosis)
    alone = [line for text in lines for line in selected_lines(single, stamped(text))]
    edges = sorted({0, len(lines), *(cut for cut in cuts if cut < len(lines))})
    together = [line for a, b in pairwise(edges) for line in selected_lines(in_blocks, b"".join(map(stamped, lines[a:b])))]
    assert together == alone


def write_curve(counter: str, loss: str) -> bytes:
    return "".join(f"{counter}: {5 * i}, {loss}: {3 - i / 8:.3f}\n" for i in range(1, 5)).encode()


def test_every_counter_with_every_loss_is_selected():
    counters = [name for names in (*vocabulary.STEPS, *vocabulary.EPOCHS) for name in names]
    losses = [*(name for names in vocabulary.LOSSES for name in names), *vocabulary.LOSS_PARTS]
    blocks = {pair: write_curve(*pair) for pair in product(counters, losses)}
    assert [pair for pair, block in blocks.items() if len(Prefilter(ObserveConfig()).select(block)) != 4] == []


def write_noise(size: int) -> bytes:
    return b"nothing here\n" * (size // 13 + 1)


def test_rare_names_are_searched_until_a_log_has_figures():
    curve, long = write_curve("it", "nll"), write_noise(RARE_WHOLE)
    late = Prefilter(ObserveConfig())
    assert late.select(long) == []
    assert len(late.select(long + curve)) == 4
    assert len(late.select(long + curve)) == 4, "the log has such names"
    known = Prefilter(ObserveConfig())
    assert len(known.select(b"loss: 0.1\n" + write_noise(1) + curve)) == 5, "the beginning is searched whole"
    known = Prefilter(ObserveConfig())
    assert len(known.select(long + b"step: 5, loss: 2.5\n")) == 1
    assert known.select(long + curve) == []


def test_rare_names_in_lines_that_are_selected_anyway_start_no_search():
    known = Prefilter(ObserveConfig())
    assert len(known.select(b"".join(b"step: %d, loss: 2.%d, nll: 2.5\n" % (i, i) for i in range(4)))) == 4
    noise = write_noise(1024)
    assert known.select(noise + write_curve("it", "nll") + write_noise(RARE_WHOLE)) == []


class CountingAutomaton:
    """It counts the bytes that a search reads."""

    def __init__(self, automaton: BytesAhoCorasick, read: list[int]) -> None:
        self.automaton, self.read = automaton, read

    def find_matches_as_indexes(self, block: bytes) -> list[tuple[int, int, int]]:
        self.read.append(len(block))
        return self.automaton.find_matches_as_indexes(block)


def test_two_searches_read_a_log_without_figures(monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    build = prefilter_module.build_search

    def build_counting(*args: Any, **options: Any) -> Any:
        search = build(*args, **options)
        counting: Any = CountingAutomaton(search.automaton, read)
        return search._replace(automaton=counting)

    monkeypatch.setattr(prefilter_module, "build_search", build_counting)
    prefilter, block = Prefilter(ObserveConfig()), write_noise(1 << 16)
    for _ in range(64):
        assert prefilter.select(block) == []
    assert sum(read) == 2 * 64 * len(block)


def test_every_line_is_selected_while_select_all_is_true():
    wanted = False
    prefilter = Prefilter(ObserveConfig(), select_all=lambda: wanted)
    block = b"hello\nthere\n"
    assert prefilter.select(block) == []
    wanted = True
    assert prefilter.select(block) == [(0, 5), (6, 11)]


def test_rows_are_selected_after_a_block_that_was_selected_whole():
    wanted = True
    prefilter = Prefilter(ObserveConfig(), select_all=lambda: wanted)
    header = b"step loss lr\n"
    prefilter.select(b"noise\n" * 50 + header)
    wanted = False
    rows = b"10 2.5 0.1\n20 2.4 0.1\n30 2.3 0.1\n"
    assert selected_lines(prefilter, rows) == rows.splitlines()


def test_markers_are_few_enough_for_the_fast_search():
    """A search for more than 32 literals is slower (see `general.candidates.MAIN_MARKERS`)."""
    markers = find_markers(ObserveConfig())
    assert len(markers) <= 32
    assert min(len(marker.encode()) for marker in markers) >= 4
