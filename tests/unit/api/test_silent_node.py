"""A node that does not answer keeps nobody from the other pods, and the status says which pod is on it."""

from __future__ import annotations

import pytest

from kfjob.base.errors import NodeUnreachable
from tests.unit.api import script


@pytest.mark.parametrize("silent", ["train-worker-0", "train-worker-1"])
def test_status_names_the_pod_whose_node_does_not_answer(fake, kfjob, monkeypatch, silent):
    read = fake.logs

    def logs(ref, pod, log_range, **options):
        if pod == silent:
            raise NodeUnreachable(f"the log of pod `{pod}` cannot be read: its node does not answer")
        return read(ref, pod, log_range, **options)

    fake.play("train", *script.TRAINING, spec=script.SPEC)
    monkeypatch.setattr(fake, "logs", logs)
    assert kfjob("status", "train") == 0
    assert f"`{silent}`: NodeNotReady (its node does not answer)" in kfjob.out
    assert kfjob("master", "train") == 0
    assert kfjob("diagnose", "train") == 0
