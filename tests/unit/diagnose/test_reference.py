from __future__ import annotations

from pathlib import Path

from kfjob.joblog.diagnose.reference import page

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "diagnose.md"


def test_reference_page_is_up_to_date():
    assert DOCUMENT.read_text() == page(), "run: python -m kfjob.joblog.diagnose.reference > docs/reference/diagnose.md"
