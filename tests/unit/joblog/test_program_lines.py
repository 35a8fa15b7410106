"""The lines of the program in a pod's log, without those of torchrun's agent."""

import re

import pytest

from kfjob.base.printable import is_clean
from kfjob.joblog.agents.program_lines import ProgramLines, condense_lines
from tests.unit.joblog.test_recordings import FILES, read

AGENT_TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/venv/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    '  File "/venv/lib/python3.12/site-packages/torch/distributed/run.py", line 991, in main',
    "    run(args)",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "train.py FAILED",
    "------------------------------------------------------------",
    "Failures:",
    "  <NO_OTHER_FAILURES>",
    "============================================================",
]
PROGRAM_TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 1, in <module>',
    "    import nosuch",
    "ModuleNotFoundError: No module named 'nosuch'",
]


def program_lines(lines: list[str]) -> list[str]:
    reader = ProgramLines()
    return [text for line in lines for text in reader.feed(line)] + reader.flush()


def test_agents_traceback_and_box_are_left_out():
    assert program_lines(["hello", *AGENT_TRACEBACK, "bye"]) == ["hello", "bye"]


def test_programs_traceback_is_kept():
    assert program_lines([*PROGRAM_TRACEBACK, *AGENT_TRACEBACK]) == PROGRAM_TRACEBACK


def test_traceback_without_an_end_comes_with_the_flush():
    reader = ProgramLines()
    assert [line for text in PROGRAM_TRACEBACK[:3] for line in reader.feed(text)] == []
    assert reader.flush() == PROGRAM_TRACEBACK[:3]


def test_a_programs_own_border_is_kept():
    lines = ["=" * 40, "epoch 1", "=" * 40, "loss 2.3"]
    assert program_lines(lines) == lines


def test_a_heading_with_the_word_failed_is_no_box_of_torchrun():
    lines = ["=" * 40, "self test: bf16 matmul FAILED", "falling back to fp32", *(f"step: {i}, loss: {i}" for i in range(8))]
    assert program_lines(lines) == lines
    lines = ["=" * 40, "tests FAILED", "-" * 40, "one of nine", "=" * 40, "loss 2.3"]
    assert program_lines(lines) == lines


def test_a_box_without_an_end_hides_no_lines_of_the_program():
    box = AGENT_TRACEBACK[6:11]
    printed = [f"step {number}" for number in range(20)]
    assert program_lines([*box, *printed]) == printed
    assert program_lines([*box, *printed, "  note: kept"]) == [*printed, "  note: kept"]


def test_a_line_of_another_process_within_the_box_is_kept():
    assert program_lines([*AGENT_TRACEBACK[:10], "step 7", *AGENT_TRACEBACK[10:], "bye"]) == ["step 7", "bye"]


CONFIG_DUMP = [
    "config:",
    "  run_id: abc",
    "  log_dir: runs/x",
    "  max_restarts: 3",
    "  nproc_per_node: 2",
    "  master_addr=10.0.0.1",
]
PLAIN_LAUNCH = [
    "INFO:torch.distributed.launcher.api:Starting elastic_operator with launch configs:",
    "  entrypoint       : train.py",
    "  run_id           : job",
    "  rdzv_backend     : c10d",
    "  rdzv_endpoint    : host:29400",
    "  log_dir          : None",
]


@pytest.mark.parametrize(
    "lines",
    [
        CONFIG_DUMP,
        ["Setting OMP_NUM_THREADS environment variable for each process to 4"],
        ["*" * 41, "* welcome"],
        ["INFO 2026-11-21 06:34:22,030 found 3 peers in the config"],
        [*PROGRAM_TRACEBACK[:1], "  the launcher is torch/distributed/run.py", "loss is 2.3"],
        [
            *PROGRAM_TRACEBACK[:2],
            "    elastic_launch(config, main)()",
            '  File "/venv/lib/python3.12/site-packages/torch/distributed/launcher/api.py", line 1, in launch_agent',
            "RuntimeError: no agent",
        ],
    ],
    ids=["config", "threads", "stars", "peers", "words", "own traceback"],
)
def test_words_of_torchrun_in_a_program_are_kept(lines):
    assert program_lines(lines) == lines
    assert program_lines([*PLAIN_LAUNCH, "INFO:torch.distributed.elastic:started", *lines]) == lines


def test_fields_after_the_heading_of_an_agent_are_left_out():
    fields = ["  restart_count=0", "  master_addr=10.0.0.1", "  master_port=29500"]
    heading = "INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:"
    printed = [heading, *fields[:1], "step 1", *fields[1:], *fields[:1]]
    assert program_lines(printed) == ["step 1", fields[0]]


def test_torchruns_warning_about_threads_is_left_out():
    sentence = (
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system "
        "being overloaded, please further tune the variable for optimal performance in your application as needed. "
    )
    assert program_lines(["WARNING:torch.distributed.run:", "*" * 41, sentence, "*" * 41, "step 1"]) == ["step 1"]
    assert program_lines([sentence, "step 1"]) == [sentence, "step 1"]


def test_a_bar_before_an_agents_message_is_kept():
    message = "I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552] [default] Starting worker group"
    assert program_lines([f"  5%|▌     | 5/100{message}"]) == ["  5%|▌     | 5/100"]


def test_agents_message_within_a_traceback_is_left_out():
    message = "E1121 06:18:58.464000 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)"
    assert program_lines([*PROGRAM_TRACEBACK[:2], message, *PROGRAM_TRACEBACK[2:]]) == PROGRAM_TRACEBACK


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("10%\r20%\r30%", "30%"),
        ("30%\r", "30%"),
        ("bell\x07 \u202egnp.exe", "bell gnp.exe"),
        ("tab\tstays, ümläuts too", "tab\tstays, ümläuts too"),
    ],
)
def test_lines_have_no_control_characters(printed, shown):
    assert program_lines([printed]) == [shown]


def test_recorded_logs_give_what_the_program_printed():
    agent = re.compile(
        r"torch[./]distributed[./](?:elastic[./](?!multiprocessing/errors)|launcher|run\b)|Rendezvous'ing|FAILED$"
    )
    for path in FILES:
        printed = [line.rstrip("\n") for line in read(path)]
        shown = program_lines(printed)
        assert not [line for line in shown if agent.search(line)], path
        expected = [line for line in printed if re.search(r"WTIME|Batch \d+ Loss", line)]
        assert [line for line in shown if re.search(r"WTIME|Batch \d+ Loss", line)] == expected, path


@pytest.mark.parametrize("character", ["\u061c", "\u2028", "\u2029", "\u202e", "\x9b", "\x00", "\ud800"])
def test_character_that_acts_on_a_terminal_is_removed(character):
    assert all(is_clean(line) for line in ProgramLines().feed(f"a{character}b"))


def test_native_frames_and_repetitions_are_left_out_of_the_last_lines():
    lines = [
        "[rank0]: the shard is broken",
        "[rank1]: the shard is broken",
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f in /lib/libc10.so)",
        "[rank0]: frame #12: clone + 0x44 (0x7f0 in /lib/libc.so.6)",
        "/usr/lib/libc.so.6(+0x3c050)[0x7f5]",
        "the end",
    ]
    assert condense_lines(lines) == ["[rank0]: the shard is broken", "the end"]
