"""Whether a quota that refuses a new launch has room for it once the old one is stopped."""

from __future__ import annotations

import pytest

from kfjob.api.lifecycle.replace import may_fit_quota

MESSAGE = 'pods "a" is forbidden: exceeded quota: team, requested: {requested}, used: {used}, limited: {limited}'


@pytest.mark.parametrize(
    ("requested", "used", "limited", "fits"),
    [
        ("count/pytorchjobs.kubeflow.org=1", "count/pytorchjobs.kubeflow.org=1", "count/pytorchjobs.kubeflow.org=1", True),
        ("count/pytorchjobs.kubeflow.org=1", "count/pytorchjobs.kubeflow.org=0", "count/pytorchjobs.kubeflow.org=0", False),
        ("limits.cpu=500m,limits.memory=1Gi", "limits.cpu=1,limits.memory=1Gi", "limits.cpu=1,limits.memory=1024Mi", True),
        ("limits.cpu=500m,limits.memory=1Gi", "limits.cpu=1,limits.memory=1Gi", "limits.cpu=1,limits.memory=1023Mi", False),
    ],
)
def test_request_is_compared_with_the_whole_quota(requested: str, used: str, limited: str, fits: bool):  # noqa: FBT001
    assert may_fit_quota(MESSAGE.format(requested=requested, used=used, limited=limited)) is fits


def test_other_message_is_no_quota():
    assert not may_fit_quota("must specify limits.cpu for: pytorch")
