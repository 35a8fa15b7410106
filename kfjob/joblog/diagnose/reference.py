"""The page of the rules, which `python -m docs.generate` writes."""

from __future__ import annotations

import re

from kfjob.joblog.diagnose.rule import Role, Rule, Severity
from kfjob.joblog.diagnose.rules import GROUPS, RULES

_HEAD = """# Rules of `kfjob diagnose`

`kfjob diagnose JOB` reads the logs of all pods, including those of containers before a restart, and the states of the pods. It
names the first cause of a failure, where it occurred, what to do about it, and its consequences. `kfjob diagnose --from DIR`
does the same with saved logs. `kfjob diagnose JOB --warnings` lists every distinct warning with its count, pods and ranks. When
a job fails while you follow it, kfjob diagnoses it automatically.

An error in one process makes other processes fail too. A *cause* explains a failure by itself. A *suspect* explains it if there
is no cause. A *consequence* is the effect of another process's failure. A *symptom* shows that something ended, but not why.
The job has recovered from an error if a later round trains, or if the program says that it goes on. If the job fails all the
same, and nothing else explains it, the last such error is the suspect; so is an error in a run of tests that passed.

There are {count} rules.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD.format(count=len(RULES))]
    for group in GROUPS:
        parts += [f"## {group.heading}\n", *(_format_rule(rule) for rule in group.rules)]
    return "\n".join(parts)


def _format_rule(rule: Rule) -> str:
    severity = rule.severity if rule.severity is Severity.HARMLESS else f"{rule.severity}, {rule.role}"
    if rule.harmless_before_join:
        severity += "; harmless if the agents join a round after it"
    if rule.role_after_join is Role.CONSEQUENCE:
        severity += "; a consequence once they have joined"
    lines = [f"### {rule.id}\n", f"{_replace_groups(rule.title)}. *({severity})*\n", f"- Why: {_replace_groups(rule.cause)}"]
    if rule.agent_cause:
        lines.append(f"- Why in a pod with torchrun: {_replace_groups(rule.agent_cause)}")
    if rule.remedy:
        lines.append(f"- What to do: {_replace_groups(rule.remedy)}")
    if rule.local_title:
        lines.append(f"- On the local backend, the title is: {_replace_groups(rule.local_title)}")
    if rule.local_cause:
        lines.append(f"- On the local backend: {_replace_groups(rule.local_cause)}")
    if rule.local_remedy:
        lines.append(f"- On the local backend: {_replace_groups(rule.local_remedy)}")
    if rule.running_remedy:
        lines.append(f"- While the job runs: {_replace_groups(rule.running_remedy)}")
    if rule.link:
        lines.append(f"- More: <{rule.link}>")
    return "\n".join(lines) + "\n"


def _replace_groups(text: str) -> str:
    """Return the text with `JOB` for the job's name and `…` for other values."""
    return re.sub(r"\{\w+\}", lambda match: "JOB" if match[0] == "{job}" else "…", text)
