"""The rules as a page of the reference: `python -m kfjob.observe.diagnose.reference > docs/reference/diagnose.md`."""

from __future__ import annotations

import re
import sys

from kfjob.observe.diagnose.rule import Role, Rule, Severity
from kfjob.observe.diagnose.rules import GROUPS, RULES

_HEAD = """# What `kfjob diagnose` knows

This page is made from the rules themselves (`python -m kfjob.observe.diagnose.reference`).

`kfjob diagnose JOB` reads the logs of all pods (of the containers before a restart too) and their states, and names the
first cause of a failure, where it was seen, what to do, and what followed from it. `kfjob diagnose --from DIR` does so with
saved logs. `kfjob diagnose JOB --warnings` lists every distinct warning with its count, pods and ranks. A followed job that
fails is diagnosed by itself.

Errors of one process make others fail: a *cause* explains a failure by itself, a *suspect* does if nothing better is known,
a *consequence* is what the failure of another process looks like, a *symptom* says that something ended and not why. An
error counts as overcome when a later round trains.

There are {count} rules.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD.format(count=len(RULES))]
    for heading, rules in GROUPS:
        parts += [f"## {heading}\n", *(_entry(rule) for rule in rules)]
    return "\n".join(parts)


def _entry(rule: Rule) -> str:
    severity = rule.severity if rule.severity is Severity.HARMLESS else f"{rule.severity}, {rule.role}"
    if rule.until_joined:
        severity += "; harmless once the agents have met"
    if rule.once_joined is Role.CONSEQUENCE:
        severity += "; a consequence after that"
    lines = [
        f"### {rule.id}\n",
        f"{_plain(rule.title)}. *({severity})*\n",
        f"- Why: {_plain(rule.cause)}",
    ]
    if rule.remedy:
        lines.append(f"- What to do: {_plain(rule.remedy)}")
    if rule.link:
        lines.append(f"- More: <{rule.link}>")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """With `…` for what is filled in."""
    return re.sub(r"`\{job\}`|\{job\}", "JOB", re.sub(r"\{(?!job\})\w+\}", "…", text))


if __name__ == "__main__":
    sys.stdout.write(page())
