"""Objects recorded on the test cluster (API server v1.34.4, operator v1.9.3).

`pod-running` and `job-running` are whole; the others have only what differs from these, an item of a list by its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded"
PODS = sorted(path.stem for path in FOLDER.glob("pod-*.json"))


def read(name: str) -> dict[str, Any]:
    """Return a recorded object, such as `pod-failed`."""
    whole = f"{name.partition('-')[0]}-running"
    value: dict[str, Any] = json.loads((FOLDER / f"{whole}.json").read_text())
    return value if name == whole else merge(value, json.loads((FOLDER / f"{name}.json").read_text()))


def merge(value: Any, changes: Any) -> Any:
    """Return a value with its changes; None removes a field."""
    if isinstance(value, dict) and isinstance(changes, dict):
        kept = {key: part for key, part in value.items() if key not in changes}
        return kept | {key: merge(value.get(key), part) for key, part in changes.items() if part is not None}
    if isinstance(value, list) and isinstance(changes, list) and len(value) == len(changes):
        return [merge(*pair) for pair in zip(value, changes, strict=True)]
    return changes
