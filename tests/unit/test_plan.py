"""Plans: defaults with their origins, the rendezvous, local agents."""

from __future__ import annotations

import pytest

from kfjob.base.errors import SpecError
from kfjob.plan import Context, resolve, spec_hash
from kfjob.plan.agent import AgentPlace, make_local_agent, operator_environment
from kfjob.shell.commands import starts_workers
from kfjob.spec.job import JobSpec, Rendezvous, Resources, Volume

KUBERNETES = Context(backend="kubernetes", launch="l1", namespace="there")
LOCAL = Context(backend="local", launch="l1")


def make_spec(**fields) -> JobSpec:
    return JobSpec(**{"name": "train", "image": "a:1", "command": ["torchrun", "train.py"], **fields})


def test_decision_for_a_default_has_its_origin():
    decisions = {d.path: d for d in resolve(make_spec(nodes=2), KUBERNETES).decisions}
    assert decisions["namespace"].origin == "cluster"
    assert decisions["env.LOGLEVEL"].value == "INFO"
    assert decisions["processes_per_node"].value == "1"
    assert decisions["rendezvous.endpoint"].value == "train-worker-0:23456"
    assert decisions["rendezvous.id"].value == "train-l1"


def test_decision_for_a_field_of_the_spec_has_its_origin():
    plan = resolve(make_spec(env={"LOGLEVEL": "WARNING"}, namespace="here"), KUBERNETES)
    decisions = {d.path: d for d in plan.decisions}
    assert dict(plan.env)["LOGLEVEL"] == "WARNING"
    assert decisions["env.LOGLEVEL"].origin == "spec"
    assert plan.namespace == "here"


@pytest.mark.parametrize(("gpus", "processes"), [(0, "1"), (8, "8")])
def test_default_is_one_process_per_gpu(gpus, processes):
    assert resolve(make_spec(resources=Resources(gpus=gpus)), KUBERNETES).processes_per_node == processes


def test_launches_have_different_rendezvous_ids():
    first, second = (resolve(make_spec(), Context(backend="local", launch=launch)) for launch in ("a", "b"))
    assert first.rendezvous.id != second.rendezvous.id


def test_spec_hash_ignores_explicit_defaults():
    assert spec_hash(make_spec(nodes=1)) == spec_hash(make_spec())
    assert spec_hash(make_spec(rendezvous=Rendezvous(backend="c10d"))) == spec_hash(make_spec())
    assert spec_hash(make_spec(nodes=2)) != spec_hash(make_spec())


def test_recorded_spec_equals_the_spec():
    spec = make_spec(nodes=3, env={"A": "1"}, volumes=(Volume(name="d", mount_path="/d", pvc="d"),))
    assert JobSpec.model_validate_json(resolve(spec, KUBERNETES).spec_json) == spec


@pytest.mark.parametrize(("size", "prepared"), [("unlimited", ""), ("4Gi", "4Gi"), ("0", None), (None, "4Gi")])
def test_size_of_shared_memory(size, prepared):
    spec = make_spec(shared_memory=size, resources=Resources(memory="8Gi"))
    assert resolve(spec, KUBERNETES).shared_memory == prepared


def test_variables_keep_the_order_of_the_spec():
    env = {"A": "$(PW)", "LOGLEVEL": "DEBUG", "PW": {"secret": "s", "key": "k"}, "B": "$(PW)"}
    names = [name for name, _ in resolve(make_spec(env=env, wandb_key="t/k"), KUBERNETES).env]
    assert names[0] == "WANDB_API_KEY"
    assert names[-4:] == list(env)
    assert len(names) == len(set(names))


def test_address_that_the_spec_gives_an_agent_is_a_variable():
    spec = make_spec(nodes=2, rendezvous=Rendezvous(local_addr="$(HOST_IP)"))
    assert dict(resolve(spec, KUBERNETES).env)["PET_LOCAL_ADDR"] == "$(HOST_IP)"


@pytest.mark.parametrize("fields", [{}, {"args": ["--lr=1"]}])
def test_entry_point_of_an_image_needs_the_image(fields):
    spec = make_spec(command=None, **fields)
    assert (resolve(spec, KUBERNETES).command, resolve(spec, KUBERNETES).words) == ((), tuple(fields.get("args", ())))
    with pytest.raises(SpecError, match="the local backend runs no image"):
        resolve(spec, LOCAL)


def test_local_agent_runs_command_and_args():
    plan = resolve(make_spec(command=["torchrun"], args=["train.py", "$(PET_NNODES)"]), LOCAL)
    placement = AgentPlace(addresses=("127.0.0.2",), endpoint="127.0.0.2:1", interface="lo", folders={})
    assert make_local_agent(plan, 0, placement).argv == ("torchrun", "train.py", "1:1")


def test_local_backend_has_no_secrets():
    volume = Volume(name="token", mount_path="/token", secret="hub")  # noqa: S106 - a name
    with pytest.raises(SpecError, match="secret, which this machine does not have"):
        resolve(make_spec(volumes=(volume,)), LOCAL)


def test_etcd_job_without_endpoint_creates_its_own_etcd():
    own = resolve(make_spec(rendezvous=Rendezvous(backend="etcd")), KUBERNETES)
    shared = resolve(make_spec(rendezvous=Rendezvous(backend="etcd", endpoint="e.x:99")), KUBERNETES)
    assert (own.rendezvous.host, own.rendezvous.port, bool(own.own_etcd_image)) == ("train-etcd", 2379, True)
    assert (shared.rendezvous.host, shared.rendezvous.port, shared.own_etcd_image) == ("e.x", 99, "")


def test_operator_environment_equals_the_operators():
    env = operator_environment(resolve(make_spec(nodes=2), KUBERNETES))
    assert env["PET_NNODES"] == "2:2"
    assert env["PET_RDZV_ENDPOINT"] == "train-worker-0:23456"
    assert env["PET_RDZV_CONF"] == "join_timeout=900,last_call_timeout=5,read_timeout=300"


def make_placement(*addresses: str) -> AgentPlace:
    folders = {"/data": "/state/volumes/d", "/data/deep": "/elsewhere"}
    return AgentPlace(addresses=addresses, endpoint=f"{addresses[0]}:4000", interface="lo", folders=folders)


def test_local_agents_differ_in_address_and_store():
    plan = resolve(make_spec(nodes=2), LOCAL)
    first, second = (make_local_agent(plan, index, make_placement("127.0.0.2", "127.0.0.3")) for index in (0, 1))
    assert (first.name, second.name) == ("train-worker-0", "train-worker-1")
    assert (first.env["PET_LOCAL_ADDR"], second.env["PET_LOCAL_ADDR"]) == ("127.0.0.2", "127.0.0.3")
    assert first.env["PET_RDZV_CONF"].endswith("is_host=true")
    assert second.env["PET_RDZV_CONF"].endswith("is_host=false")


@pytest.mark.parametrize(
    ("word", "local_word"),
    [
        ("/data", "/state/volumes/d"),
        ("/data/x", "/state/volumes/d/x"),
        ("--out=/data/x", "--out=/state/volumes/d/x"),
        ("/data/deep/x", "/elsewhere/x"),
        ("/database", "/database"),
        ("see=/data", "see=/data"),
    ],
)
def test_pod_paths_become_local_paths(word, local_word):
    plan = resolve(make_spec(command=["prog", word], env={"WHERE": word}), LOCAL)
    agent = make_local_agent(plan, 0, make_placement("127.0.0.2"))
    assert agent.argv == ("prog", local_word)
    assert agent.env["WHERE"] == local_word


@pytest.mark.parametrize(("fields", "unconnected"), [
    ({"nodes": 2, "command": ["python", "train.py"]}, "python train.py"),
    ({"nodes": 2, "command": ["python", "train.py"], "env": {"MASTER_ADDR": "a"}}, ""),
    ({"nodes": 1, "command": ["python", "train.py"]}, ""),
    ({"nodes": 2}, ""),
])  # fmt: skip
def test_plan_knows_programs_that_connect_nobody(fields, unconnected):
    assert resolve(make_spec(**fields), LOCAL).observe_config.unconnected == unconnected


@pytest.mark.parametrize(("launcher", "backend"), [("torchrun", "c10d"), ("accelerate", "static"), ("deepspeed", "static")])
def test_plan_records_the_rendezvous_of_the_launcher(launcher, backend):
    plan = resolve(make_spec(nodes=2, launcher=launcher, command=["train.py"], processes_per_node=1), LOCAL)
    assert plan.observe_config.rendezvous == plan.rendezvous.backend == backend


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "/opt/bin/torchrun --nnodes 2 train.py",
        "python3 -m torch.distributed.run train.py",
        "python -u -m torch.distributed.launch train.py",
        "accelerate launch train.py",
        "python3 -m deepspeed.launcher.launch train.py",
    ],
)
def test_launchers_only_start_workers(command: str):
    assert starts_workers(command.split())


@pytest.mark.parametrize(
    "command", ["", "python train.py", "python -m train", "bash -c torchrun", "accelerate env", "torchrunner"]
)
def test_other_programs_may_work_themselves(command: str):
    assert not starts_workers(command.split())
