"""Long lines in a terminal: words and commands stay whole, and further lines begin below the text."""

from __future__ import annotations

import pytest

from kfjob.cli.formatting import wrap

LONG = "it waits for `kill -CONT 123456` and then for the pod with the name `job-worker-0`"


@pytest.mark.parametrize("width", range(30, 90))
def test_words_and_commands_stay_whole(width: int):
    lines = wrap(LONG, width).split("\n")
    assert " ".join(lines) == LONG
    assert all(len(line) <= width for line in lines)
    assert sum("`kill -CONT 123456`" in line for line in lines) == 1


@pytest.mark.parametrize(("head", "indent"), [
    ("reason     ", 11), ("hint: ", 6), ("  cause: ", 9), ("    | ", 6), ("ok    python      ", 18), ("", 0),
])  # fmt: skip
def test_further_lines_begin_below_the_text(head: str, indent: int):
    first, *others = wrap(head + LONG, 60).split("\n")
    assert first.startswith(head + "it waits")
    assert others
    assert all(line[:indent].isspace() or not indent for line in others)
    assert all(line[indent] != " " for line in others)


def test_commands_of_a_list_stay_whole():
    assert wrap("next  kfjob status llama · kfjob stop llama", 30) == "next  kfjob status llama ·\n      kfjob stop llama"


def test_row_of_a_wide_table_and_short_lines_stay_as_they_are():
    row = "llama-worker-0   1/1   Running   0   5m   node-with-a-very-long-name   0-7"
    assert wrap(f"{row}\nshort", 60) == f"{row}\nshort"
    assert wrap("\x1b[31mred\x1b[0m words", 9) == "\x1b[31mred\x1b[0m words"
