"""`kfjob doctor --in-image`: this environment looked at as if it were an image."""

from __future__ import annotations

import json

import pytest

from kfjob.cli.main import run
from kfjob.image import components


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> list[components.Component]:
    found = [components.Component("python", "present", "3.11.2"), components.Component("torch", "missing", hint="TORCH=auto")]
    monkeypatch.setattr(components, "list_components", lambda: found)
    return found


def test_what_is_missing_is_told_and_no_fault(capsys):
    assert run(["doctor", "--in-image"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["ok  python  3.11.2", "--  torch   not in this image  (hint: TORCH=auto)"]
    assert not err


def test_what_is_broken_or_required_is_one(parts: list[components.Component], capsys):
    assert run(["doctor", "--in-image", "--require", "torch", "--require", "python"]) == 1
    assert capsys.readouterr().err == "error: missing or broken in this image: torch\n"
    parts.append(components.Component("efa", "broken", "does not load"))
    assert run(["doctor", "--in-image", "-o", "json"]) == 1
    out, err = capsys.readouterr()
    assert [one["name"] for one in json.loads(out)["components"]] == ["python", "torch", "efa"]
    assert "efa" in err


@pytest.mark.parametrize("wrong", [["--in-image", "--require", "tarch"], ["--require", "torch"], ["--in-image", "torch"]])
def test_what_is_asked_wrongly(wrong: list[str], capsys):
    assert run(["doctor", *wrong]) == 2
    assert capsys.readouterr().err.startswith("error: ")
