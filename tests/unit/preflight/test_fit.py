from __future__ import annotations

from typing import Any

import pytest

from kfjob.api.preflight import fit, pod_requirements, quota
from kfjob.compile.pod_templates import PodTemplate

GPU = "nvidia.com/gpu"


def node(
    name: str = "n", *, labels: dict[str, str] | None = None, taints: Any = (), cordoned: bool = False, **has: str
) -> fit.Node:
    allocatable = {
        "cpu": "8",
        "memory": "32Gi",
        "pods": "110",
        **{key.replace("gpu", GPU): value for key, value in has.items()},
    }
    spec = {"taints": list(taints), **({"unschedulable": True} if cordoned else {})}
    return fit.node_of(
        {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": allocatable}}
    )


def pods(count: int = 1, *, spec: dict[str, Any] | None = None, **requests: str) -> PodTemplate:
    asked = {key.replace("gpu", GPU): value for key, value in requests.items()}
    container = {"name": "pytorch", "resources": {"requests": asked, "limits": asked}}
    each = tuple(f"job-worker-{index}" for index in range(count))
    return PodTemplate(names=each, metadata={}, spec={"containers": [container], **(spec or {})})


def why(nodes: list[fit.Node], kind: PodTemplate) -> str:
    found = fit.misfits(nodes, [kind])
    return found[0].why if found else ""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("500m", 0.5),
        ("1Gi", 2**30),
        ("24581684Ki", 24581684 * 1024),
        ("100n", 1e-7),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1k", 1000),
        ("0", 0),
        (3, 3),
        ("1.5Gi", 1.5 * 2**30),
        ("2E", 2e18),
    ],
)
def test_quantities(text, number):
    assert pod_requirements.quantity(text) == pytest.approx(number)


def test_a_job_that_fits_fills_the_nodes():
    nodes = [node("a", gpu="8"), node("b", gpu="8")]
    assert fit.misfits(nodes, [pods(2, gpu="8", cpu="4")]) == []
    assert [one.free[GPU] for one in nodes] == [0, 0]


def test_what_is_missing_is_counted_and_said_once_for_nodes_that_are_alike():
    nodes = [node("a"), node("b"), node("c", gpu="4")]
    (misfit,) = fit.misfits(nodes, [pods(2, gpu="8")])
    assert (misfit.pod, misfit.is_full) == ("job-worker-0", False)
    assert misfit.why == (f"2 of 2 such pods have no node: of 3 nodes, 2 with 0 {GPU} (8 wanted), 1 with 4 {GPU} (8 wanted)")


def test_pods_that_fit_no_more_are_told_from_those_that_never_fit():
    nodes = [node("a", gpu="8")]
    fit.occupy(nodes, [{"spec": {"nodeName": "a", "containers": [{"resources": {"limits": {GPU: "6"}}}]}, "status": {}}])
    (misfit,) = fit.misfits(nodes, [pods(gpu="8")])
    assert misfit.is_full
    assert f"1 with 2 {GPU} left (8 wanted)" in misfit.why
    ended = {"spec": {"nodeName": "a", "containers": [{"resources": {"limits": {GPU: "6"}}}]}, "status": {"phase": "Succeeded"}}
    fresh = [node("a", gpu="8")]
    fit.occupy(fresh, [ended])
    assert fit.misfits(fresh, [pods(gpu="8")]) == []


def test_the_second_pod_of_a_job_can_be_the_one_without_a_node():
    (misfit,) = fit.misfits([node(gpu="8")], [pods(3, gpu="8")])
    assert (misfit.pod, misfit.is_full) == ("job-worker-1", True)
    assert misfit.why.startswith("2 of 3 such pods have no node")


TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": GPU, "operator": "Exists"}, True),
        ({"key": GPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": GPU, "value": "other"}, False),
        ({"key": GPU, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints(toleration, fits):
    said = why([node(taints=[TAINT])], pods(spec={"tolerations": [toleration]}))
    assert (said == "") is fits, said
    if not fits:
        assert f"1 with taint `{GPU}=present:NoSchedule`" in said


def test_a_preference_is_no_taint_and_a_cordon_is_one():
    assert why([node(taints=[{"key": "a", "effect": "PreferNoSchedule"}])], pods()) == ""
    assert "1 cordoned" in why([node(cordoned=True)], pods())


def test_selectors_and_affinity():
    instance = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert why([node(labels=instance)], pods(spec={"nodeSelector": instance})) == ""
    assert "without the label `node.kubernetes.io/instance-type=p4d.24xlarge`" in why(
        [node()], pods(spec={"nodeSelector": instance})
    )


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["a", "b"], True),
        ("In", ["c"], False),
        ("NotIn", ["c"], True),
        ("NotIn", ["a"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_node_affinity(operator, values, fits):
    terms = [{"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    said = why([node(labels={"zone": "a"})], pods(spec={"affinity": {"nodeAffinity": required}}))
    assert (said == "") is fits


@pytest.mark.parametrize(("operator", "fits"), [("Gt", True), ("Lt", False)])
def test_node_affinity_by_number(operator, fits):
    terms = [{"matchExpressions": [{"key": "count", "operator": operator, "values": ["3"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert (why([node(labels={"count": "8"})], pods(spec={"affinity": {"nodeAffinity": required}})) == "") is fits


def test_a_cluster_without_nodes():
    assert why([], pods()) == "the pod has no node: the cluster has none that is ready"


def test_init_containers_and_sidecars_count_as_the_scheduler_counts_them():
    spec: dict[str, Any] = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "2"}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
    }
    assert pod_requirements.requests(spec) == {"cpu": 4.0, "memory": 2.0**30}
    assert pod_requirements.requests({**spec, "initContainers": spec["initContainers"][1:]}) == {"cpu": 3.5}


def test_quotas_count_all_pods_and_what_is_taken():
    kinds = [pods(3, cpu="2", gpu="8")]
    adds = quota.usage(kinds, [{"kind": "PyTorchJob"}])
    status = {
        "hard": {f"requests.{GPU}": "16", "pods": "10", "cpu": "8", "count/pytorchjobs.kubeflow.org": "1", "limits.cpu": "6"},
        "used": {"cpu": "4", "count/pytorchjobs.kubeflow.org": "1"},
    }
    over = list(quota.exceeded({"status": status}, adds))
    assert over == [
        f"requests.{GPU}: the job wants 24, 0 is taken, the limit is 16",
        "cpu: the job wants 6, 4 is taken, the limit is 8",
        "count/pytorchjobs.kubeflow.org: the job wants 1, 1 is taken, the limit is 1",
    ]


def test_a_quota_makes_every_container_say_what_it_uses():
    hard = {"spec": {"hard": {"requests.cpu": "8", "limits.memory": "8Gi", "pods": "3"}}}
    assert list(quota.unsaid(hard, [pods(cpu="1", memory="1Gi")])) == []
    assert list(quota.unsaid(hard, [pods(gpu="8")])) == [
        "requests.cpu is not said by container `pytorch` of `job-worker-0`",
        "limits.memory is not said by container `pytorch` of `job-worker-0`",
    ]
