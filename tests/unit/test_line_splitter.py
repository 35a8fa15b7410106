from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfjob.backends.line_splitter import LineSplitter, split_lines


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(min_value=0, max_value=200)))
def test_pieces_of_any_size_give_the_lines(data: bytes, cuts: list[int]):
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    expected = data.split(b"\n")
    assert list(split_lines(pieces, limit=1000)) == (expected if expected[-1] else expected[:-1])


def test_an_overlong_line_keeps_its_beginning_and_says_how_much_was_left_out():
    splitter = LineSplitter(limit=4)
    assert list(splitter.take(b"abc")) == []
    assert list(splitter.take(b"defg")) == []
    assert list(splitter.take(b"hi\nok\nx")) == [(b"abcd", 5), (b"ok", 0)]
    assert splitter.take_rest() == (b"x", 0)
    assert splitter.take_rest() is None


def test_the_newest_complete_state_of_a_bar_is_known():
    splitter = LineSplitter(limit=100)
    seen = []
    for piece in (b"at \r", b" 1", b"%|", b"\r 2%|\r", b" 3%", b"|\r   \r", b" 4%|\nnext"):
        list(splitter.take(piece))
        seen.append(splitter.drawn)
    assert seen == [b"", b"", b"", b" 2%|", b" 2%|", b" 3%|", b""]


@given(states=st.lists(st.binary(min_size=1, max_size=9).filter(lambda one: one.strip()), min_size=9), size=st.integers(1, 20))
def test_an_overlong_bar_keeps_its_beginning_and_its_newest_state(states: list[bytes], size: int):
    states = [state.replace(b"\n", b"n").replace(b"\r", b"r") for state in states]
    line = b"at \r" + b"\r".join(states)
    splitter = LineSplitter(limit=12)
    for at in range(0, len(line), size):
        assert not splitter.take_block(line[at : at + size])
        assert splitter.drawn in {b"", *states}
    kept = splitter.take_block(b"\n")
    assert kept.startswith(b"at \r")
    assert kept.endswith(b"\r" + states[-1] + b"\n")
    assert len(kept) < 30
