"""The YAML loader for every text that a user provides."""

from __future__ import annotations

from typing import Any

import yaml

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader; libyaml's, which is ten times faster, where PyYAML was built with it."""
