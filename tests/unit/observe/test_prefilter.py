"""The prefilter drops irrelevant lines only."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.observe import milestones
from kfjob.observe.agent_log import AgentLog
from kfjob.observe.diagnose.literals import is_suspicious
from kfjob.observe.diagnose.occurrences import match_rules
from kfjob.observe.diagnose.rule import Subject
from kfjob.observe.lines import clean_line
from kfjob.observe.prefilter import Prefilter, find_markers
from kfjob.observe.progress import FORMATS, KFJOB_TRAINER, progress_reader
from kfjob.spec.observe_config import ObserveConfig
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
CONFIGS = [ObserveConfig(), *(ObserveConfig(trainer=name) for name in sorted({form.name for form in FORMATS}))]


def stamped(text: str) -> bytes:
    return f"2026-11-21T06:18:58.464000123Z {text}\n".encode()


def selected_lines(prefilter: Prefilter, block: bytes) -> list[bytes]:
    return [block[start:end] for start, end in prefilter.select(block)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.trainer or "all")
def test_no_relevant_line_is_dropped(config: ObserveConfig):
    progress = progress_reader(config.trainer)
    relevant = [text for text in RECORDED if progress.read(text) or (not config.trainer and milestones.parse_milestone(text))]
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
    suspicious = [
        text for text in RECORDED if is_suspicious(text) and next(match_rules(Subject.LOG, clean_line(text)[0]), None)
    ]
    assert suspicious
    for text in (
        *suspicious,
        *EXAMPLES,
        "W1121 06:18:58.464000 1 torch/a.py:3] it is late",
        "Traceback (most recent call last):",
    ):
        for block in (stamped(text), text.encode(), b"x\n" + text.encode()):
            assert block.split(b"\n")[-2 if block.endswith(b"\n") else -1] in selected_lines(
                Prefilter(config, diagnosis=True), block
            ), text


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
    config=st.sampled_from((*CONFIGS, ObserveConfig(trainer=KFJOB_TRAINER, rendezvous="c10d"))),
)
def test_block_boundaries_do_not_change_the_selection(
    lines: list[str], cuts: set[int], *, diagnosis: bool, config: ObserveConfig
):
    single, in_blocks = Prefilter(config, diagnosis=diagnosis), Prefilter(config, diagnosis=diagnosis)
    alone = [line for text in lines for line in selected_lines(single, stamped(text))]
    edges = sorted({0, len(lines), *(cut for cut in cuts if cut < len(lines))})
    together = [line for a, b in pairwise(edges) for line in selected_lines(in_blocks, b"".join(map(stamped, lines[a:b])))]
    assert together == alone


def test_every_line_is_selected_while_select_all_is_true():
    wanted = False
    prefilter = Prefilter(ObserveConfig(), select_all=lambda: wanted)
    block = b"hello\nthere\n"
    assert prefilter.select(block) == []
    wanted = True
    assert prefilter.select(block) == [(0, 5), (6, 11)]


def test_markers_are_few_enough_for_the_fast_search():
    """A search for more than 64 literals is ten times slower (see `MARKERS`)."""
    assert len(find_markers(ObserveConfig())) <= 64
