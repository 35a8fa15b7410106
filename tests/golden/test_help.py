"""The help of one command for each form against help/; `unit/cli/test_command_names.py` prints that of every command."""

from pathlib import Path

import pytest

from tests.golden.command_tree import contexts

HELP = Path(__file__).parent / "help"
TEXTS = {context.command_path.replace(" ", "-"): context.get_help() + "\n" for context in contexts()}
COMMANDS = ("run", "submit", "status", "logs", "init", "relaunch", "import-torchrun")
NAMES = ("kfjob", *(f"kfjob-{name}" for name in COMMANDS))


@pytest.mark.parametrize("name", NAMES)
def test_help_matches_the_golden(name, check_golden):
    check_golden(HELP / f"{name}.txt", TEXTS[name])


def test_every_help_golden_has_a_command():
    assert {path.stem for path in HELP.glob("*.txt")} == set(NAMES)
