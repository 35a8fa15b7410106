"""Text of others loses everything that could act on a terminal, and JSON escapes it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.printable import clean_text, encode_json, is_clean

TEXTS = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07a", "a"),
    ("\x1b]52;c;Y2F0\x1b\\a", "a"),
    ("\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]0;no end of the sequence", "0;no end of the sequence"),
    ("\x1b[2J\x1b[H\x1b[?25lgone", "gone"),
    ("\x9b2Jgone", "gone"),
    ("\x1bPq#0\x1b\\a", "a"),
    ("\x1bc\x1b(0a", "a"),
    ("a\x00b\x07c\x08d\x7fe\x85f", "abcde f"),
    ("10 %\r20 %\r\n", "10 % 20 %\n"),
    ("user\u202etxt.exe\u2066\u200f", "usertxt.exe"),
    ("a\u2028b", "a b"),
    ("half \ud800 of a pair", "half  of a pair"),
    ("tab\tand\nline", "tab\tand\nline"),
    ("ä ö 中 🙂 → ━", "ä ö 中 🙂 → ━"),
]


@pytest.mark.parametrize(("text", "clean"), TEXTS)
def test_text_is_cleaned(text, clean):
    assert clean_text(text) == clean
    assert is_clean(clean)


def test_only_colours_may_stay():
    assert clean_text("\x1b[1;31mred\x1b[0m\x1b[2J\x07\x1b]0;t\x07", keep_colours=True) == "\x1b[1;31mred\x1b[0m"


def test_removed_character_can_be_marked():
    assert clean_text("a\x00b", mark="?") == "a?b"


ANY = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]0;m\x07\x9b\r\n\\?P")), max_size=40)


@given(ANY)
def test_any_text_becomes_clean(text):
    assert is_clean(clean_text(text))
    assert clean_text(clean_text(text)) == clean_text(text)


@given(ANY)
def test_json_escapes_what_cleaning_would_remove(text):
    for plain_ascii in (True, False):
        line = encode_json({text: [text]}, plain_ascii=plain_ascii)
        assert is_clean(line)
        assert json.loads(line) == {text: [text]}


def test_numbers_that_json_lacks_become_null():
    value = {"loss": float("nan"), "curve": [1.5, float("inf"), (-float("inf"), "NaN")], "text": "NaN"}
    text = encode_json(value)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {"loss": None, "curve": [1.5, None, [None, "NaN"]], "text": "NaN"}
