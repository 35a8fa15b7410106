"""The modules that every package uses: units, text, threads."""

import copy
import math
import pickle
import threading
import time
from concurrent.futures import CancelledError

import pytest

from kfjob.base.concurrency import Task, map_parallel
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import format_decimal, format_figure, join_names, plural
from kfjob.base.units import parse_quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.61234, "7.612"),
        (999.96, "1000"),
        (237007.4, "237,007"),
        (1e-05, "1e-05"),
        (math.nan, "nan"),
    ],
)
def test_figure_has_the_digits_that_count(value: float, text: str):
    assert format_figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.2104, "4.2104"), (7.6, "7.6000"), (1234.5, "1234.5000"), (0.0123456, "0.01235"), (1e-05, "1e-05"), (2.5e7, "2.5e+07")],
)
def test_fixed_figure_has_decimals_where_they_count(value: float, text: str):
    assert format_figure(value, fixed=True) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.0, 5, "0.00000"),
        (1e-05, 5, "0.000010"),
        (4.36e-06, 5, "0.0000044"),
        (0.0043, 2, "0.0043"),
        (7012.4, 0, "7012"),
        (1e-300, 5, "0." + "0" * 20),
        (math.nan, 5, "nan"),
    ],
)
def test_decimal_number_never_loses_its_digits(value: float, decimals: int, text: str):
    assert format_decimal(value, decimals) == text


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("2", 2),
        (3, 3),
        ("500m", 0.5),
        ("100n", 1e-7),
        ("1k", 1000),
        ("1e3", 1000),
        ("24581684Ki", 24581684 * 1024),
        ("1.5Gi", 1.5 * 1024**3),
        ("1Ei", 1024**6),
        ("1.5e3", 1500),
        (".5Gi", 0.5 * 1024**3),
        ("-1", -1),
        ("1E", 1e18),
    ],
)
def test_quantity_is_parsed(quantity, value):
    assert parse_quantity(quantity) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "many", "5Q", "Gi", "1_0", " 1", "1e", "1e1.5", "1e3Gi", ".", "inf", "nan", "１"])
def test_text_that_is_no_quantity_is_an_error(text):
    with pytest.raises(ValueError, match="could not convert"):
        parse_quantity(text)


def test_counts_have_singular_and_plural():
    assert [plural(1, "node"), plural(0, "node"), plural(2, "process", "processes")] == ["1 node", "0 nodes", "2 processes"]
    assert join_names(["a", "b", "c"], limit=2) == "a, b and 1 more"
    assert join_names([], empty="none yet") == "none yet"


def test_task_returns_the_value_or_raises_the_exception():
    assert Task(lambda: 3, name="test").result() == 3
    with pytest.raises(ZeroDivisionError):
        Task(lambda: 1 / 0, name="test").result()


def test_parallel_results_are_in_the_order_of_the_items():
    def slow_for_small(number):
        time.sleep(0.01 * (5 - number))
        return number * 10

    assert map_parallel(slow_for_small, range(5), threads=3, name="test") == [0, 10, 20, 30, 40]
    assert map_parallel(slow_for_small, [], threads=3, name="test") == []


def test_first_failure_begins_no_further_item_and_waits_for_the_running_ones():
    stop, begun, ended = threading.Event(), [], []

    def call(number):
        begun.append(number)
        if number == 0:
            raise ValueError("no")
        stop.wait(10)
        ended.append(number)

    with pytest.raises(ValueError, match="no"):
        map_parallel(call, range(100), threads=2, name="test", stop=stop)
    assert sorted(ended) == sorted(begun)[1:]
    assert len(begun) < 5


def test_parallel_calls_end_when_someone_else_stops_them():
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        map_parallel(str, range(3), threads=2, name="test", stop=stop)


def test_spec_errors_survive_pickle_and_copy():
    error = SpecError([Problem(title="wrong", path="nodes", hint="say 2")])
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 - its own value
        assert (str(other), other.problems) == (str(error), error.problems)
