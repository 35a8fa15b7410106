"""The pool of worker processes for the tests of this folder."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.trainer import conftest


def test_interrupted_run_leaves_no_response_to_the_next(tmp_path):
    pool = conftest.Workers(tmp_path)
    try:
        with mock.patch.object(conftest, "wait", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            pool.run("fail_some_ranks", {"failing": [0]})
        assert pool.run("fail_some_ranks", {"failing": []}) == ["no error"]
    finally:
        pool.stop()
