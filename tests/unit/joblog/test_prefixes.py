"""What log tools, launchers and loggers put before a message."""

import pytest

from kfjob.joblog.lines.prefixes import MAX_PARTS, Level, split_prefix, split_process, strip_stamps

MESSAGE = "  step 10: loss 2.5"


@pytest.mark.parametrize(
    ("prefix", "level"),
    [
        ("2026-02-03 04:05:06,211 - trainer - WARNING - ", Level.WARNING),
        ("2026-02-03 04:05:06,211 trainer WARNING ", Level.WARNING),
        ("[2026-02-03 04:05:06,211] torch.distributed.elastic.agent: [WARNING] ", Level.WARNING),
        ("[2026-02-03 04:05:06,211][INFO][trainer.py:97:step] ", Level.INFO),
        ("2026-02-03 04:05:06.137 | SUCCESS  | __main__:train:45 - ", Level.INFO),
        ("W0203 04:05:06.137000 140123 torch/distributed/run.py:45] ", Level.WARNING),
        ("[E0203 04:05:06.137000123 socket.cpp:764] [c10d] ", Level.ERROR),
        ("Feb 3 04:05:06 ERROR ", Level.ERROR),
        ("04:05:06 ", None),
    ],
)
def test_a_logger_names_time_and_level(prefix: str, level: Level | None):
    fields, message = split_prefix(prefix + MESSAGE)
    assert (fields.has_stamp, fields.level, message.lstrip()) == (True, level, MESSAGE.lstrip())


@pytest.mark.parametrize(
    ("prefix", "rank", "is_local_rank"),
    [
        ("[rank3]:", 3, False),
        ("[default3]:", 3, True),
        ("[trainer3]:", 3, True),
        ("(3/24) ", 3, False),
        ("2026-02-03 04:05:06,211 INFO [train.py:1075] (3/4) ", 3, False),
        ("[proc 3] ", 3, False),
        ("Process 3/4: ", 3, False),
        ("[Rank 3/4] ", 3, False),
        ("[rank 3 / 4] ", 3, False),
        ("rank:3/4 | ", 3, False),
        ("[1,3]<stdout>:", 3, False),
        ("3: INFO ", 3, False),
        ("node03: [rank=3, local_rank=1] ", 3, False),
        ("[2026-02-03 04:05:06,211] [INFO] [trainer.py:97:log] [Rank 3] ", 3, False),
        ("[2026-02-03 04:05:06,211] [INFO] [trainer.py:97:log] [Rank -1] ", None, False),
        ("(TrainWorker pid=9911, ip=10.0.0.7) ", None, False),
    ],
)
def test_a_prefix_names_the_rank(prefix: str, rank: int | None, *, is_local_rank: bool):
    fields, message = split_prefix(prefix + MESSAGE)
    assert (fields.rank, fields.is_local_rank, message.lstrip()) == (rank, is_local_rank, MESSAGE.lstrip())


@pytest.mark.parametrize(
    "text",
    [
        "[10/500] loss 2.5",
        "(4/10) 2.5",
        "[step=10] loss 2.5",
        "[it 3] nll 2.5",
        "[epoch3] nll 2.5",
        "[step0]: nll 2.5",
        "[epoch:  0, iter:     100] nll 2.5",
        "(upd #3) x",
        "[nll 2.5] x",
        "10: loss 2.5",
        "",
    ],
)
def test_counters_are_part_of_the_message(text: str):
    fields, message = split_prefix("[rank0]:" + text)
    assert (fields.rank, message) == (0, text)


@pytest.mark.parametrize(
    "tag",
    [
        "[worker 3]",
        "[worker3]",
        "[NeMo I 2026-02-03 model:10]",
        "[node 2]",
        "[pid 4242]",
        "[thread 1, job 7]",
        "[d 0]",
        "[v1.2 build 3]",
    ],
)
def test_numbers_of_other_things_are_part_of_the_prefix(tag: str):
    assert split_prefix(f"{tag} loss 2.5")[1] == "loss 2.5"


@pytest.mark.parametrize(
    ("process", "body"),
    [
        ("[rank0]:", "ValueError: no"),
        ("[1,0]<stderr>:", "Traceback (most recent call last):"),
        ("(Worker pid=7, ip=10.0.0.7)", "ValueError: no"),
        ("3:", "ValueError: no"),
        ("node03: [rank0]:", "ValueError: no"),
    ],
)
def test_lines_of_one_process_have_one_prefix(process: str, body: str):
    separator = "" if process.endswith("]:") else " "
    assert split_process(process + separator + body) == (process, body)


@pytest.mark.parametrize("text", ["3: 2.5", "loss: 2.5", "[2026-02-03 04:05:06] ValueError: no"])
def test_other_lines_name_no_process(text: str):
    assert split_process(text) == ("", text)


def test_stamps_of_log_tools_are_removed():
    assert strip_stamps("[pod/a/b] 1970-01-01T00:00:01Z stdout F text") == ("text", 10**9)


def test_a_line_of_prefixes_has_an_end():
    text = "[a] " * 10 * MAX_PARTS
    assert split_prefix(text)[1] == text[4 * MAX_PARTS :]


def test_the_message_keeps_its_indentation():
    assert split_prefix("2026-02-03 04:05:06 ERROR   File 'a.py'")[1] == "  File 'a.py'"
