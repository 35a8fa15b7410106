"""The generated pages of docs/reference are up to date."""

from __future__ import annotations

from pathlib import Path

import kfjob
from kfjob import parsing
from kfjob.backends.kubernetes.exchange import DEFAULT_LIMITS
from kfjob.cli import limits_reference as limits
from kfjob.cli import python_reference as python
from kfjob.cli import reference as commands
from kfjob.cli.commands import COMMANDS
from kfjob.image.registry.transport import DEFAULT_RETRIES
from kfjob.spec import reference as spec
from kfjob.spec.job import JobSpec
from kfjob.spec.train import TrainSpec

PAGES = Path(__file__).parents[2] / "docs" / "reference"

PACE = (
    "_POLL_SECONDS",
    "POLL_SECONDS",
    "_END_POLL_SECONDS",
    "TICK_SECONDS",
    "SHORT_STREAM_SECONDS",
    "_GRACE_SECONDS",
    "CHUNK_BYTES",
)
"""Constants of the pace of a loop, which limit nothing."""
SHAPES = (
    "cli/",
    "observe/",
    "spec/",
    "image/registry/uploads.py",
    "trainer/collectives.py",
    "api/run.py",
    "backends/local/",
)
"""Files whose constants without a description shape a layout or recognise a text."""


def test_spec_page_is_up_to_date():
    page = (PAGES / "spec.md").read_text(encoding="utf-8")
    assert page == spec.format_page(), "python -m kfjob.spec.reference > docs/reference/spec.md"
    assert all(f"| `{field}` |" in page for field in [*JobSpec.model_fields, *TrainSpec.model_fields])


def test_commands_page_is_up_to_date():
    page = (PAGES / "commands.md").read_text(encoding="utf-8")
    assert page == commands.markdown(), "python -m kfjob.cli.reference > docs/reference/commands.md"
    assert all(f"\n## kfjob {name}\n" in page for name in COMMANDS)


def test_python_page_is_up_to_date():
    page = (PAGES / "python.md").read_text(encoding="utf-8")
    assert page == python.format_page(), "python -m kfjob.cli.python_reference > docs/reference/python.md"
    assert all(f"`{name}`" in page or f"### {name}\n" in page for name in kfjob.__all__ if name not in {"__version__", "Run"})


def test_limits_page_is_up_to_date():
    page = (PAGES / "limits.md").read_text(encoding="utf-8")
    assert page == limits.format_page(), "python -m kfjob.cli.limits_reference > docs/reference/limits.md"
    undescribed = [name for name in limits.find_undescribed() if not name.endswith(PACE) and not name.startswith(SHAPES)]
    assert undescribed == [], "write a docstring under a new limit"


def test_limits_have_the_values_of_the_code():
    values = {(limit.file, limit.name): limit.value for limit in limits.list_limits()}
    assert values["parsing.py", "MAX_DEPTH"] == parsing.MAX_DEPTH
    assert values["backends/kubernetes/exchange.py", "Limits.body_bytes"] == DEFAULT_LIMITS.body_bytes
    assert values["image/registry/transport.py", "RetryPolicy.exchange_timeout"] == DEFAULT_RETRIES.exchange_timeout
    assert values["backends/local/supervisor.py", "_LAST_RETRY_SECONDS"] == 5.0


def test_a_limit_has_its_unit(tmp_path: Path):
    (tmp_path / "a.py").write_text('''
from kfjob.units import MIB, SECOND
MAX_SIZE = 4 * MIB
"""Size of a file."""
WAIT_SECONDS = 90.0
"""Time of a wait."""
LIFETIME = 300 * SECOND
"""Lifetime of an entry."""
MAX_A, MAX_B = 1, 2_000
"""Lines of a log."""
MAX_NOTHING = 5
MIN = 7
"""No limit."""
class Limits:
    open_seconds: float = 3600.0
    """Time until a stream begins."""
''')
    found = {limit.name: limit.format_value() for limit in limits.list_limits(tmp_path)}
    assert found == {
        "MAX_SIZE": "4 MiB", "WAIT_SECONDS": "90 s", "LIFETIME": "5 min", "MAX_A": "1", "MAX_B": "2,000",
        "Limits.open_seconds": "1 hour",
    }  # fmt: skip
    assert list(limits.find_undescribed(tmp_path)) == ["a.py MAX_NOTHING"]
