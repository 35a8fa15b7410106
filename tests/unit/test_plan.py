from __future__ import annotations

import pytest

from kfjob.compile.torchrun import Placement, make_local_agent, operator_environment
from kfjob.errors import SpecError
from kfjob.plan import Context, resolve, spec_hash
from kfjob.spec.job import JobSpec, Rendezvous, Resources, Volume

KUBERNETES = Context(backend="kubernetes", launch="l1", namespace="there")
LOCAL = Context(backend="local", launch="l1")


def spec(**more) -> JobSpec:
    return JobSpec(**{"name": "train", "image": "a:1", "command": ["torchrun", "train.py"], **more})


def test_every_default_is_written_down_with_its_origin():
    made = {d.path: d for d in resolve(spec(nodes=2), KUBERNETES).decisions}
    assert made["namespace"].origin == "cluster"
    assert made["env.LOGLEVEL"].value == "INFO"
    assert made["processes_per_node"].value == "1"
    assert made["rendezvous.endpoint"].value == "train-worker-0:23456"
    assert made["rendezvous.id"].value == "train-l1"


def test_what_the_spec_says_is_kept_and_written_down_as_said():
    plan = resolve(spec(env={"LOGLEVEL": "WARNING"}, namespace="here"), KUBERNETES)
    made = {d.path: d for d in plan.decisions}
    assert dict(plan.env)["LOGLEVEL"] == "WARNING"
    assert made["env.LOGLEVEL"].origin == "spec"
    assert plan.namespace == "here"


@pytest.mark.parametrize(("gpus", "processes"), [(0, "1"), (8, "8")])
def test_processes_follow_the_gpus(gpus, processes):
    assert resolve(spec(resources=Resources(gpus=gpus)), KUBERNETES).processes_per_node == processes


def test_two_launches_never_share_a_rendezvous_id():
    one, two = (resolve(spec(), Context(backend="local", launch=launch)) for launch in ("a", "b"))
    assert one.rendezvous.id != two.rendezvous.id


def test_spec_hash_is_of_what_is_said_not_of_how():
    assert spec_hash(spec(nodes=1)) == spec_hash(spec())
    assert spec_hash(spec(rendezvous=Rendezvous(backend="c10d"))) == spec_hash(spec())
    assert spec_hash(spec(nodes=2)) != spec_hash(spec())


def test_the_recorded_spec_is_the_spec():
    wanted = spec(nodes=3, env={"A": "1"}, volumes=(Volume(name="d", mount_path="/d", pvc="d"),))
    assert JobSpec.model_validate_json(resolve(wanted, KUBERNETES).spec_json) == wanted


def test_image_is_asked_for_on_kubernetes_only():
    with pytest.raises(SpecError, match="`image` is missing"):
        resolve(spec(image=None), KUBERNETES)
    assert resolve(spec(image=None), LOCAL).image == ""


def test_this_machine_has_no_secrets():
    volume = Volume(name="token", mount_path="/token", secret="hub")  # noqa: S106 - the name of one
    with pytest.raises(SpecError, match="secret, which this machine does not have"):
        resolve(spec(volumes=(volume,)), LOCAL)


def test_an_etcd_job_without_endpoint_has_its_own():
    own = resolve(spec(rendezvous=Rendezvous(backend="etcd")), KUBERNETES)
    shared = resolve(spec(rendezvous=Rendezvous(backend="etcd", endpoint="e.x:99")), KUBERNETES)
    assert (own.rendezvous.host, own.rendezvous.port, bool(own.own_etcd_image)) == ("train-etcd", 2379, True)
    assert (shared.rendezvous.host, shared.rendezvous.port, shared.own_etcd_image) == ("e.x", 99, "")


def test_operator_environment_names_what_the_operator_injects():
    env = operator_environment(resolve(spec(nodes=2), KUBERNETES))
    assert env["PET_NNODES"] == "2:2"
    assert env["PET_RDZV_ENDPOINT"] == "train-worker-0:23456"
    assert env["PET_RDZV_CONF"] == "join_timeout=900,last_call_timeout=5,read_timeout=300"


def place(*addresses: str) -> Placement:
    folders = {"/data": "/state/volumes/d", "/data/deep": "/elsewhere"}
    return Placement(addresses=addresses, endpoint=f"{addresses[0]}:4000", interface="lo", folders=folders)


def test_agents_of_this_machine_differ_in_address_and_store():
    plan = resolve(spec(nodes=2), LOCAL)
    one, two = (make_local_agent(plan, index, place("127.0.0.2", "127.0.0.3")) for index in (0, 1))
    assert (one.name, two.name) == ("train-worker-0", "train-worker-1")
    assert (one.env["PET_LOCAL_ADDR"], two.env["PET_LOCAL_ADDR"]) == ("127.0.0.2", "127.0.0.3")
    assert one.env["PET_RDZV_CONF"].endswith("is_host=true")
    assert two.env["PET_RDZV_CONF"].endswith("is_host=false")


@pytest.mark.parametrize(
    ("word", "here"),
    [
        ("/data", "/state/volumes/d"),
        ("/data/x", "/state/volumes/d/x"),
        ("--out=/data/x", "--out=/state/volumes/d/x"),
        ("/data/deep/x", "/elsewhere/x"),
        ("/database", "/database"),
        ("see=/data", "see=/data"),
    ],
)
def test_paths_of_the_pod_become_paths_of_this_machine(word, here):
    plan = resolve(spec(command=["prog", word], env={"WHERE": word}), LOCAL)
    agent = make_local_agent(plan, 0, place("127.0.0.2"))
    assert agent.argv == ("prog", here)
    assert agent.env["WHERE"] == here
