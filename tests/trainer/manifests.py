"""Manifests of checkpoints without a run."""

from __future__ import annotations

from typing import Any

from kfjob.trainer.manifest import Manifest


def make_manifest(step: int, **changes: Any) -> Manifest:
    """Return the manifest of a checkpoint of no model."""
    body: dict[str, Any] = {"step": step, "loss": 0.0, "run_id": "", "global_batch": 1, "parameters": {}, "data_identity": {}}
    return Manifest(**body | {"data_position": {}, "spec": {}, "torch_version": "0"} | changes)
