"""The timeouts of a Run are numbers of seconds."""

from __future__ import annotations

import pytest

from kfjob.api.jobs import attach
from kfjob.base.errors import UsageError
from tests.unit.api import script


@pytest.mark.parametrize("method", ["wait", "stop", "relaunch"])
@pytest.mark.parametrize("timeout", ["3 parsecs", "5m", True, float("nan")])
def test_timeout_that_is_no_number_is_an_error(fake, method, timeout):
    fake.play("train", *script.SUCCEEDED, spec=script.SPEC)
    with pytest.raises(UsageError, match="`timeout` is not a number of seconds") as caught:
        getattr(attach("train"), method)(timeout=timeout)
    assert "`timeout=600`" in (caught.value.hint or "")
