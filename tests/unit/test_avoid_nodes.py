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


def affinity_of(item):
    return item["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"]


def test_each_node_is_an_expression_of_its_own():  # the API server accepts one value in each
    (item,) = avoid_nodes([job()], ["a", "b"])
    (term,) = affinity_of(item)["nodeAffinity"][KEY]["nodeSelectorTerms"]
    assert [(one["key"], one["operator"], one["values"]) for one in term["matchFields"]] == [
        ("metadata.name", "NotIn", ["a"]),
        ("metadata.name", "NotIn", ["b"]),
    ]


def test_every_term_of_the_users_affinity_avoids_the_nodes():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "xy"]
    affinity = {"podAffinity": {}, "nodeAffinity": {KEY: {"nodeSelectorTerms": terms}}}
    (item,) = avoid_nodes([job(affinity=affinity)], ["a"])
    new = affinity_of(item)
    assert new["podAffinity"] == {}
    assert [len(term["matchFields"]) for term in new["nodeAffinity"][KEY]["nodeSelectorTerms"]] == [1, 1]
    assert [term["matchExpressions"] for term in new["nodeAffinity"][KEY]["nodeSelectorTerms"]] == [
        term["matchExpressions"] for term in terms
    ]


def test_no_node_changes_nothing():
    assert avoid_nodes([job()], []) == [job()]


def test_pods_of_a_trainjob_avoid_the_node_in_its_runtime():
    objects = list(yaml.safe_load_all(TRAINJOB.read_text()))
    runtime, trainjob = avoid_nodes(objects, ["a"])
    assert trainjob == objects[1]
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["affinity"]["nodeAffinity"][KEY]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["a"]
    assert [volume["name"] for volume in pod["volumes"]] == ["kfjob-shared-memory"]
