"""What `kfjob guard status` says of the guard of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.guard.install import GuardStatus, describe_status


def describe(tmp_path: Path, **fields: object) -> list[str]:
    status = GuardStatus(installed=True, image="guard:1", **fields)  # type: ignore[arg-type]
    return describe_status(status, Target(Settings(state=tmp_path), "kubernetes", "team"))


@pytest.mark.parametrize(
    ("age", "words"),
    [(3, "acts       guard-x_1"), (180, "acts       none: `guard-x_1` has ended, or cannot renew its Lease, for 3m")],
)
def test_guard_that_renews_its_lease_no_more_does_not_act(tmp_path: Path, age: int, words: str):
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert describe(tmp_path, ready=True, holder="guard-x_1", renewed=renewed)[1] == words


def test_guard_that_is_not_ready_has_a_hint(tmp_path: Path):
    lines = describe(tmp_path)
    assert lines[:2] == ["guard      not ready (guard:1)", "acts       none yet"]
    assert lines[2] == "hint: `kubectl describe pod -l app.kubernetes.io/name=kfjob-guard -n team` shows why"
