"""Counts of distinct warnings for `kfjob diagnose --warnings`."""

from __future__ import annotations

import pytest

from kfjob.joblog.diagnose.warnings import MAX_DISTINCT, WarningCounter
from tests.unit.diagnose.cases import block, examine, line, progress, recorded

A, B = "a-worker-0", "a-worker-1"


def table(events):
    _, symptoms = examine(events)
    return [
        (warning.text, warning.count, sorted(warning.pods), sorted(warning.ranks), warning.harmless)
        for warning in symptoms.warnings.ranked()
    ]


def test_warnings_that_differ_in_time_rank_or_numbers_are_equal():
    events = [
        *block(0, 1, A),
        line("[rank0]:[W1121 06:37:49.6 ProcessGroupNCCL.cpp:10] Warning: slow by 12 ms (function f)", 1, A),
        line("[rank1]:[W1121 06:37:51.7 ProcessGroupNCCL.cpp:10] Warning: slow by 3.5 ms (function f)", 2, B),
        line("/x/y.py:12: UserWarning: lr is high", 3, A),
        line("  warnings.warn(", 3, A),
    ]
    assert table(events) == [
        ("Warning: slow by 12 ms (function f)", 2, [A, B], [0, 1], False),
        ("/x/y.py:12: UserWarning: lr is high", 1, [A], [0], False),
    ]


def test_warnings_that_name_different_ranks_are_apart():
    order = "UserWarning: Forward order differs from that of the first iteration on rank {}. 12 collectives"
    events = [line(order.format(rank), second, A) for second, rank in enumerate((0, 17, 7, 17))]
    assert [(text, count) for text, count, *_ in table(events)] == [
        (order.format(17), 2),
        (order.format(0), 1),
        (order.format(7), 1),
    ]


def test_local_rank_is_converted_to_the_global_rank():
    many = block(1, 1, B)
    many = [line(event.text.replace("global_ranks=[1]", "global_ranks=[8, 9, 10]"), 1, B) for event in many]
    assert table([*many, line("[default2]:UserWarning: x", 2, B)]) == [("UserWarning: x", 1, [B], [10], False)]


def test_harmless_warnings_are_marked_and_last():
    ((text, count, pods, _, harmless),) = table(recorded("2.15.0-c10d-tee-logdir"))
    assert text.startswith("Setting OMP_NUM_THREADS")
    assert (count, pods, harmless) == (2, ["fsdp-master-0", "fsdp-worker-0"], True)


SOCKET = "[c10d] The client socket has failed to connect to [localhost]:29500 (errno: 97 - Address family not supported)."
UNRESOLVED = "[c10d] The IPv6 network addresses of (x, 29400) cannot be retrieved (gai error: -2 - Name or service not known)."


@pytest.mark.parametrize("prefix", ["[W socket.cpp:663] ", "[W1121 06:37:49.644000000 socket.cpp:764] "])
@pytest.mark.parametrize(("text", "rule"), [(SOCKET, "ipv6-unavailable"), (UNRESOLVED, "rendezvous-unresolvable")])
def test_warnings_of_sockets_are_marked_as_in_the_diagnosis(prefix: str, text: str, rule: str):
    """Torch 2.0 to 2.1 print no time; later versions do."""
    events = [line(f"{prefix}{text}", 0, A), *block(0, 1, A), line(f"[rank1]:{prefix}{text}", 1, B)]
    diagnosis, symptoms = examine([*events, *block(1, 1, B), progress(1, 5), progress(1, 5, B)])
    (warning,) = symptoms.warnings.ranked(diagnosis.harmless_rules)
    assert (warning.text, warning.rule, warning.harmless, warning.count) == (text, rule, True, 2)
    assert warning.ranks == {1}


def test_memory_is_bounded():
    counter = WarningCounter()
    for number in range(MAX_DISTINCT + 7):
        name = "".join(chr(97 + int(digit)) for digit in str(number))
        counter.add_line(f"UserWarning: {name}", pod="p", rank=None, rule="", harmless=False)
    assert (len(counter.ranked()), counter.uncounted) == (MAX_DISTINCT, 7)


def test_long_word_is_searched_once_for_a_warning():
    counter = WarningCounter()
    counter.add_line("w" * 1_000_000, pod=A, rank=0, rule="", harmless=False)  # \w*Warning: would need an hour
    assert counter.ranked() == []
