"""Numbers of a YAML text have a limited length: PyYAML needs quadratic time for `1:1:1…`."""

from __future__ import annotations

import pytest

from kfjob.base.parsing import ParseError
from kfjob.source.yaml_loader import MAX_NUMBER, load_yaml


@pytest.mark.parametrize("number", ["1:" * MAX_NUMBER + "1", "9" * (MAX_NUMBER + 1), "1." + "5" * MAX_NUMBER])
def test_long_number_is_refused(number: str):
    with pytest.raises(ParseError, match="a number is too long"):
        load_yaml(f"nodes: {number}")


def test_usual_numbers_and_long_texts_are_read():
    text = "1:" * MAX_NUMBER
    assert load_yaml(f"a: 12\nb: 1.5\nc: 0x1F\nd: '{text}'\ne: -3") == {"a": 12, "b": 1.5, "c": 31, "d": text, "e": -3}
