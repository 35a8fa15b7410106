"""The texts of the rules: fields, commands and options in them exist, and a local job gets a local remedy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import get_args

import click
import pytest
from pydantic import BaseModel

from kfjob.cli.commands import kfjob
from kfjob.joblog.diagnose.rule import Rule, Severity, Subject
from kfjob.joblog.diagnose.rules import BY_ID, RULES
from kfjob.joblog.events import LogLine, PodChanged, PodPhase
from kfjob.spec.job import JobSpec
from tests.unit.diagnose.cases import examine, find_cause
from tests.unit.diagnose.texts import LINES

DOTTED_FIELD = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)(?::[^`]*)?`")
FIELD = re.compile(r"`([a-z]+(?:_[a-z]+)*)(?:: [^`]*)?`")
OTHER_NAMES = {
    "auto",  # a value of `processes_per_node`
    "dmesg", "etcd", "lscpu", "torchrun",  # programs
    "collate_fn", "save_pretrained",
    "chat_template", "ds_report", "fullgraph", "gpu_memory_utilization", "load_state_dict", "low_cpu_mem_usage",
    "max_model_len", "num_generations", "pad_token_id", "protobuf", "rename_column", "resume_from_checkpoint", "target_modules",
    "tensor_parallel_size", "to_empty",  # of libraries
    "deepspeed", "nohup", "fi_info", "ibstat", "show_gids",  # programs
    "init_process_group",  # of torch.distributed
    "device_map", "find_unused_parameters", "no_grad", "requires_grad", "torch_dtype",  # of torch and transformers
    "ddp_timeout", "train_batch_size",  # of DeepSpeed's configuration
    "custom_imports", "fsdp_transformer_layer_cls_to_wrap", "monitor",  # of MMEngine, transformers and Lightning
    "join_timeout", "read_timeout",  # keys of `rendezvous.conf`
    "standalone",  # of the operator's elasticPolicy
    "transformer_layer",  # of kfjob's trainer
}  # fmt: skip
CLUSTER_WORDS = re.compile(
    r"\bkubectl\b|\bdocker\b|\bimage\b|\bDockerfile\b|\bnode's\b|\bcordon\b|inside the (?:pod|container)|in a pod"
)
LOCAL_POD_RULES = {
    "pod-killed",
    "pod-terminated",
    "pod-crashed",
    "pod-failed",
    "pod-signalled",
    "pod-not-executable",
    "container-start",
    "crash-loop",
}
CLUSTER_ONLY = {"efa-missing", "operator-missing", "no-pods", "pod-deleted"}


def field_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        annotations = [field.annotation]
        while annotations:
            annotation = annotations.pop()
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield from field_names(annotation, f"{prefix}{name}.")
            annotations += get_args(annotation)


def texts(rule: Rule) -> tuple[str, ...]:
    return (rule.title, rule.cause, rule.local_title, rule.remedy, rule.local_remedy)


def test_fields_of_the_spec_exist():
    fields = set(field_names(JobSpec))
    leaves = {name.rpartition(".")[2] for name in fields}
    for rule in RULES:
        text = " ".join(texts(rule))
        assert {name for name in DOTTED_FIELD.findall(text) if not name.startswith("torch.")} <= fields, rule.id
        assert set(FIELD.findall(text)) <= leaves | OTHER_NAMES, rule.id


def test_some_remedies_name_fields():
    assert sum(bool(DOTTED_FIELD.search(rule.remedy)) for rule in RULES) >= 5


def test_backticks_are_closed():
    assert [text for rule in RULES for text in texts(rule) if text.count("`") % 2] == []


def test_commands_and_options_of_kfjob_exist():
    every_text = " ".join(text for rule in RULES for text in texts(rule))
    for call in re.findall(r"`kfjob ([^`]*)`", every_text):
        name, *arguments = shlex.split(call.format(job="train", pod="train-worker-0"))
        context = click.Context(kfjob, **kfjob.context_settings)  # click keeps the help option of the first context
        command = kfjob.get_command(context, name)
        assert command is not None, call
        command.make_parser(click.Context(command, parent=context)).parse_args(arguments)


def can_be_local(rule: Rule) -> bool:
    is_log = rule.subject in {Subject.LOG, Subject.EXCEPTION, Subject.VIEW}
    return (is_log or rule.id in LOCAL_POD_RULES) and rule.id not in CLUSTER_ONLY


def test_remedies_for_local_jobs_name_nothing_of_a_cluster():
    remedies = {rule.id: rule.local_remedy or rule.remedy for rule in RULES if can_be_local(rule)}
    assert {name: remedy for name, remedy in remedies.items() if CLUSTER_WORDS.search(remedy)} == {}


def test_titles_and_causes_of_local_pods_name_nothing_of_kubernetes():
    for rule in (BY_ID[name] for name in LOCAL_POD_RULES):
        words = f"{rule.local_title or rule.title} {rule.cause}"
        assert not re.search(r"\bcontainer|kubelet|evicted|\bimage\b", words), rule.id


def test_local_job_gets_the_local_title():
    pod = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=3)
    titles = [examine([pod], local=local)[0].first_cause for local in (False, True)]
    assert [issue and issue.title for issue in titles] == [
        "the container ended with exit code 3",
        "the program ended with exit code 3",
    ]


def test_the_signal_that_ended_a_process_has_its_name():
    pods = [PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=code) for code in (130, 138)]
    titles = [issue.title for pod in pods if (issue := examine([pod], local=True)[0].first_cause)]
    assert titles == [f"the pod's process was ended by a signal ({name})" for name in ("SIGINT", "SIGUSR1")]


def test_a_program_that_printed_steps_was_executable():
    lines = [LogLine(pod="a-worker-0", text=f"step {step} loss 2.5") for step in range(5)]
    pod = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=127)
    rules = [examine([*printed, pod])[0].first_cause for printed in ([], lines)]
    assert [issue and issue.rule for issue in rules] == ["pod-not-executable", "pod-failed"]


@pytest.mark.parametrize("line", [line for line in LINES if line.rule == "script-not-found"], ids=lambda line: line.rule)
def test_local_job_gets_the_local_remedy(line):
    pod = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=1)
    remedies = []
    for local in (False, True):
        first = find_cause([LogLine(pod="a-worker-0", text=line.text), pod], local=local)
        remedies.append(first.remedy)
    assert "`kfjob run --code DIR`" in remedies[0]
    assert remedies[1] == "use an absolute path, or set the working directory"


def test_local_remedy_replaces_a_remedy():
    for rule in RULES:
        assert rule.remedy or not rule.local_remedy, rule.id
        assert rule.local_remedy != rule.remedy or not rule.remedy, rule.id
        assert not rule.local_remedy or rule.severity is not Severity.HARMLESS, rule.id
