"""The environment that scripts/env creates."""

from __future__ import annotations

import sys
from pathlib import Path


def test_environment_does_not_hide_gnu_envsubst():
    assert not Path(sys.executable).with_name("envsubst").exists()
