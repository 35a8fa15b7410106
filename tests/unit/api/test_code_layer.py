"""Code is added to the images of a Master and its Workers."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from kfjob.api.images import code_layer
from kfjob.api.images.code_layer import CodeLayer, add_code_layer
from kfjob.api.target import Target
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import UsageError
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from kfjob.spec.master import MasterPod

SPEC = {"name": "job", "image": "r.example/a:1", "nodes": 2, "command": "torchrun t.py", "rendezvous": "static"}
NO_TARGET = cast("Target", None)


def test_one_tag_cannot_name_two_images(monkeypatch):
    monkeypatch.setattr(code_layer, "push_code_layer", lambda image, *_args, **_options: f"{image}-pushed")
    spec = JobSpec.model_validate(SPEC | {"master": {"image": "r.example/b:1"}})
    plan = resolve(spec, Context(backend="kubernetes", launch="l"))
    with pytest.raises(UsageError, match="the tag `new` can name only one"):
        add_code_layer(spec, plan, CodeLayer(folder=Path(), new_image="r.example/c:new"), NO_TARGET, notify=ignore_notice)
    layer = CodeLayer(folder=Path(), new_image="r.example/c")
    changed = add_code_layer(spec, plan, layer, NO_TARGET, notify=ignore_notice)
    assert isinstance(changed.master, MasterPod)
    assert (changed.image, changed.master.image) == ("r.example/a:1-pushed", "r.example/b:1-pushed")


def test_one_tag_can_name_one_image(monkeypatch):
    monkeypatch.setattr(code_layer, "push_code_layer", lambda image, *_args, **_options: f"{image}-pushed")
    spec = JobSpec.model_validate(SPEC)
    plan = resolve(spec, Context(backend="kubernetes", launch="l"))
    layer = CodeLayer(folder=Path(), new_image="r.example/c:new")
    assert add_code_layer(spec, plan, layer, NO_TARGET, notify=ignore_notice).image == "r.example/a:1-pushed"
