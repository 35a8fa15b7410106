"""The generated pages of docs/reference are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import kfjob
from kfjob.base import parsing
from kfjob.cli import limits_reference as limits
from kfjob.cli import python_reference as python
from kfjob.cli import reference as commands
from kfjob.cli.commands import COMMANDS
from kfjob.cluster.exchange import DEFAULT_LIMITS
from kfjob.image.registry.transport import DEFAULT_RETRIES
from kfjob.spec import reference as spec
from kfjob.spec.job import JobSpec
from kfjob.trainspec.train_spec import TrainSpec

PAGES = Path(__file__).parents[2] / "docs" / "reference"

LAYOUT = {
    "image/registry/transport.py _GRACE_SECONDS",  # added to a timeout that is described
}
"""Constants without a description that limit no input."""


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
    assert all(f"`{name}`" in page or f"### {name}\n" in page for name in dir(kfjob) if name not in {"__version__", "Run"})


def test_limits_page_is_up_to_date():
    page = (PAGES / "limits.md").read_text(encoding="utf-8")
    assert page == limits.format_page(), "python -m kfjob.cli.limits_reference > docs/reference/limits.md"
    assert set(limits.find_undescribed()) == LAYOUT, "write a docstring under a new limit"


def test_limits_are_described_without_clauses_that_only_repeat():
    repeating = re.compile(r"that (?:is|are) \w+(?: at the same time)?[.;,]")
    assert [limit.name for limit in limits.list_limits() if repeating.search(limit.description)] == []


def test_limits_have_the_values_of_the_code():
    values = {(limit.file, limit.name): limit.value for limit in limits.list_limits()}
    assert values["parsing.py", "MAX_DEPTH"] == parsing.MAX_DEPTH
    assert values["backends/kubernetes/exchange.py", "Limits.body_bytes"] == DEFAULT_LIMITS.body_bytes
    assert values["image/registry/transport.py", "RetryPolicy.exchange_timeout"] == DEFAULT_RETRIES.exchange_timeout
    assert values["backends/local/stop.py", "_KILL_SECONDS"] == 5.0


def test_a_limit_has_the_unit_of_its_name(tmp_path: Path):
    (tmp_path / "a.py").write_text('''
from kfjob.base.units import MIB, SECOND
MAX_BYTES = 4 * MIB
"""Size of a file."""
WAIT_SECONDS = 90.0
"""Time of a wait for 3 bytes."""
LIFETIME_NANOSECONDS = 300 * SECOND
"""Lifetime of an entry."""
MAX_A, MAX_B = 1, 2_000
"""Bytes and seconds in a description are no unit."""
_MAX_LINES = 1
"""Lines of a log."""
SHOWN_CHARACTERS = 2_000
"""Length of a quotation."""
POLL_SECONDS = 1.0
"""A poll interval limits nothing."""
MAX_NOTHING = 5
MIN = 7
"""No limit."""
class Limits:
    open_seconds: float = 3600.0
    """Time until a stream begins."""
class RetryPolicy:
    first_pause: float = 0.5
    """A back-off limits nothing."""
    read_timeout: float = 1.0
    """Timeout of a part."""
    attempts: int = 6
    """Attempts of one request."""
''')
    values = {limit.name: limit.format_value() for limit in limits.list_limits(tmp_path)}
    assert values == {
        "MAX_BYTES": "4 MiB", "WAIT_SECONDS": "90 s", "LIFETIME_NANOSECONDS": "5 min", "MAX_A": "1", "MAX_B": "2,000",
        "_MAX_LINES": "1 line", "SHOWN_CHARACTERS": "2,000 characters",
        "Limits.open_seconds": "1 hour", "RetryPolicy.read_timeout": "1 s", "RetryPolicy.attempts": "6",
    }  # fmt: skip
    assert list(limits.find_undescribed(tmp_path)) == ["a.py MAX_NOTHING"]
