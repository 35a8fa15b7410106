"""Nodes that the next launch avoids, beside the affinity that its pods have."""

from pathlib import Path

import yaml

from kfjob.kinds.pod_changes import avoid_nodes

TRAINJOB = Path(__file__).parents[1] / "golden" / "trainjobs" / "accelerate.yaml"
KEY = "requiredDuringSchedulingIgnoredDuringExecution"


def job(**pod):
    spec = {"containers": [{"name": "pytorch", "image": "i"}], **pod}
    replicas = {"Worker": {"replicas": 1, "template": {"spec": spec}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def test_every_term_of_the_users_affinity_avoids_the_nodes():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "xy"]
    affinity = {"podAffinity": {}, "nodeAffinity": {KEY: {"nodeSelectorTerms": terms}}}
    (item,) = avoid_nodes([job(affinity=affinity)], ["a", "b"])
    new = item["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"]
    assert new["podAffinity"] == {}
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in "ab"
    ]  # the API server accepts one value
    assert new["nodeAffinity"][KEY]["nodeSelectorTerms"] == [{**term, "matchFields": fields} for term in terms]


def test_no_node_changes_nothing():
    assert avoid_nodes([job()], []) == [job()]


def test_pods_of_a_trainjob_avoid_the_node_in_its_runtime():
    objects = list(yaml.safe_load_all(TRAINJOB.read_text()))
    runtime, trainjob = avoid_nodes(objects, ["a"])
    assert trainjob == objects[1]
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["affinity"]["nodeAffinity"][KEY]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["a"]
    assert [volume["name"] for volume in pod["volumes"]] == ["kfjob-shared-memory"]
