"""Arguments of the Python API that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kfjob
from kfjob.api.jobs import attach
from kfjob.api.run import Run
from kfjob.base.errors import KfjobError, NotFound, UsageError
from tests.unit.api import script


@pytest.fixture
def run(fake) -> Run:
    fake.play("train", *script.SUCCEEDED, spec=script.SPEC)
    return attach("train")


@pytest.mark.parametrize("spec", ["name", "a\0b", ".", Path("/nonexistent/job.yaml")])
def test_text_that_names_no_spec_file_is_not_found(run, spec):
    with pytest.raises(NotFound, match="spec `"):
        kfjob.submit(spec)


def test_file_that_is_no_text_is_not_found(run, here):
    (here / "job.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KfjobError):
        kfjob.submit("job.yaml")


@pytest.mark.parametrize("nodes", ["node-7", ""])
def test_text_is_no_list_of_nodes_to_avoid(run, fake, nodes: Any):
    with pytest.raises(UsageError) as caught:
        run.relaunch(avoid_nodes=nodes)
    assert caught.value.hint == f"write `avoid_nodes=['{nodes}']`"
    assert fake.calls == []


def test_error_in_planning_is_not_an_unreadable_file(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ValueError("a bug inside planning")

    monkeypatch.setattr("kfjob.source.spec_text.load_spec", fail)
    file = tmp_path / "job.yaml"
    file.write_text("name: demo\n")
    with pytest.raises(ValueError, match="a bug inside planning"):
        kfjob.submit(file)
