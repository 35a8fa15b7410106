"""The page of the lint rules."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.lint.catalogue import RULES
from kfjob.lint.rules import LintRule

_HEAD = """\
# Lint

`kfjob submit`, `validate` and `render` check a valid spec against these rules.

- An *error* means that the job cannot work as written. The job is not submitted.
- A *warning* can be intended. It is printed on stderr. `--strict` (also `KFJOB_STRICT=1`, or `strict = true` in `kfjob.toml`)
  treats warnings as errors.
- A *note* only informs, also with `--strict`.
- `lint: {ignore: [RULE]}` in a spec turns a rule off for that job.

The rules check the PyTorchJob after `overrides` were merged into it. The local backend checks only the rules that are marked
*also local*.
"""


def format_page() -> str:
    """Return the whole page."""
    index = [f"- [`{rule.id}`](#{rule.id}): {rule.title}" for rule in RULES]
    return "\n".join([_HEAD, *index, *(line for rule in RULES for line in _section(rule))]) + "\n"


def _section(rule: LintRule) -> Iterator[str]:
    yield from ("", f"## {rule.id}", "")
    yield f"*{rule.severity}{', also local' if rule.local else ''}* · {rule.title}."
    yield from ("", rule.reason)
