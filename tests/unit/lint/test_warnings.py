"""Lint on the command line: warnings on stderr with their position, and errors that stop a submit."""

from __future__ import annotations

from pathlib import Path

import pytest

import kfjob as api
from kfjob.base.errors import SpecError
from tests.unit.api.conftest import fake, kfjob

__all__ = ["fake", "kfjob"]

SPEC = "name: a\nimage: train\nnodes: 2\ncommand: torchrun train.py\nenv: {LOGLEVEL: WARNING}\n"
WARNINGS = (
    "warning: image `train` has no tag, which means `latest` [latest-image]\n"
    "  --> job.yaml:2:8 (image)\n"
    "hint: use a version or a digest; `kfjob push-image` prints one\n"
    "warning: `LOGLEVEL` `WARNING` hides the ranks of the agents [loglevel-hides-agent]\n"
    "  --> job.yaml:5:17 (env.LOGLEVEL)\n"
    "hint: remove it: kfjob sets INFO\n"
)


@pytest.fixture
def spec(fake, monkeypatch):
    monkeypatch.delenv("KFJOB_STRICT", raising=False)
    Path("job.yaml").write_text(SPEC)
    return "job.yaml"


@pytest.mark.parametrize("command", ["validate", "render", "submit"])
def test_warnings_are_on_stderr_with_their_position(spec, kfjob, command):
    assert kfjob(command, spec) == 0
    assert kfjob.err.startswith(WARNINGS)
    assert "warning" not in kfjob.out


@pytest.mark.parametrize("argv", [["validate"], ["render"], ["submit"], ["submit", "--dry-run=client"], ["apply"]])
def test_strict_turns_warnings_into_errors(spec, kfjob, fake, argv):
    assert kfjob(*argv, "--strict", spec) == 2
    assert kfjob.out == ""
    is_validate = argv == ["validate"]  # its first line names the backend
    assert kfjob.err.splitlines()[is_validate].startswith("error: image `train` has no tag")
    assert "error: `LOGLEVEL` `WARNING`" in kfjob.err
    assert fake.list(namespace="default") == []


def test_strict_can_be_a_setting(spec, kfjob, monkeypatch):
    monkeypatch.setenv("KFJOB_STRICT", "1")
    assert kfjob("validate", spec) == 2
    monkeypatch.setenv("KFJOB_STRICT", "false")
    assert kfjob("validate", spec) == 0
    monkeypatch.delenv("KFJOB_STRICT")
    Path("kfjob.toml").write_text("strict = true\n")
    assert kfjob("validate", spec) == 2
    Path("kfjob.toml").write_text('strict = "perhaps"\n')
    assert kfjob("validate", spec) == 2
    assert "`strict` must be true or false, not `perhaps`" in kfjob.err


def test_errors_come_first_and_stop_the_submit(fake, spec, kfjob):
    Path(spec).write_text(SPEC.replace("WARNING", "info"))
    assert kfjob("submit", spec) == 2
    first, second, *others = kfjob.err.split("\n\n")
    assert first.startswith("error: `LOGLEVEL` `info` ends torchrun at once [loglevel-unknown]\n  --> job.yaml:5:17")
    assert second.startswith("warning: image `train`")
    assert all(other.startswith("note: ") for other in others)
    assert fake.list(namespace="default") == []


def test_submit_in_python_notifies_of_warnings(spec):
    messages: list[str] = []
    api.submit(spec, notify=messages.append)
    assert "\n".join(message for message in messages if not message.startswith("note: ")) + "\n" == WARNINGS
    with pytest.raises(SpecError, match="error: image `train`"):
        api.submit(spec, strict=True)
