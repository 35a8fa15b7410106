"""Every text that a pattern matches contains one of its literals."""

from __future__ import annotations

import pytest

from kfjob.joblog.diagnose.literals import find_literals


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"CUDA out of memory", ("CUDA out of memory",)),
        (r"(?:CUDA|HIP) error: (?P<what>[^\n]*)", ("CUDA error: ", "HIP error: ")),
        (r"[Ww]atchdog caught \d+", ("Watchdog caught ", "watchdog caught ")),
        (r"exit (?:code|status) 137$", ("exit code 137", "exit status 137")),
        (r"x(?:long word)+|yy", ("long word", "yy")),
        (r"a.{0,20}longer", ("longer",)),
        (r"\d+ \w*", (" ",)),
        (r"\w*(?:a|\d)", ()),
    ],
)  # fmt: skip
def test_literals_of_a_pattern(pattern: str, literals: tuple[str, ...]):
    assert find_literals(pattern) == literals
