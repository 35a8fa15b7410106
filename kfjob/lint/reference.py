"""docs/reference/lint.md, made from the rules: `python -m kfjob.lint.reference > docs/reference/lint.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kfjob.lint.catalogue import RULES
from kfjob.lint.rules import Rule

_HEAD = """\
# Lint

What `kfjob submit`, `validate` and `render` find in a spec that is well formed and still does not do what was meant. An
*error* is sure to fail, or to do another thing than was asked for; the job is not submitted. A *warning* may be meant: it is
printed on stderr, and `--strict` (also `KFJOB_STRICT=1`, or `strict = true` in `kfjob.toml`) makes it an error. A rule that
is wrong about a job is left out with `lint: {ignore: [RULE]}` in its spec.

The rules look at the PyTorchJob after `overrides` were merged into it. On this machine those marked *here too* are run.

This page is made from the rules by `python -m kfjob.lint.reference`.
"""


def markdown() -> str:
    """The whole page."""
    index = [f"- [`{rule.id}`](#{rule.id}): {rule.title}" for rule in RULES]
    return "\n".join([_HEAD, *index, *(line for rule in RULES for line in _section(rule))]) + "\n"


def _section(rule: Rule) -> Iterator[str]:
    yield from ("", f"## {rule.id}", "")
    yield f"*{rule.severity}{', here too' if rule.local else ''}* · {rule.title}."
    yield from ("", rule.why)


if __name__ == "__main__":
    sys.stdout.write(markdown())
