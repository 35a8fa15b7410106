"""Progress bars of tqdm."""

import pytest

from kfjob.joblog.progress.figures.bars import Bar, Counts, find_bar


@pytest.mark.parametrize(
    ("text", "bar"),
    [
        (
            "Epoch 0:  10%|█  | 20/200 [00:10<01:30,  2.00it/s, loss=2.31] done",
            Bar("Epoch 0:  ", "10", Counts(20, 200, 2.0, "it/s", " loss=2.31", " done")),
        ),
        ("0%|   | 0/1.5k [00:00<?, ?it/s]", Bar("", "0", Counts(0, 1500, None, "it/s", "", ""))),
        ("50%|##| 1,000/2,000 [00:10<00:10, 1.5Ksamples/s]", Bar("", "50", Counts(1000, 2000, 1500, "samples/s", "", ""))),
        ("50%|##| 1/2 [00:10, loss=1]", Bar("", "50", Counts(1, 2, None, "", "loss=1", ""))),
    ],
)
def test_a_bar_has_counts_and_a_rate(text: str, bar: Bar):
    assert find_bar(text) == bar


@pytest.mark.parametrize("text", ["50%|##|", "50%|##| 1.2.3/5 [00:10<00:10, 1it/s]", "50%|##| 1/2"])
def test_a_bar_may_have_no_counts(text: str):
    assert find_bar(text) == Bar("", "50", None)


@pytest.mark.parametrize("text", ["", "50%| of the disk", "1/2 [00:10]"])
def test_other_text_has_no_bar(text: str):
    assert find_bar(text) is None


def test_a_rate_that_is_no_number_is_unknown():
    bar = find_bar("50%|##| 1/2 [00:10<00:10, 1.2.3it/s]")
    assert bar is not None
    assert bar.counts is not None
    assert (bar.counts.rate, bar.counts.unit) == (None, "")
