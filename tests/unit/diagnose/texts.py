"""Texts of failures with their sources: one for each rule that has one.

"seen: CASE" is a recording in tests/data/agent-logs; "seen" alone is a real run, on the test cluster or in tests/local.
Other sources are the files that hold the text in these versions: accelerate 1.15.0, botocore 1.43.117, datasets 5.2.0,
deepspeed 0.19.8, huggingface_hub 2.4.0, numpy 2.4.6, peft 0.21.2, pyarrow 26.0.1, pydantic 2.14.3, safetensors 0.8.0,
tokenizers 0.23.3, torch 2.15.0, transformers 5.23.0, triton 3.9.0, urllib3 2.8.0. Events and queue statuses that were not seen
are from memory of the named file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kfjob.joblog.events import JobChanged, JobPhase, KubernetesEvent, PodChanged, PodPhase, WorkloadStatus
from tests.unit.diagnose.cases import START


class Text(NamedTuple):
    rule: str
    text: str
    source: str


DATA = Path(__file__).parents[2] / "data"
_ROWS = (DATA / "failure_lines.tsv").read_text().splitlines()
LINES = [Text(rule, text, source) for rule, source, text in (row.split("\t") for row in _ROWS)]
_BLOCKS = re.findall(r"=== (\S+)\t(.+)\n((?:(?!=== ).*\n)+)", (DATA / "failure_messages.txt").read_text())
MESSAGES = [Text(rule, text.removesuffix("\n"), source) for rule, source, text in _BLOCKS]
"""Messages of several lines."""


def _make_state(subject: str, reason: str, message: str) -> PodChanged | JobChanged | KubernetesEvent | WorkloadStatus:
    """Return the state of a `pod PHASE [EXIT_CODE [RESTARTS]]`, `job PHASE` or `queue`, or a `warning KIND` or `event KIND`."""
    match subject.split():
        case ["pod", phase, *numbers]:
            code, restarts = (*map(int, numbers), *(None, None))[:2]
            return PodChanged(
                pod="a-worker-0", phase=PodPhase(phase), reason=reason, message=message, exit_code=code, restarts=restarts or 0
            )
        case ["job", phase]:
            return JobChanged(phase=JobPhase(phase), reason=reason, message=message)
        case [("warning" | "event") as severity, kind]:
            name = {"Pod": "a-worker-0", "PersistentVolumeClaim": "ckpt"}.get(kind, "a")
            is_warning = severity == "warning"
            return KubernetesEvent(
                kind=kind, name=name, reason=reason, message=message, warning=is_warning, time=START, uid=reason
            )
    return WorkloadStatus(name="pytorchjob-a-1", queue="team", reason=reason, message=message, time=START)


_STATES = [row.split("\t") for row in (DATA / "cluster_states.tsv").read_text().splitlines()]
STATES = [(rule, _make_state(subject, reason, message)) for rule, _, subject, reason, message in _STATES]
PODS = [(rule, state) for rule, state in STATES if isinstance(state, PodChanged)]
JOBS = [(rule, state) for rule, state in STATES if isinstance(state, JobChanged)]
EVENTS = [(rule, state) for rule, state in STATES if isinstance(state, KubernetesEvent)]
QUEUES = [(rule, state) for rule, state in STATES if isinstance(state, WorkloadStatus)]
