"""Every message of every package but the trainer against messages/."""

import ast
from pathlib import Path

import pytest

from kfjob.joblog.diagnose.rules import RULES as DIAGNOSIS_RULES
from kfjob.lint.catalogue import RULES as LINT_RULES
from tests.golden.command_tree import contexts
from tests.golden.message_catalogue import error_catalogue, notice_catalogue, package_modules, texts_of

MESSAGES = Path(__file__).parent / "messages"
PACKAGES = package_modules()


def catalogues() -> dict[str, str]:
    texts = {"lint-rules": lint_rules(), "diagnosis-rules": diagnosis_rules(), "options": options()}
    for package, modules in PACKAGES.items():
        texts[f"errors-{package}"] = error_catalogue(modules)
        texts[f"notices-{package}"] = notice_catalogue(modules)
        texts[f"fields-{package}"] = descriptions(modules)
    return {name: text for name, text in texts.items() if text}


def lint_rules() -> str:
    return "\n".join(f"{rule.id} ({rule.severity})\n  {rule.title}\n  {rule.reason}\n" for rule in LINT_RULES)


def diagnosis_rules() -> str:
    return "\n".join(
        f"{rule.id}\n  title: {rule.title}\n  cause: {rule.cause}\n  remedy: {rule.remedy}\n" for rule in DIAGNOSIS_RULES
    )


def options() -> str:
    lines = []
    for context in contexts():
        lines += [
            f"{context.command_path} {max(option.opts, key=len)}: {option.help}\n"
            for option in context.command.params
            if getattr(option, "help", None) and "--help" not in option.opts
        ]
    return "".join(lines)


def descriptions(modules: list[Path]) -> str:
    """Return the descriptions of the fields of all models."""
    lines = []
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            for statement in node.body:
                lines += [
                    f"{node.name}.{ast.unparse(statement.target)}: {texts_of(keyword.value)}\n"
                    for call in ast.walk(statement)
                    if isinstance(call, ast.Call) and isinstance(statement, ast.AnnAssign)
                    for keyword in call.keywords
                    if keyword.arg == "description"
                ]
    return "".join(sorted(lines))


TEXTS = catalogues()


@pytest.mark.parametrize("name", TEXTS)
def test_messages_match_the_golden(name, check_golden):
    check_golden(MESSAGES / f"{name}.txt", TEXTS[name])


def test_every_message_golden_has_a_catalogue():
    assert {path.stem for path in MESSAGES.glob("*.txt")} == set(TEXTS)


def test_the_catalogues_are_complete():
    assert sum(text.count("\n\n") for name, text in TEXTS.items() if name.startswith("errors-")) > 180
