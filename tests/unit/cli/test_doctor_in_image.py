"""`kfjob doctor --in-image` on a list of components."""

from __future__ import annotations

import json

import pytest

from kfjob.cli.commands import run
from kfjob.image import components


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> list[components.Component]:
    components_found = [
        components.Component("python", "present", "3.11.2"),
        components.Component("torch", "missing", hint="TORCH=auto"),
    ]
    monkeypatch.setattr(components, "list_components", lambda: components_found)
    return components_found


def test_missing_components_are_no_error(capsys):
    assert run(["doctor", "--in-image"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["ok  python  3.11.2", "--  torch   not in this image  (hint: TORCH=auto)"]
    assert not err


def test_broken_and_required_components_are_errors(parts: list[components.Component], capsys):
    assert run(["doctor", "--in-image", "--require", "torch", "--require", "python"]) == 1
    assert capsys.readouterr().err == "error: missing or broken in this image: torch\n"
    parts.append(components.Component("efa", "broken", "does not load"))
    assert run(["doctor", "--in-image", "-o", "json"]) == 1
    out, err = capsys.readouterr()
    assert [part["name"] for part in json.loads(out)["components"]] == ["python", "torch", "efa"]
    assert "efa" in err


@pytest.mark.parametrize("argv", [["--in-image", "--require", "tarch"], ["--require", "torch"], ["--in-image", "torch"]])
def test_wrong_options_are_usage_errors(argv: list[str], capsys):
    assert run(["doctor", *argv]) == 2
    assert capsys.readouterr().err.startswith("error: ")
