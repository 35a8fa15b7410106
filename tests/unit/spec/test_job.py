"""Validation of a job spec, and its messages."""

from __future__ import annotations

import gzip
import json
from importlib import resources
from typing import Any

import pytest

from kfjob.api.planning import resolve_spec
from kfjob.base.errors import Problem, SpecError
from kfjob.base.units import parse_quantity
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context
from kfjob.source.spec_text import load_spec
from kfjob.spec.instances import load_catalogue
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Positions

GOOD = "name: train\nimage: a:1\ncommand: torchrun train.py\n"


def find_problem(text: str, name: str = "train") -> Problem:
    with pytest.raises(SpecError) as caught:
        load_spec(GOOD.replace("train\n", f"{name}\n", 1) + text)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("instance: p4d.24xlrge\n", "instance", "is not in the catalogue"),
        ("elastic: {min: 1, max: 2}\nlauncher: accelerate\n", "elastic", "cannot run an elastic job"),
        ("elastic: {min: 1, max: 2}\nrendezvous: static\n", "rendezvous", "cannot have a static rendezvous"),
        ("launcher: deepspeed\nrendezvous: etcd\n", "rendezvous", "cannot use an etcd rendezvous"),
        ("rendezvous: static\nmaster: false\n", "master", "without a Master the operator gives no pod a master address"),
        ("master: true\n", "master", "requires a Worker beside a Master"),
        ("nodes: 2\nmaster: true\nelastic: {min: 1, max: 2, metrics: [{type: Resource}]}\n", "master", "counts Workers only"),
        ("rendezvous: {backend: etcd, user: a/b, password: a/c}\n", "rendezvous.user", "needs a shared etcd"),
        ("rendezvous: {backend: etcd, endpoint: 'e:1', user: a/b}\n", "rendezvous.password", "need each other"),
        ("rendezvous: {backend: etcd, port: 1}\n", "rendezvous.port", "has no `port`"),
        ("rendezvous: {conf: {a: 'b,c'}}\n", "rendezvous.conf.a", "torch cannot parse"),
        ("hub_token: hf_abc\n", "hub_token", "never the key itself"),
        ("hub_token: a/b\nenv: {HF_TOKEN: x}\n", "hub_token", "and so does `env`"),
        ("env: {A: {secret: a}}\n", "env.A", "need a `key`"),
        ("env: {A: {secret: a, config_map: b, key: c}}\n", "env.A", "exactly one of"),
        ("labels: {'a b': c}\n", "labels.a b", "is not a valid key"),
        ("project: a b\n", "project", "is not a valid label value"),
        ("labels: {a: 'x{y}'}\n", "labels.a", "`x{y}` is not"),
        ("labels: {a: '{hint}{path}'}\n", "labels.a", "`{hint}{path}` is not"),
        ("run: {deadline: 5x}\n", "run.deadline", "is not a duration"),
        ("scheduling: {queue_priority: high}\n", "scheduling.queue_priority", "needs `queue`"),
        ("scheduling: {affinity: {nodeAffinty: {}}}\n", "scheduling.affinity.nodeAffinty", "did you mean `nodeAffinity`"),
        ("scheduling: {spread: [{maxSkew: 1, topologyKey: a}]}\n", "scheduling.spread.0", "lacks `whenUnsatisfiable`"),
        ("pod: {sidecars: [{image: a}]}\n", "pod.sidecars.0", "lacks `name`"),
        ("pod: {sidecars: [{name: pytorch}]}\n", "pod", "two containers have the name `pytorch`"),
        ("pod: {ports: [{port: 80}, {port: 80}]}\n", "pod.ports.1", "duplicate port `80`"),
        ("pod: {ports: [{port: 80}, {port: 80, protocol: TCP}]}\n", "pod.ports.1", "duplicate port `80`"),
        ("pod: {lifecycle: {preStp: {}}}\n", "pod.lifecycle.preStp", "did you mean `preStop`"),
        ("env_from: [{prefix: A_}]\n", "env_from.0", "either `secret` or `config_map`"),
        ("resources: {memory: 8Gi, requests: {memory: 9Gi}}\n", "resources.requests", "its limit is 8Gi"),
        ("resources: {gpus: 8, limits: {nvidia.com/gpu: 1}}\n", "resources.limits", "requests 8 of `nvidia.com/gpu`"),
        ("volumes: [{name: a, mount_path: /a, pvc: p, items: [{key: k, path: p}]}]\n", "volumes.0", "needs `config_map` or"),
        ("volumes: [{name: a, mount_path: /a, pvc: p, host_path_type: File}]\n", "volumes.0", "needs `host_path`"),
        (
            "volumes: [{name: a, mount_path: /a, pvc: p}, {name: a, mount_path: /b, pvc: q}]\n",
            "volumes.1.name",
            "different sources",
        ),
        ("volumes: [{name: a, mount_path: /a, secret: s, default_mode: 1000}]\n", "volumes.0.default_mode", "at most 511"),
        ("shared_memory: infinite\n", "shared_memory", "is not a Kubernetes quantity"),
        ("volumes: [{name: a, mount_path: /a, efs: e, pvc: p}]\n", "volumes.0", "exactly one of"),
        ("volumes: [{name: kfjob-shared-memory, mount_path: /a, pvc: p}]\n", "volumes.0.name", "kfjob itself adds"),
        ("progress: 'step (?P<step>\\d+'\n", "progress", "is not a regular expression"),
        ("progress: 'lr (?P<lr>.+)'\n", "progress", "has neither a group `step` nor a group `loss`"),
        ("progress: '(?P<step>\\d*)'\n", "progress", "matches every line"),
        ("args: --lr 1\nlauncher: torchrun\n", "args", "`args` has no effect"),
        ("args: --lr 1 | tee log\n", "args", "needs a shell for `|`"),
        ('args: "--name \'a"\n', "args", "cannot split the arguments"),
    ],
)
def test_problem_names_its_field(text, path, words):
    problem = find_problem(text)
    assert problem.path == path
    assert words in problem.title


def find_plan_problems(text: str) -> tuple[Problem, ...]:
    loaded = load_spec(GOOD + text)
    with pytest.raises(SpecError) as caught:
        resolve_spec(loaded.spec, loaded.positions, Context(backend="kubernetes", launch="l1"))
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("overrides: {status: {}}\n", "overrides.status", "is not known"),
        ("overrides: {metadata: {name: b}}\n", "overrides.metadata.name", "is not known"),
        ("overrides: {metadata: {labels: {a: 1}}}\n", "overrides.metadata.labels.a", "must be text"),
        ("overrides: {spec: {runPolicy: {suspend: 1}}}\n", "overrides.spec.runPolicy.suspend", "must be true or false"),
    ],
)
def test_problem_of_an_override_names_its_field(text, path, words):
    (problem,) = find_plan_problems(text)
    assert problem.path == path
    assert words in problem.title
    assert problem.line == 4


def test_problems_of_overrides_are_reported_with_those_of_the_plan():
    text = "overrides: {status: {}, spec: {runPolicy: {suspend: 1}, pytorchReplicaSpecs: null}}\n"
    paths = [problem.path for problem in find_plan_problems(text + "launcher: deepspeed\nprocesses_per_node: auto\n")]
    assert paths[:2] == ["overrides.status", "overrides.spec.runPolicy.suspend"]
    assert paths[2:]


def test_a_fraction_in_overrides_becomes_text_in_the_manifest():
    spec = load_spec(GOOD + "overrides: {spec: {runPolicy: {schedulingPolicy: {minResources: {cpu: 0.5}}}}}\n").spec
    plan = resolve_spec(spec, Positions(), Context(backend="kubernetes", launch="l1"))
    assert compile_pytorchjob(plan)["spec"]["runPolicy"]["schedulingPolicy"] == {"minResources": {"cpu": "0.5"}}


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("nodes: 16\n", 63 - len("-worker-15")),
        ("elastic: {min: 1, max: 1000}\n", 63 - len("-worker-999")),
        ("rendezvous: etcd\n", 54),
    ],
)
def test_longest_derived_name_is_checked(text, longest):
    assert load_spec(GOOD.replace("train\n", "a" * longest + "\n", 1) + text)
    problem = find_problem(text, "a" * (longest + 1))
    assert problem.hint
    assert problem.hint.startswith(f"use at most {longest} characters")


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("args: --lr 1\n", "", "neither `command` nor `train`"),
        ("image: a:1\nlauncher: torchrun\n", "launcher", "needs `command` or `train`"),
        (
            "image: a:1\nargs: --lr 1\ntrain: {model: micro-llama, data: /d, max_steps: 1, sequence_length: 8}\n",
            "args",
            "remove `args`",
        ),
    ],
)
def test_program_is_required_without_an_image(text, path, words):
    with pytest.raises(SpecError) as caught:
        load_spec("name: a\n" + text)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert words in f"{problem.title} {problem.hint}"


@pytest.mark.parametrize("args", ["epochs=3 --path '/a b'", ["epochs=3", "--path", "/a b"]])
def test_arguments_of_the_entry_point_are_words(args):
    spec = JobSpec.model_validate({"name": "a", "image": "b:1", "args": args})
    assert (spec.command, spec.words) == (None, ("epochs=3", "--path", "/a b"))


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90m", 5400), ("1d12h", 129600)])
def test_duration_becomes_seconds(text, seconds):
    assert load_spec(GOOD + f"run: {{ttl: {text}}}\n").spec.run.ttl == seconds


@pytest.mark.parametrize(("text", "number"), [("2", 2), ("500m", 0.5), ("1.5Gi", 1.5 * 2**30), ("3k", 3000)])
def test_quantity_becomes_a_number(text, number):
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["1e9", "1E9", "1e+9", "1.5e9", "1e-3", ".5Gi", "5.", "+1", "1Ei", "100n"])
def test_spec_takes_every_form_of_a_quantity(text):
    assert load_spec(GOOD + f"resources: {{cpu: '{text}'}}\n").spec.resources.cpu == text


@pytest.mark.parametrize("text", ["-1", "1e99", "9" * 400, "1_0", "1e1.5"])
def test_spec_refuses_what_is_no_amount(text):
    with pytest.raises(SpecError, match="is not a Kubernetes quantity"):
        load_spec(GOOD + f"resources: {{cpu: '{text}'}}\n")


def read_numbers(row: dict[str, Any]) -> dict[str, int]:
    """Return the catalogue's numbers from an entry of EC2's DescribeInstanceTypes; memory in GiB."""
    gpus = [gpu for gpu in row.get("GpuInfo", {}).get("Gpus", []) if gpu["Manufacturer"] == "NVIDIA"]
    neuron = row.get("NeuronInfo", {}).get("NeuronDevices", [])
    devices = gpus or neuron or [{}]
    return {
        "gpus": sum(gpu["Count"] for gpu in gpus),
        "gpu_memory": round(devices[0].get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024),
        "neuron": sum(device["Count"] for device in neuron),
        "efa": row.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "vcpus": row["VCpuInfo"]["DefaultVCpus"],
        "memory": round(row["MemoryInfo"]["SizeInMiB"] / 1024),
    }


def test_numbers_with_source_ec2_are_those_of_ec2():
    """moto brings the answer of EC2's DescribeInstanceTypes. It has no Neuron memory for Trainium2 that Neuron's pages have."""
    recorded = json.loads(
        gzip.decompress(resources.files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes())
    )
    rows = {name: row for name, row in load_catalogue().items() if row.source == "EC2"}
    assert len(rows) > 50
    for name, row in rows.items():
        numbers = read_numbers(recorded[name])
        ours = {field: getattr(row, field) for field in numbers}
        if row.accelerator == "Trainium2":
            numbers["gpu_memory"] = 96
        assert ours == numbers, name


def test_newest_types_are_in_the_catalogue():
    numbers = {name: (row.gpus or row.neuron, row.efa, row.checked) for name, row in load_catalogue().items()}
    expected = {
        "p5en.48xlarge": (8, 16, True),
        "p6-b200.48xlarge": (8, 8, True),
        "p6-b300.48xlarge": (8, 16, True),
        "p6e-gb200.36xlarge": (4, 4, False),
        "trn1.32xlarge": (16, 8, True),
        "trn2.48xlarge": (16, 16, True),
        "g6e.48xlarge": (8, 4, True),
    }
    assert {name: numbers[name] for name in expected} == expected


def test_unknown_instance_needs_numbers():
    with pytest.raises(SpecError, match=r"`p9\.48xlarge` is not in the catalogue"):
        load_spec(GOOD + "instance: p9.48xlarge\n")
    spec = load_spec(GOOD + "instance: p9.48xlarge\nresources: {gpus: 16, efa: 8}\n").spec
    assert (spec.instance, spec.resources.gpus) == ("p9.48xlarge", 16)


@pytest.mark.parametrize("pages", ["huge_pages: {2Mi: 5Gi}", "limits: {hugepages-2Mi: 5Gi}"])
def test_huge_pages_need_cpu_or_memory(pages):
    """Kubernetes: `HugePages require cpu or memory` (core/v1 validation)."""
    with pytest.raises(SpecError, match="huge pages and neither CPU nor memory"):
        load_spec(GOOD + f"resources: {{{pages}}}\n")
    assert load_spec(GOOD + f"resources: {{{pages}, memory: 8Gi}}\n").spec.resources.memory == "8Gi"


def test_efa_is_requested_once():
    with pytest.raises(SpecError, match="both request the adapters"):
        load_spec(GOOD + "resources: {efa: 4, efa_claim: all-efa}\n")
