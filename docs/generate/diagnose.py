"""The page of the diagnosis."""

from __future__ import annotations

from kfjob.joblog.diagnose.rules import GROUPS, RULES

_HEAD = """# Diagnosis

`kfjob diagnose JOB` reads the logs of all pods, including those of containers before a restart, and the states of the pods. It
names the first cause of a failure, where it occurred, what to do about it, and its consequences. `kfjob diagnose --from DIR`
does the same with saved logs. `kfjob diagnose JOB --warnings` lists every distinct warning with its count, pods and ranks. When
a job fails while you follow it, kfjob diagnoses it automatically.

An error in one process makes other processes fail too. A *cause* explains a failure by itself. A *suspect* explains it if there
is no cause. A *consequence* is the effect of another process's failure. A *symptom* shows that something ended, but not why.
The job has recovered from an error if a later round trains, or if the program says that it goes on. If the job fails all the
same, and nothing else explains it, the last such error is the suspect.

## Search

kfjob knows {count} failures. Each has an id, which stands in brackets after the error:

```sh
kfjob diagnose --rules                                   # all ids with their titles
kfjob diagnose --rules | grep -i nccl                    # those about one word
kfjob diagnose --rules -o json | jq '.[] | select(.id == "cuda-oom")'   # cause, remedy and pattern of one
```

For an exception that no rule knows, `diagnose` quotes its line in the program and the advice of its message.

## Families
"""


def format_page() -> str:
    """Return the whole page."""
    parts = [_HEAD.format(count=len(RULES))]
    for group in GROUPS:
        ids = ", ".join(f"`{rule.id}`" for rule in group.rules)
        parts.append(f"**{group.heading}:** {group.meaning}\n{ids}\n")
    return "\n".join(parts)
