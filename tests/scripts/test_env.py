"""The environment that scripts/env makes."""

from __future__ import annotations

import sys
from pathlib import Path


def test_the_envsubst_of_the_python_package_does_not_hide_gnus():
    assert not Path(sys.executable).with_name("envsubst").exists()
