"""The section `master`: what the Master's pod has instead of the Workers."""

from __future__ import annotations

import pytest

from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context, resolve
from kfjob.plan.agent import AgentPlace, make_local_agent
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec
from tests.pytorchjobs import lint

KUBERNETES = Context(backend="kubernetes", launch="l1")
LOCAL = Context(backend="local", launch="l1")
BASE = "name: a\nimage: b:1\nnodes: 2\nrendezvous: static\ncommand: torchrun train.py\nprocesses_per_node: 1\n"


def load(text: str) -> JobSpec:
    return load_spec(BASE + text, file="a.yaml").spec


def compile_roles(text: str):
    replicas = compile_pytorchjob(resolve(load(text), KUBERNETES))["spec"]["pytorchReplicaSpecs"]
    return replicas["Master"]["template"]["spec"], replicas["Worker"]["template"]["spec"]


def test_a_section_replaces_the_jobs_section():
    text = "env: {A: '1', B: '2'}\nresources: {memory: 8Gi, gpus: 1}\nmaster: {env: {A: '3'}, resources: {memory: 2Gi}}\n"
    master, worker = ({**pod["containers"][0]} for pod in compile_roles(text))
    assert [v for v in master["env"] if v["name"] in "AB"] == [{"name": "A", "value": "3"}]
    assert master["resources"]["limits"] == {"memory": "2Gi"}
    assert worker["resources"]["limits"] == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    assert master["command"] == worker["command"]


def test_an_empty_section_means_nothing():
    text = "volumes: [{name: d, mount_path: /d, pvc: d}]\npod: {host_network: true}\nscheduling: {node_selector: {a: b}}\n"
    master, worker = compile_roles(text + "master: {volumes: [], pod: {}, scheduling: {}}\n")
    assert {"hostNetwork", "nodeSelector"} <= worker.keys()
    assert not {"hostNetwork", "nodeSelector"} & master.keys()
    assert "d" not in [volume["name"] for volume in master["volumes"]]


def test_queue_belongs_to_the_job():
    job = compile_pytorchjob(
        resolve(load("scheduling: {queue: q}\nmaster: {scheduling: {node_selector: {a: b}}}\n"), KUBERNETES)
    )
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"


def test_recorded_spec_keeps_empty_sections():
    spec = load("master: {volumes: [], pod: {}, env: {}}\n")
    plan = resolve(spec, KUBERNETES)
    assert JobSpec.model_validate_json(plan.spec_json) == spec
    assert plan.spec_hash != resolve(load("master: true\n"), KUBERNETES).spec_hash


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (
            "master: {volumes: [{name: a, mount_path: /a, pvc: p}, {name: b, mount_path: /a, pvc: q}]}\n",
            "master.volumes.1.mount_path",
            7,
        ),
        ("master:\n  env: {'a b': c}\n", "master.env.a b", 8),
        ("master: {scheduling: {queue: q}}\n", "master.scheduling.queue", 7),
        ("master: {resources: {memory: 1Gi, requests: {memory: 2Gi}}}\n", "master.resources.requests", 7),
        ("master: {pod: {ports: [{port: 1}, {port: 1}]}}\n", "master.pod.ports.1", 7),
        ("master: {scheduling: {affinity: {podAfinity: {}}}}\n", "master.scheduling.affinity.podAfinity", 7),
        ("master: {imge: c}\n", "master.imge", 7),
        ("master: {instance: p4d.24xlrge}\n", "master.instance", 7),
        ("launcher: python\nmaster: {args: [a]}\n", "master.args", 8),
        ("master: perhaps\n", "master", 7),
    ],
)
def test_problem_of_the_master_names_its_field(text, path, line):
    with pytest.raises(SpecError) as caught:
        load(text)
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [(path, line)]


def test_problem_of_both_roles_is_one_problem():
    spec = load("master: {env: {A: b}}\nvolumes: [{name: c, mount_path: /c, config_map: c}]\n")
    with pytest.raises(SpecError) as caught:
        resolve(spec, LOCAL)
    assert [problem.path for problem in caught.value.problems] == ["volumes.0"]


def test_local_agent_zero_is_the_master():
    plan = resolve(load("env: {A: w}\nmaster: {env: {A: m}, command: python lead.py}\n"), LOCAL)
    placement = AgentPlace(addresses=("127.0.0.2", "127.0.0.3"), endpoint="127.0.0.2:1", interface="lo", folders={})
    agents = [make_local_agent(plan.get_role(index), index, placement) for index in range(2)]
    assert [agent.name for agent in agents] == ["a-master-0", "a-worker-0"]
    assert [agent.argv for agent in agents] == [("python", "lead.py"), ("torchrun", "train.py")]
    assert [agent.env["A"] for agent in agents] == ["m", "w"]
    assert [agent.env["RANK"] for agent in agents] == ["0", "1"]


def test_decisions_name_what_differs_for_the_master():
    plan = resolve(load("resources: {memory: 8Gi}\nmaster: {resources: {memory: 2Gi}}\n"), KUBERNETES)
    values = {decision.path: decision.value for decision in plan.decisions}
    assert (values["shared_memory"], values["master.shared_memory"]) == ("4Gi", "1Gi")
    assert "master.env.LOGLEVEL" not in values
    assert plan.master
    assert plan.master.processes_per_node == plan.processes_per_node


def list_problems(text: str) -> list[tuple[str | None, str | None]]:
    spec = load(text)
    return [(problem.rule, problem.path) for problem in lint(spec, resolve(spec, KUBERNETES))]


def test_lint_looks_at_the_master():
    text = "lint: {ignore: []}\nmaster: {image: 'c:latest', command: torchrun python train.py}\n"
    assert list_problems(text) == [("launcher-program", "master.command"), ("latest-image", "master.image")]


def test_lint_reports_both_roles_once():
    problems = list_problems("env: {LOGLEVEL: info}\nmaster: {image: c:1}\n")
    assert [problem for problem in problems if problem[0] == "loglevel-unknown"] == [("loglevel-unknown", "env.LOGLEVEL")]
