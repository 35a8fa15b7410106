"""`explain`, `diff`, `schema` and `instances`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.api.specs.schema import build_schema
from kfjob.spec.instances import load_catalogue
from tests.unit.cli.json_schema import accepts

ROOT = Path(__file__).resolve().parents[3]
SPEC = """\
name: train
image: a:1
nodes: 2
instance: p4d.24xlarge
env: {NCCL_DEBUG: INFO}
command: torchrun train.py
"""


@pytest.fixture
def spec(here):
    (here / "job.yaml").write_text(SPEC)
    return "job.yaml"


def explain(kfjob, *argv: str) -> dict[str, dict[str, Any]]:
    assert kfjob("explain", *argv, "-o", "json") == 0
    return {value["path"]: value for value in json.loads(kfjob.out)}


def test_explain_shows_the_origin_of_every_value(kfjob, spec):
    values = explain(kfjob, spec, "--set", "env.NCCL_DEBUG=WARN", "-n", "team")
    assert values["nodes"] == {"path": "nodes", "value": "2", "origin": "spec", "reason": "", "location": "job.yaml:3:8"}
    assert values["env.NCCL_DEBUG"]["location"] == "--set env.NCCL_DEBUG=WARN"
    assert (values["resources.gpus"]["value"], values["resources.gpus"]["origin"]) == ("8", "instance")
    assert (values["namespace"]["value"], values["namespace"]["origin"]) == ("team", "cluster")
    assert values["env.LOGLEVEL"]["origin"] == "default"
    assert "torch hides" in values["env.LOGLEVEL"]["reason"]
    assert values["restarts.policy"]["origin"] == "default"
    assert values["command"]["value"] == "torchrun train.py"


def test_explain_shows_every_decision_of_the_plan(kfjob, spec):
    from kfjob.plan import Context, resolve
    from kfjob.source.spec_text import load_spec

    values = explain(kfjob, spec)
    context = Context(backend="kubernetes", launch="l", namespace_reason=values["namespace"]["reason"])
    decisions = resolve(load_spec(SPEC).spec, context).decisions
    assert {decision.path for decision in decisions} <= set(values)
    assert all(decision.reason == values[decision.path]["reason"] for decision in decisions)


def test_explain_of_a_local_job_leaves_out_what_only_pods_have(kfjob, here):
    fields = "image: a:1\nresources: {memory: 4Gi}\nshared_memory: 1Gi\npod: {working_dir: /, grace: 9}\n"
    (here / "job.yaml").write_text(f"name: mine\ncommand: torchrun train.py\n{fields}")
    local, cluster = (explain(kfjob, "job.yaml", "--backend", backend) for backend in ("local", "kubernetes"))
    assert {"pod.host_network", "run.clean_pods", "make_pull_secret", "resources.efa"} <= cluster.keys() - local.keys()
    ignored = {path for path, value in local.items() if value["reason"] == "a job on this machine ignores it"}
    assert ignored == {"image", "resources.memory", "shared_memory"}
    assert {"pod.working_dir", "pod.grace", "resources.gpus", "restarts.max", "command"} <= local.keys() - ignored


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--backend kubernetes", ("default", "no kubeconfig has a current context, which would name another")),
        ("--backend local", ("default", "a job on this machine is in `default` unless `--namespace` names another")),
        ("--backend kubernetes -n team", ("cluster", "from `--namespace`, `KFJOB_NAMESPACE` or a configuration file")),
    ],
)
def test_explain_knows_where_the_namespace_comes_from(kfjob, here, monkeypatch, options, expected):
    monkeypatch.setenv("KUBECONFIG", str(here / "missing"))
    (here / "job.yaml").write_text("name: a\nimage: b\ncommand: c\n")
    namespace = explain(kfjob, "job.yaml", *options.split())["namespace"]
    assert (namespace["origin"], namespace["reason"]) == expected


def test_explain_names_the_context_of_the_namespace(kfjob, here, monkeypatch):
    (here / "job.yaml").write_text("name: a\nimage: b\ncommand: c\n")
    (here / "config").write_text(
        "current-context: here\ncontexts: [{name: here, context: {cluster: c, user: u, namespace: ml}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(here / "config"))
    namespace = explain(kfjob, "job.yaml", "--backend", "kubernetes")["namespace"]
    assert (namespace["value"], namespace["reason"]) == ("ml", "the namespace of context `here`")


def test_explain_hides_secrets(kfjob, spec, here):
    token = "hf_" + "x" * 34
    (here / "job.yaml").write_text(SPEC.replace("env: {", f"env: {{HF_TOKEN: {token}, DB_PASSWORD: tomato-soup, "))
    for form in ("json", "table"):
        assert kfjob("explain", spec, "-o", form) == 0
        assert token not in kfjob.out
        assert "tomato-soup" not in kfjob.out
        assert "[redacted]" in kfjob.out


def test_operator_env_depends_on_the_node_rank(kfjob, here):
    (here / "job.yaml").write_text(SPEC.replace("torchrun ", "") + "launcher: accelerate\n")
    assert kfjob("explain", "job.yaml", "--operator-env", "--node-rank", "1", "-o", "json") == 0
    env = json.loads(kfjob.out)
    assert (env["RANK"], env["MASTER_ADDR"], env["WORLD_SIZE"]) == ("1", "train-master-0", "16")
    assert kfjob("explain", "job.yaml", "--operator-env") == 0
    assert kfjob.out.startswith("NAME")
    assert "VALUE IN train-master-0" in kfjob.out
    assert kfjob("explain", "job.yaml", "--operator-env", "--node-rank", "2") == 3
    assert "the ranks are 0 to 1" in kfjob.err


def test_diff_labels_every_change(cluster, kfjob, spec):
    assert kfjob("submit", spec) == 0
    assert kfjob("diff", spec) == 0
    assert kfjob.out == ""
    assert "no changes: `train` matches the spec" in kfjob.err

    assert kfjob("diff", spec, "--set", "nodes=3", "--set", "image=a:2", "-o", "json") == 0
    changes = {change["path"].rpartition(".")[2]: change for change in json.loads(kfjob.out)["changes"]}
    assert changes["replicas"]["in_place"]
    assert (changes["replicas"]["live"], changes["replicas"]["desired"]) == (2, 3)
    assert not changes["image"]["in_place"]

    assert kfjob("diff", spec, "--set", "run.ttl=60") == 0
    assert kfjob.out == "spec.runPolicy.ttlSecondsAfterFinished  (in place)\n  - (not set)\n  + 60\n"
    assert "kfjob apply" in kfjob.err
    assert kfjob("diff", spec, "--set", "restarts.policy=Always") == 0
    assert "(needs a new launch)\n  - Never\n  + Always\n" in kfjob.out
    assert all(dry for method, *_, dry in cluster.requests if method == "PUT")


def test_diff_hides_the_live_and_the_new_secret(cluster, kfjob, spec, here):
    (here / "job.yaml").write_text(
        SPEC.replace("env: {", "env: {DB_PASSWORD: tomato-soup, ").replace("train.py", "train.py --token onion")
    )
    assert kfjob("submit", spec) == 0
    changes = [
        "--set",
        "env.DB_PASSWORD=leek-soup",
        "--set",
        "env.API_KEY=leek",
        "--set",
        "command=torchrun train.py --token leek",
    ]
    for options in (changes, [*changes, "-o", "json"]):
        assert kfjob("diff", spec, *options) == 0
        assert kfjob.out.count("[redacted]") >= 5
        assert not any(secret in kfjob.out for secret in ("tomato", "onion", "leek"))


def test_diff_fails_without_a_job_and_when_the_server_refuses(cluster, kfjob, spec):
    assert kfjob("diff", spec) == 3
    assert "there is no job `train`" in kfjob.err
    assert kfjob("submit", spec) == 0
    cluster.refusal = "Worker is forbidden"
    assert kfjob("diff", spec) == 1
    assert "Worker is forbidden" in kfjob.err
    assert kfjob("diff", spec, "--backend", "local") == 2


@pytest.mark.parametrize("file", sorted([*(ROOT / "tests/golden/specs").glob("*.yaml"), *(ROOT / "examples").glob("*.yaml")]))
def test_schema_accepts_every_valid_spec(file):
    json_schema = build_schema()
    data = yaml.safe_load(file.read_text())
    assert accepts(data, json_schema, json_schema)
    assert not accepts({**data, "nproc": 1}, json_schema, json_schema)
    assert not accepts({**data, "nodes": "many"}, json_schema, json_schema)


def test_schema_accepts_short_forms():
    json_schema = build_schema()
    base = {"name": "a", "command": "torchrun t.py"}
    for more in (
        {"rendezvous": "etcd"},
        {"hub_token": "hf/token"},
        {"resources": {"cpu": 4}},
        {"run": {"deadline": "1d12h"}},
        {"command": ["a"]},
        {"env": {"A": 1, "B": {"secret": "s", "key": "k"}}},
    ):
        assert accepts(base | more, json_schema, json_schema), more
    assert not accepts(base | {"rendezvous": "zookeeper"}, json_schema, json_schema)


def test_schema_prints_json(kfjob):
    assert kfjob("schema") == 0
    assert json.loads(kfjob.out)["$schema"].startswith("https://json-schema.org/")


def test_instances_lists_the_catalogue(kfjob):
    assert kfjob("instances", "p4d.", "-o", "json") == 0
    assert [(row["name"], row["gpus"], row["efa"]) for row in json.loads(kfjob.out)] == [("p4d.24xlarge", 8, 4)]
    assert kfjob("instances", "m5.2x") == 0
    assert kfjob.out.splitlines()[1].split() == ["m5.2xlarge", "none", "-", "0", "8", "32", "yes"]
    assert kfjob("instances") == 0
    assert len(kfjob.out.splitlines()) == len(load_catalogue()) + 1


def validate(kfjob, *argv: str) -> tuple[int, dict[str, Any]]:
    code = kfjob("validate", *argv, "--output", "json")
    assert kfjob.err == ""
    return code, json.loads(kfjob.out)


def test_validate_prints_every_problem_as_data(kfjob, here):
    (here / "bad.yaml").write_text("name: t\nnodes: two\ncommand: a | b\nenv: {X: true}\n")
    code, result = validate(kfjob, "bad.yaml", "--backend", "local")
    assert (code, result["file"], result["valid"]) == (2, "bad.yaml", False)
    assert [(problem["field"], problem["line"], problem["column"]) for problem in result["problems"]] == [
        ("nodes", 2, 8),
        ("command", 3, 10),
        ("env.X", 4, 10),
    ]
    assert result["problems"][0] == {
        "severity": "error",
        "message": "`nodes` must be a whole number, not `two`",
        "field": "nodes",
        "file": "bad.yaml",
        "line": 2,
        "column": 8,
        "detail": None,
        "hint": None,
        "rule": None,
    }


def test_validate_prints_warnings_of_a_valid_spec_as_data(kfjob, here):
    (here / "train.py").touch()
    (here / "job.yaml").write_text("name: t\nprocesses_per_node: 2\ncommand: python train.py\n")
    code, result = validate(kfjob, "job.yaml", "--backend", "local")
    assert (code, result["valid"]) == (0, True)
    assert [(problem["severity"], problem["rule"]) for problem in result["problems"]] == [("warning", "unused-processes")]
    code, result = validate(kfjob, "job.yaml", "--backend", "local", "--strict")
    assert (code, result["valid"], result["problems"][0]["severity"]) == (2, False, "error")


@pytest.mark.parametrize(("text", "code"), [("name: [", 2), ("", 2), (None, 3)])
def test_validate_prints_json_for_every_failure(kfjob, here, text, code):
    if text is not None:
        (here / "job.yaml").write_text(text)
    result_code, result = validate(kfjob, "job.yaml", "--backend", "local")
    assert (result_code, result["valid"], len(result["problems"])) == (code, False, 1)
    assert result["problems"][0]["message"]


def test_diff_on_this_machine_says_how_to_start_the_job_with_the_changes(kfjob, here):
    (here / "job.yaml").write_text("name: mine\ncommand: 'true'\n")
    assert kfjob("diff", "job.yaml", "--backend", "local") == 2
    assert kfjob.err == (
        "error: a job on this machine cannot be compared with a spec\n"
        "hint: `kfjob stop --backend local mine`, then `kfjob submit`, starts it with the changed spec; "
        "`--backend kubernetes` compares with the job of a cluster\n"
    )


CHECKED = "checked for Kubernetes: the current context is `test`\n"
COMPLETE = "resources: {gpus: 1}\nvolumes: [{name: w, mount_path: /work, pvc: w}]\n"
"""Fields without which a job on a cluster gets notes."""


@pytest.mark.parametrize("command", ["torchrun train.py --lr 3", "python -u train.py"])
def test_validate_looks_for_the_script_of_command(kfjob, here, command):
    (here / "job.yaml").write_text(f"name: mine\ncommand: {command}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local") == 2
    assert "\nerror: script `train.py` does not exist\n  --> job.yaml:2:10 (command)\n" in kfjob.err
    (here / "job.yaml").write_text(f"name: mine\nimage: a:1\ncommand: {command}\n{COMPLETE}")
    assert kfjob("validate", "job.yaml") == 0
    assert kfjob.err.startswith(
        "note: script `train.py` is not in this folder, so the image must have it in its working directory\n"
        "  --> job.yaml:3:10 (command)\n"
    )
    assert kfjob("validate", "job.yaml", "-o", "json") == 0
    (problem,) = json.loads(kfjob.out)["problems"]
    assert (problem["severity"], problem["field"]) == ("note", "command")
    (here / "train.py").touch()
    assert kfjob("validate", "job.yaml") == 0
    assert kfjob.err.startswith(
        "note: `train.py` is in this folder, and the image must have it\n  --> job.yaml:3:10 (command)\n"
    )
    assert kfjob("validate", "job.yaml", "--backend", "local", "--set", "resources.gpus=0") == 0


def test_validate_reports_fields_first_and_then_a_missing_script_with_other_problems(kfjob, here):
    (here / "job.yaml").write_text("name: mine\nnodes: zero\ncommand: torchrun train.py\nwatchdog: {max_cost: 3}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local", "-o", "json") == 2
    problems = json.loads(kfjob.out)["problems"]
    assert [(problem["field"], problem["line"]) for problem in problems] == [
        ("nodes", 2),
        ("watchdog.max_cost", 4),
    ]
    (here / "job.yaml").write_text("name: mine\ncommand: torchrun train.py\nenv: {LOGLEVEL: info}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local", "-o", "json") == 2
    titles = [problem["message"] for problem in json.loads(kfjob.out)["problems"] if problem["severity"] == "error"]
    assert len(titles) == 2
    assert "script `train.py` does not exist" in titles


def test_validate_reports_fields_first_and_then_missing_data(kfjob, here):
    train = "{model: tiny-llama, data: /nowhere/text, max_steps: 1}"
    (here / "job.yaml").write_text(f"name: mine\nnodes: zero\ntrain: {train}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local", "-o", "json") == 2
    assert [problem["field"] for problem in json.loads(kfjob.out)["problems"]] == ["nodes"]
    (here / "job.yaml").write_text(f"name: mine\ntrain: {train}\n")
    assert kfjob("validate", "job.yaml", "--backend", "local", "-o", "json") == 2
    assert "train.data" in [problem["field"] for problem in json.loads(kfjob.out)["problems"]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "the current context is `test`"),
        (("--backend", "local"), "`backend` is set to `local`"),
        (("--backend", "kubernetes"), "`backend` is set to `kubernetes`"),
        (("--context", "test"), "`context` is set to `test`"),
    ],
)
@pytest.mark.parametrize("field", ["labels: {}", "lables: {}"])
def test_validate_names_the_backend_that_it_checked_for(kfjob, here, options, reason, field):
    (here / "job.yaml").write_text(f"name: mine\nimage: a:1\n{COMPLETE}command: torchrun /opt/train.py\n{field}\n")
    code = kfjob("validate", "job.yaml", *options)
    place = "this machine" if "local" in options else "Kubernetes"
    assert kfjob.err.startswith(f"checked for {place}: {reason}\n")
    assert kfjob("validate", "job.yaml", *options, "-o", "json") == code
    described = json.loads(kfjob.out)
    assert (described["backend"], described["backend_reason"]) == ("local" if "local" in options else "kubernetes", reason)


def test_validate_without_a_kubeconfig_names_the_reason(kfjob, here, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(here / "none"))
    (here / "job.yaml").write_text("name: mine\nimage: a:1\ncommand: torchrun /opt/train.py\n")
    assert kfjob("validate", "job.yaml") == 0
    assert kfjob.err.startswith("checked for this machine: no kubeconfig names a cluster\n")


@pytest.mark.parametrize("fields", ["command: torchrun /opt/train.py", "command: python train.py\npod: {working_dir: /opt}"])
def test_validate_does_not_look_for_a_script_in_a_folder_of_the_image(kfjob, here, fields):
    (here / "job.yaml").write_text(f"name: mine\nimage: a:1\n{COMPLETE}{fields}\n")
    assert kfjob("validate", "job.yaml") == 0
    assert kfjob.err.startswith(f"{CHECKED}`job.yaml` is valid: ")


def test_explain_leaves_to_the_run_what_depends_on_an_unknown_gpu(kfjob, here):
    train = "{model: llama-3.2-1b, data: /d, max_steps: 5, gradient_accumulation_steps: 4}"
    (here / "job.yaml").write_text(f"name: a\nimage: r/a:1\nresources: {{gpus: 8}}\ntrain: {train}\n")
    values = explain(kfjob, "job.yaml", "--backend", "kubernetes")
    assert (values["train.compile"]["value"], values["train.micro_batch_size"]["value"]) == ("true", "auto")
    assert values["train.activation_checkpointing"]["reason"].startswith("because the memory of the GPU is unknown")


def test_submit_warns_if_no_guard_acts(cluster, kfjob, spec):
    warning = "warning: no guard acts in namespace `default`, so nobody relaunches the job; `kfjob guard install` adds one"
    assert kfjob("submit", spec, "--set", "recovery={}") == 0
    assert warning in kfjob.err
    lease = {"metadata": {"name": "kfjob-guard"}, "spec": {"holderIdentity": "guard-1", "renewTime": "2999-01-01T00:00:00.0Z"}}
    cluster.objects["default", "leases", "kfjob-guard"] = lease
    assert kfjob("submit", spec, "--set", "recovery={}", "--set", "name=second") == 0
    assert warning not in kfjob.err
