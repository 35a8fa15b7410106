from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.api.conftest import fake, kfjob
from tests.unit.conftest import here

__all__ = ["fake", "here", "kfjob"]


def pytest_addoption(parser):
    parser.addoption("--update-goldens", action="store_true", help="write the golden files; read the diff before you commit")


@pytest.fixture
def check_golden(request) -> Callable[[Path, str], None]:
    """Compare a text with its golden file, or write the file with `--update-goldens`."""

    def check(golden: Path, text: str) -> None:
        if request.config.getoption("--update-goldens"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(text, encoding="utf-8")
        assert golden.exists(), f"{golden.name} is missing: `pytest tests/golden --update-goldens` writes it"
        assert text == golden.read_text(encoding="utf-8"), "`pytest tests/golden --update-goldens` writes the new text"

    return check
