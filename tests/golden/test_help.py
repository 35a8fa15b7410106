"""The help of every command against help/."""

from pathlib import Path

import pytest

from tests.golden.command_tree import contexts

HELP = Path(__file__).parent / "help"
TEXTS = {context.command_path.replace(" ", "-"): context.get_help() + "\n" for context in contexts()}


@pytest.mark.parametrize("name", TEXTS)
def test_help_matches_the_golden(name, check_golden):
    check_golden(HELP / f"{name}.txt", TEXTS[name])


def test_every_help_golden_has_a_command():
    assert {path.stem for path in HELP.glob("*.txt")} == set(TEXTS)
