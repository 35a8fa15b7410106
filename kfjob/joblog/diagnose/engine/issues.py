"""The issues of a diagnosis: occurrences of the same error in several pods, with the texts of their rule."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from kfjob.base.text import SIGNAL_BASE
from kfjob.joblog.agents.agent_records import name_signal
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.diagnose.engine.assessment import Assessment
from kfjob.joblog.diagnose.engine.history import Occurrence
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE, LogSource, Role, Severity

_SUSPECTED = "; the program went on after it, but no other error explains the failure"
"""End of the cause of an error that the program survived."""
_IN_DOUBT = "; this may not be the cause: a process of the pod printed other lines after it"
"""End of the cause of an exception that the program may have handled."""

ANY_PACKAGE = "PACKAGE"
"""Stands for a package that kfjob does not know: the package of that name may be another one."""
_OTHER_NAMES: Mapping[str, str] = MappingProxyType({
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "dns": "dnspython", "dotenv": "python-dotenv", "flash_attn": "flash-attn",
    "google.protobuf": "protobuf", "grpc": "grpcio", "jwt": "pyjwt", "open_clip": "open-clip-torch", "PIL": "pillow",
    "pkg_resources": "'setuptools<81'", "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "yaml": "pyyaml",
})  # fmt: skip
"""Packages of modules with another name, as the packages state them in their own metadata (PyPI)."""
_SAME_NAMES = frozenset((
    "accelerate", "datasets", "deepspeed", "diffusers", "einops", "evaluate", "fire", "h5py", "huggingface_hub",
    "jinja2", "lightning", "matplotlib", "mlflow", "msgpack", "ninja", "nltk", "numba", "numpy", "omegaconf", "pandas",
    "peft", "psutil", "pyarrow", "pydantic", "regex", "requests", "safetensors", "scipy", "seaborn", "sentencepiece",
    "tensorboard", "tensorboardX", "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torchmetrics",
    "torchvision", "tqdm", "transformers", "triton", "trl", "wandb", "webdataset", "zarr",
))  # fmt: skip
"""Packages with the name of their module."""


class Commands(Struct, frozen=True):
    """What the commands in a remedy need to know."""

    job: str  # what names the job on a command line
    source: LogSource = LogSource.JOB
    local: bool = False  # the job runs on the local backend
    running: bool = False
    agents: frozenset[str] = frozenset()  # pods with an agent
    installer: str = ""  # what installs packages for a local job; "": unknown


class _Values(dict[str, str]):
    """The values of a rule. A number or an exit code of a signal has its name too."""

    def __missing__(self, key: str) -> str:
        if key != "signal":
            return UNKNOWN_VALUE
        code = self.get("code", "")
        return name_signal(self.get("number") or (str(int(code) - SIGNAL_BASE) if code.isdecimal() else UNKNOWN_VALUE))


def describe(occurrence: Occurrence, *, local: bool = False) -> str:
    """Return the title of the occurrence's rule with its values; `local`: the job runs on the local backend."""
    rule = occurrence.rule
    return (rule.local_title if local and rule.local_title else rule.title).format_map(_Values(occurrence.values))


def _fill_texts(occurrence: Occurrence, commands: Commands) -> tuple[str, str, str]:
    """Return title, cause and remedy of the rule with the values of this occurrence."""
    rule = occurrence.rule
    cause = rule.local_cause if commands.local and rule.local_cause else rule.cause
    if occurrence.pod in commands.agents and rule.agent_cause:
        cause = rule.agent_cause
    title = rule.local_title if commands.local and rule.local_title else rule.title
    remedy = rule.local_remedy if commands.local and rule.local_remedy else rule.remedy
    if commands.running and rule.running_remedy:
        remedy = f"{rule.running_remedy}; {remedy}"
    values = _Values({"job": commands.job, "pod": occurrence.pod, **occurrence.values})
    if "name" in values:
        values["package"] = find_package(values["name"])
    if commands.local and commands.installer:
        remedy = remedy.replace("`pip install ", f"`{commands.installer.replace('{', '{{').replace('}', '}}')} ")
    if commands.source is not LogSource.JOB:
        remedy = _adapt_to_saved_logs(remedy, commands.source)
    return title.format_map(values), cause.format_map(values), remedy.format_map(values)


def _adapt_to_saved_logs(remedy: str, source: LogSource) -> str:
    """Return the remedy for saved logs, which `kfjob relaunch` does not take, and which standard input gives only once."""
    if source is LogSource.STANDARD_INPUT:
        remedy = "; ".join(part for part in remedy.split("; ") if not re.search(r"`kfjob (?!relaunch)\w+ \{job\}", part))
    return remedy.replace("kfjob relaunch {job}", "kfjob relaunch JOB")


def group_assessments(assessments: list[Assessment], commands: Commands) -> list[tuple[Issue, list[Assessment]]]:
    """Return the issues by time: the same error in several pods is one issue, located at its first occurrence."""
    groups: dict[tuple[str, str, Severity, Role, bool], list[Assessment]] = defaultdict(list)
    for item in assessments:
        title, _, _ = _fill_texts(item.occurrence, commands)
        groups[item.occurrence.rule.id, title, item.severity, item.role, item.recovered].append(item)
    issues = []
    for group in groups.values():
        members = sorted(group, key=lambda item: item.sort_key)
        issues.append((_to_issue(members, commands), members))
    return sorted(issues, key=lambda pair: pair[1][0].sort_key)


def _to_issue(members: list[Assessment], commands: Commands) -> Issue:
    first = members[0]
    occurrence = first.occurrence
    title, cause, remedy = _fill_texts(occurrence, commands)
    if first.recovered and occurrence.rule.recovered_title:
        title = occurrence.rule.recovered_title.format_map(_Values(occurrence.values))
    if first.suspected:
        cause += _SUSPECTED
    elif first.in_doubt and not first.recovered:
        cause += _IN_DOUBT
    return Issue(
        rule=occurrence.rule.id,
        severity=first.severity,
        role=first.role,
        title=title,
        cause=cause,
        remedy=remedy,
        link=occurrence.rule.link,
        pod=occurrence.pod,
        line=occurrence.line,
        time=first.time,
        is_dated=occurrence.timestamp.exact,
        rank=occurrence.rank,
        place=occurrence.place,
        previous=occurrence.in_previous_container,
        evidence=occurrence.evidence,
        context=occurrence.context,
        count=sum(item.count for item in members),
        pods=tuple(dict.fromkeys(item.occurrence.pod for item in members if item.occurrence.pod)),
        recovered=first.recovered,
    )


def find_package(module: str) -> str:
    """Return the package to install for a module: `opencv-python-headless` for `cv2`, `PACKAGE` for one that is unknown."""
    return _OTHER_NAMES.get(module) or (module if module in _SAME_NAMES else ANY_PACKAGE)
