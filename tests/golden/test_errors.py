"""The message for every invalid spec in errors/."""

from pathlib import Path

import pytest

from kfjob.api.planning import plan_job
from kfjob.api.settings import load_current_settings
from kfjob.api.target import make_target
from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import SpecError
from kfjob.source.spec_text import load_spec

SPECS = sorted((Path(__file__).parent / "errors").glob("*.yaml"))


def check(spec: Path) -> None:
    settings = load_current_settings(backend="kubernetes", namespace="default")
    loaded = load_spec(spec.read_text(encoding="utf-8"), file=spec.name)
    plan_job(loaded, make_target(settings, "kubernetes")).check_findings(ignore_notice)


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_message_matches_the_golden(spec, check_golden):
    with pytest.raises(SpecError) as caught:
        check(spec)
    message = str(caught.value) + "\n"
    check_golden(spec.with_suffix(".txt"), message)
    assert caught.value.exit_code == 2
    assert "Traceback" not in message


def test_every_error_golden_has_a_spec():
    assert {p.stem for p in (Path(__file__).parent / "errors").glob("*.txt")} == {p.stem for p in SPECS}
