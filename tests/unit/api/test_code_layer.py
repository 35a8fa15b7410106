"""Code is added to the images of a Master and its Workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfjob.api.images import code_layer
from kfjob.api.images.code_layer import CodeLayer, change_code
from kfjob.api.prepared import PreparedJob
from kfjob.api.settings import Settings
from kfjob.api.spec_source import SpecSource
from kfjob.api.target import make_target
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import UsageError
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.spec.master import MasterPod
from kfjob.validation.field_paths import Positions

SPEC = {"name": "job", "image": "r.example/a:1", "nodes": 2, "command": "torchrun t.py", "rendezvous": "static"}


def prepare(tmp_path: Path, **fields: Any) -> tuple[SpecSource, PreparedJob]:
    source = SpecSource(LoadedSpec(JobSpec.model_validate(SPEC | fields), Positions()))
    return source, source.prepare(make_target(Settings(state=tmp_path), "kubernetes"))


def add_code(source: SpecSource, job: PreparedJob, layer: CodeLayer) -> JobSpec:
    return source.change_images(job, change_code(layer, job, notify=ignore_notice)).spec


def test_one_tag_cannot_name_two_images(monkeypatch, tmp_path):
    monkeypatch.setattr(code_layer, "push_code_layer", lambda image, *_args, **_options: f"{image}-pushed")
    source, job = prepare(tmp_path, master={"image": "r.example/b:1"})
    with pytest.raises(UsageError, match="the tag `new` can name only one"):
        add_code(source, job, CodeLayer(folder=Path(), new_image="r.example/c:new"))
    changed = add_code(source, job, CodeLayer(folder=Path(), new_image="r.example/c"))
    assert isinstance(changed.master, MasterPod)
    assert (changed.image, changed.master.image) == ("r.example/a:1-pushed", "r.example/b:1-pushed")


def test_one_tag_can_name_one_image(monkeypatch, tmp_path):
    monkeypatch.setattr(code_layer, "push_code_layer", lambda image, *_args, **_options: f"{image}-pushed")
    source, job = prepare(tmp_path)
    assert add_code(source, job, CodeLayer(folder=Path(), new_image="r.example/c:new")).image == "r.example/a:1-pushed"
