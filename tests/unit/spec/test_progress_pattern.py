"""An invalid pattern of progress lines: where it is wrong, and everything else that is wrong with it."""

from __future__ import annotations

import pytest

from kfjob.base.errors import SpecError, UsageError
from kfjob.joblog.progress.pattern import check_pattern, refuse_pattern
from kfjob.source.spec_text import load_spec

SYNTAX, GROUPS = "`progress` is not a regular expression", "`progress` has neither a group `step` nor a group `loss`"


@pytest.mark.parametrize(
    ("pattern", "titles", "detail"),
    [
        (r"step (\d+ loss", [SYNTAX, GROUPS], r"missing ): step (\d+ loss"),
        (r"step (?P<step>\d+) of (\d+", [SYNTAX], "missing ): step"),
        (r"step \d+) loss", [SYNTAX, GROUPS], "unexpected ): "),
        (r"a[b (?P<step>\d+)", [SYNTAX], "missing ]: [b (?P<step>"),
        (r"[]a] [^]] [[:alpha:](] (?P<stp>(x", [SYNTAX, "unknown group `stp` in `progress`"], "missing ): "),
        (r"(?P<step\d+)", [SYNTAX], "invalid named capture group"),
    ],
)
def test_every_problem_of_a_pattern_is_reported(pattern, titles, detail):
    problems = check_pattern(pattern)
    assert [problem.title for problem in problems] == titles
    assert str(problems[0].detail).startswith(detail)


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        (r"(?P<step>\d+)(?=a)", "kfjob uses RE2, whose syntax has no look-ahead, look-behind or back-references"),
        (r"(?P<step>\d+)\1", "kfjob uses RE2, whose syntax has no look-ahead, look-behind or back-references"),
        (r"(?P<step>\d**)", None),
    ],
)
def test_hint_fits_the_mistake(pattern, hint):
    (problem,) = check_pattern(pattern)
    assert problem.hint == hint


def test_spec_reports_all_problems_of_its_pattern_with_their_position():
    with pytest.raises(SpecError) as caught:
        load_spec("name: a\ncommand: a\nprogress: 'step (\\d+ loss'\n")
    assert [(problem.title, problem.line, problem.column) for problem in caught.value.problems] == [
        (SYNTAX, 3, 11),
        (GROUPS, 3, 11),
    ]


def test_option_reports_all_problems_in_one_error():
    with pytest.raises(UsageError) as caught:
        refuse_pattern(r"step (\d+ loss")
    assert caught.value.title == SYNTAX
    assert caught.value.cause == rf"missing ): step (\d+ loss{chr(10)}{GROUPS}"
