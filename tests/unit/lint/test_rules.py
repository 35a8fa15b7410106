"""Every rule reports its violations at the right field, and nothing else."""

from __future__ import annotations

import re
import shlex

import pytest

from kfjob.lint.catalogue import BY_ID, RULES
from kfjob.lint.script import Script
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from tests.pytorchjobs import lint
from tests.unit.lint import cases

KUBERNETES = Context(backend="kubernetes", launch="l")
BAD = [(name, *case) for name, (bad, _) in cases.CASES.items() for case in bad]
GOOD = [(name, spec) for name, (_, good) in cases.CASES.items() for spec in good]


def job(changes):
    fields = {key: value for key, value in (cases.BASE | changes).items() if value is not None}
    return JobSpec.model_validate({key: value for key, value in fields.items() if key not in ("script", "backend")})


def lint_job(changes, context=None):
    spec = job(changes)
    context = context or Context(backend=changes.get("backend", "kubernetes"), launch="l")
    script = Script("train.py", changes["script"]) if "script" in changes else None
    return lint(spec, resolve(spec, context), script=script)


def test_every_rule_has_cases_of_both_kinds():
    assert set(cases.CASES) == set(BY_ID)
    assert all(bad and good for bad, good in cases.CASES.values())
    assert len(BY_ID) == len(RULES)


@pytest.mark.parametrize(("name", "changes", "path", "message"), BAD, ids=[f"{c[0]}-{i}" for i, c in enumerate(BAD)])
def test_rule_reports_its_violation(name, changes, path, message):
    (violation,) = [problem for problem in lint_job(changes) if problem.rule == name]
    assert violation.path == path
    assert message in violation.title
    assert violation.severity == BY_ID[name].severity


@pytest.mark.parametrize(("name", "changes"), GOOD, ids=[f"{c[0]}-{i}" for i, c in enumerate(GOOD)])
def test_rule_accepts_similar_specs(name, changes):
    assert [problem for problem in lint_job(changes) if problem.rule == name] == []


@pytest.mark.parametrize(
    ("image", "backend", "is_violation"),
    [
        ("etcd:v3.4.37", "etcd", False),
        ("registry.example:5000/etcd:3.5.21", "etcd", True),
        ("etcd:v3.5.21", "etcd-v2", False),
        ("etcd:v3.6.0", "etcd-v2", True),
        ("etcd:v3", "etcd", False),
        ("etcd:3.x", "etcd", False),
        ("etcd@sha256:" + "0" * 64, "etcd", False),
    ],
)
def test_own_etcd_must_be_old_enough(image, backend, is_violation):
    problems = lint_job({"rendezvous": backend}, Context(backend="kubernetes", launch="l", etcd_image=image))
    assert [problem.path for problem in problems if problem.rule == "etcd-version"] == ["rendezvous"] * is_violation


def test_rules_can_be_ignored_and_unknown_ones_are_warnings():
    assert [p.rule for p in lint_job({"image": "train"})] == ["latest-image"]
    assert lint_job({"image": "train", "lint": {"ignore": ["latest-image"]}}) == []
    (problem,) = lint_job({"lint": {"ignore": ["latest"]}})
    assert (problem.path, problem.severity) == ("lint.ignore.0", "warning")


def test_restart_policy_of_the_master_alone_is_reported_in_its_section():
    fields = {**cases.ELASTIC, "restarts": {"policy": "OnFailure"}, "master": {"restart_policy": "Never"}}
    (problem,) = [problem for problem in lint_job(fields) if problem.rule == "elastic-never"]
    assert (problem.path, problem.hint) == ("master.restart_policy", "set `master: {restart_policy: OnFailure}`")


def test_restarts_are_unused_also_if_the_program_is_in_args():
    fields = {"nodes": 1, "command": None, "args": ["python", "train.py"], "restarts": {"max": 3}}
    (problem,) = [problem for problem in lint_job(fields) if problem.rule == "unused-restarts"]
    assert problem.title.startswith("`restarts.max` has no effect: `python train.py`")


def test_local_backend_has_fewer_rules():
    local = Context(backend="local", launch="l")
    assert lint_job({"image": "train", "pod": {"grace": 5}}, local) == []
    assert [p.rule for p in lint_job({"env": {"LOGLEVEL": "info"}}, local)] == ["loglevel-unknown"]


def test_messages_of_the_local_backend_do_not_speak_of_pods():
    local = Context(backend="local", launch="l")
    rules = {rule.id for rule in RULES if rule.local}
    problems = [problem for name, changes, *_ in BAD if name in rules for problem in lint_job(changes, local)]
    assert {problem.rule for problem in problems} >= rules - {"rendezvous-id-reused"}
    words = re.compile(r"\b(?:pods?|images?|containers?|kubectl|docker)\b")
    assert [problem.title for problem in problems if words.search(f"{problem.title} {problem.hint} {problem.detail}")] == []


MANIFEST_VARIABLES = [{"name": "HF_TOKEN", "value": cases.FAKE_TOKEN}]


def lint_manifest(command, variables=()):
    """Return the problems of a PyTorchJob that a user wrote."""
    spec = job({"command": command, "env": {item["name"]: item["value"] for item in variables}})
    plan = resolve(spec, KUBERNETES)
    container = {"name": "pytorch", "image": "a:1", "command": command, "env": [*variables]}
    replica = {"replicas": plan.spec.nodes, "template": {"spec": {"containers": [container]}}}
    manifest = {"metadata": {"name": "a"}, "spec": {"pytorchReplicaSpecs": {"Worker": replica}}}
    return {problem.rule: problem for problem in lint(spec, plan, user_manifest=manifest)}


def test_secret_of_a_manifest_moves_to_a_reference_of_kubernetes():
    hint = lint_manifest(["torchrun", "a.py"], MANIFEST_VARIABLES)["secret-in-text"].hint
    assert hint.startswith(
        "put it into a secret, set `valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}` in place of `value`"
    )


@pytest.mark.parametrize(
    ("command", "is_reported"),
    [
        (["torchrun", "a.py"], True),
        (["bash", "-c", "python -m torch.distributed.run a.py"], True),
        (["accelerate", "launch", "a.py"], True),
        (["bash", "run.sh"], True),
        (["sleep", "1"], False),
        (["python", "a.py"], False),
    ],
)
def test_missing_loglevel_is_reported_only_for_a_program_that_may_start_an_agent(command, is_reported):
    problem = lint_manifest(command).get("loglevel-hides-agent")
    assert (problem is not None) == is_reported
    if problem:
        assert problem.title == "`LOGLEVEL` is not set, and torchrun's default `WARNING` hides the ranks of the agents"
        assert problem.hint == "set `LOGLEVEL` to INFO"


def test_set_loglevel_is_reported_for_any_program():
    problem = lint_manifest(["sleep", "1"], [{"name": "LOGLEVEL", "value": "ERROR"}])["loglevel-hides-agent"]
    assert problem.title == "`LOGLEVEL` `ERROR` hides the ranks of the agents"


def test_hint_names_the_variable_of_the_shared_store():
    (problem,) = lint_job({"env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}, "restarts": {"max": 3}})
    assert problem.hint == "set `TORCH_DISABLE_SHARE_RDZV_TCP_STORE` to 1"


def test_messages_do_not_show_the_secret():
    for problem in lint_job({"env": {"HF_TOKEN": cases.FAKE_TOKEN}}):
        assert cases.FAKE_TOKEN not in "\n".join(problem.lines())


def test_every_rule_has_a_reason():
    for rule in RULES:
        assert rule.title
        assert len(rule.reason) > 20, rule.id


def test_each_flag_of_an_elastic_job_is_reported_once():
    problems = lint_job({**cases.ELASTIC, "command": "torchrun --nnodes=2 --rdzv-id=7 train.py"})
    assert [(p.rule, p.title.split("`")[1]) for p in problems] == [
        ("elastic-cancelled", "--nnodes=2"),
        ("torchrun-flags", "--rdzv-id=7"),
    ]


def test_hint_names_a_suitable_number_of_lanes():
    (problem,) = lint_job({**cases.train(lanes=6), "nodes": 4})
    assert problem.hint == "use `lanes: 12`"


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python -O train.py",
        "bash -c 'python train.py'",
        "deepspeed --num_gpus 8 train.py",
        "uv run train.py",
        "accelerate launch --num_machines 1 train.py",
        "/usr/bin/accelerate launch --num_machines 1 train.py",
        "python -m accelerate.commands.launch --num_machines 1 train.py",
        "fabric run --num_nodes=1 train.py",
        "torchrun --standalone train.py",
        "python -m torch.distributed.run --nnodes 1 train.py",
    ],
)
def test_command_with_the_change_that_a_hint_names_is_accepted(command):
    (problem,) = [problem for problem in lint_job({"command": shlex.split(command)}) if problem.rule == "unconnected-nodes"]
    if match := re.search(r"set `launcher: (\w+)`(?: with `command: (\S+)`)?", problem.hint):
        changes = {"launcher": match[1], "command": match[2] or command, "processes_per_node": 2}
    elif match := re.search(r"remove `(.+?)`", problem.hint):
        changes = {"command": command.replace(match[1], "")}
    else:
        assert "write `torchrun train.py`" in problem.hint
        changes = {"command": "torchrun train.py"}
    assert "unconnected-nodes" not in {problem.rule for problem in lint_job(changes)}


@pytest.mark.parametrize("command", ["torchrun train.py", "bash run.sh", "./run.sh"])
def test_a_volume_over_a_usual_working_directory_is_a_warning(command):
    volumes = [cases.DATA, {"name": "work", "empty_dir": True, "mount_path": "/workspace"}]
    (problem,) = [p for p in lint_job({"volumes": volumes, "command": command}) if p.rule == "volume-hides-program"]
    assert (problem.severity, problem.path) == ("warning", "volumes.1.mount_path")
    assert "volume `work` hides `/workspace` of the image" in problem.title
    assert "set `pod: {working_dir: /workspace}`" in (problem.hint or "")
