from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfjob.backends.kubernetes.lines import LineSplitter, lines


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(min_value=0, max_value=200)))
def test_pieces_of_any_size_give_the_lines(data: bytes, cuts: list[int]):
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    expected = data.split(b"\n")
    assert list(lines(pieces, limit=1000)) == (expected if expected[-1] else expected[:-1])


def test_an_overlong_line_keeps_its_beginning_and_says_how_much_was_left_out():
    splitter = LineSplitter(limit=4)
    assert list(splitter.take(b"abc")) == []
    assert list(splitter.take(b"defg")) == []
    assert list(splitter.take(b"hi\nok\nx")) == [(b"abcd", 5), (b"ok", 0)]
    assert splitter.rest() == (b"x", 0)
    assert splitter.rest() is None
