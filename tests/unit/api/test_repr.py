"""What objects of the Python API show in a shell: one line without pages of defaults."""

from __future__ import annotations

import pytest

import kfjob
from kfjob.api.html_page import HtmlPage
from kfjob.base.errors import SpecError
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Verdict
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot
from kfjob.joblog.progress.position import Position
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.spec.job import JobSpec
from kfjob.spec.pod import Resources
from tests.unit.api import script

TOKEN = f"hf_{'abcdefghijklmnopq' * 2}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            JobSpec(name="a", command="x y", resources=Resources(gpus=1)),
            "JobSpec(name='a', resources=Resources(gpus=1), command=",
        ),
        (JobSnapshot(name="a", namespace="ml", job=JobChanged(phase=JobPhase.RUNNING)), "<JobSnapshot ml/a Running (0 pods)>"),
        (
            Training(position=Position(step=3, total=9), loss=1.5, lines=3, pod="a-worker-0"),
            "<Training step 3/9, loss 1.5000 (3 lines of a-worker-0)>",
        ),
        (Training(), "<Training (0 lines of no pod)>"),
        (Diagnosis(headline="Running", verdict=Verdict.UNKNOWN), "<Diagnosis Running>"),
        (JobView(), "<JobView unknown (0 pods)>"),
        (HtmlPage("<html>" * 1024), '<HtmlPage of 6 KiB; `page.save("report.html")` writes it>'),
    ],
)
def test_an_object_shows_itself_in_one_line(value, text):
    assert repr(value).startswith(text)
    assert len(repr(value)) < 120


def test_a_spec_hides_secrets():
    spec = JobSpec(
        name="a",
        command=("train", "--token", TOKEN),
        env={"DB_PASSWORD": "tomato-soup", "URL": "https://me:tomato-soup@host", "LOGLEVEL": "INFO"},
        annotations={"note": TOKEN},
    )
    assert "tomato-soup" not in repr(spec)
    assert TOKEN not in repr(spec)
    assert "command=('train', '--token', '[redacted]')" in repr(spec)
    assert "'LOGLEVEL': 'INFO'" in repr(spec)
    assert "tomato-soup" in spec.env.values()


def test_an_error_of_a_spec_hides_secrets():
    with pytest.raises(SpecError) as caught:
        JobSpec(name="a", command="x", labels={"note": f"{TOKEN} "}, env={"DB_PASSWORD": 5})
    assert TOKEN not in str(caught.value)
    assert "[redacted]" in str(caught.value)


def test_a_report_is_a_page_that_can_be_saved(fake, tmp_path):
    fake.play("train", *script.SUCCEEDED, spec=script.SPEC)
    page = kfjob.attach("train").report()
    path = page.save(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == page
    assert page.startswith("<!doctype html>") or "<html" in page
    assert repr(page).startswith("<HtmlPage of ")
    assert page._repr_html_().startswith("<iframe")
