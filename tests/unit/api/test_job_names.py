"""Names of jobs on the command line: several at once, and misspelt ones."""

import pytest

from tests.unit.api import script


@pytest.fixture(autouse=True)
def _jobs(fake):
    for name in ("tiny-llama", "other"):
        fake.play(name, *script.TRAINING, spec=script.SPEC)


@pytest.mark.parametrize("command", ["logs", "status", "watch", "wait", "diagnose", "stop", "relaunch", "report"])
def test_a_misspelt_name_gets_a_suggestion(kfjob, command):
    assert kfjob(command, "tiny-lama") == 3
    assert "hint: did you mean `tiny-llama`? `kfjob list` shows the jobs" in kfjob.err


def test_a_name_like_no_other_gets_none(kfjob):
    assert kfjob("status", "zzz") == 3
    assert "did you mean" not in kfjob.err


def test_an_archived_name_is_suggested_too(kfjob):
    kfjob("stop", "tiny-llama")
    assert kfjob("status", "tiny-lama") == 3
    assert "did you mean `tiny-llama`?" in kfjob.err
    assert kfjob("stop", "tiny-llama") == 3
    assert "did you mean" not in kfjob.err


def test_several_jobs_are_stopped_at_once(kfjob):
    assert kfjob("stop", "tiny-llama", "other") == 0
    assert kfjob.out == "tiny-llama\nother\n"


def test_an_error_does_not_keep_the_others_from_being_stopped(kfjob):
    assert kfjob("stop", "nothing", "other") == 3
    assert kfjob.out == "other\n"
    assert "error: " in kfjob.err
