from __future__ import annotations

from typing import Any

import pytest

from kfjob.api.capacity import fit, pod_requirements
from kfjob.api.preflight import quota
from kfjob.kinds.base import PodTemplate

GPU = "nvidia.com/gpu"


def node(
    name: str = "n", *, labels: dict[str, str] | None = None, taints: Any = (), cordoned: bool = False, **resources: str
) -> fit.Node:
    allocatable = {
        "cpu": "8",
        "memory": "32Gi",
        "pods": "110",
        **{key.replace("gpu", GPU): value for key, value in resources.items()},
    }
    spec = {"taints": list(taints), **({"unschedulable": True} if cordoned else {})}
    return fit.read_node(
        {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": allocatable}}
    )


def make_template(count: int = 1, *, spec: dict[str, Any] | None = None, **requests: str) -> PodTemplate:
    amounts = {key.replace("gpu", GPU): value for key, value in requests.items()}
    container = {"name": "pytorch", "resources": {"requests": amounts, "limits": amounts}}
    names = tuple(f"job-worker-{index}" for index in range(count))
    return PodTemplate(names=names, metadata={}, spec={"containers": [container], **(spec or {})})


def explain(nodes: list[fit.Node], template: PodTemplate) -> str:
    misfits = fit.find_misfits(nodes, [template])
    return misfits[0].reason if misfits else ""


def test_pods_that_fit_use_the_free_resources():
    nodes = [node("a", gpu="8"), node("b", gpu="8")]
    assert fit.find_misfits(nodes, [make_template(2, gpu="8", cpu="4")]) == []
    assert [item.free[GPU] for item in nodes] == [0, 0]


def test_reasons_are_counted_over_similar_nodes():
    nodes = [node("a"), node("b"), node("c", gpu="4")]
    (misfit,) = fit.find_misfits(nodes, [make_template(2, gpu="8")])
    assert (misfit.pod, misfit.is_full) == ("job-worker-0", False)
    assert misfit.reason == (f"no node for 2 of 2 pods: of 3 nodes, 2 with 0 {GPU} (8 requested), 1 with 4 {GPU} (8 requested)")


def test_full_nodes_differ_from_nodes_that_are_too_small():
    nodes = [node("a", gpu="8")]
    fit.add_existing_pods(
        nodes, [{"spec": {"nodeName": "a", "containers": [{"resources": {"limits": {GPU: "6"}}}]}, "status": {}}]
    )
    (misfit,) = fit.find_misfits(nodes, [make_template(gpu="8")])
    assert misfit.is_full
    assert f"1 with 2 {GPU} free (8 requested)" in misfit.reason
    ended = {"spec": {"nodeName": "a", "containers": [{"resources": {"limits": {GPU: "6"}}}]}, "status": {"phase": "Succeeded"}}
    idle = [node("a", gpu="8")]
    fit.add_existing_pods(idle, [ended])
    assert fit.find_misfits(idle, [make_template(gpu="8")]) == []


def test_second_pod_can_be_the_misfit():
    (misfit,) = fit.find_misfits([node(gpu="8")], [make_template(3, gpu="8")])
    assert (misfit.pod, misfit.is_full) == ("job-worker-1", True)
    assert misfit.reason.startswith("no node for 2 of 3 pods")


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
def test_taints_need_a_toleration(toleration, fits):
    reason = explain([node(taints=[TAINT])], make_template(spec={"tolerations": [toleration]}))
    assert (reason == "") is fits, reason
    if not fits:
        assert f"1 with taint `{GPU}=present:NoSchedule`" in reason


def test_preference_is_ignored_and_cordon_is_a_taint():
    assert explain([node(taints=[{"key": "a", "effect": "PreferNoSchedule"}])], make_template()) == ""
    assert "1 cordoned" in explain([node(cordoned=True)], make_template())


def test_node_selector_needs_its_labels():
    instance = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert explain([node(labels=instance)], make_template(spec={"nodeSelector": instance})) == ""
    assert "without label `node.kubernetes.io/instance-type=p4d.24xlarge`" in explain(
        [node()], make_template(spec={"nodeSelector": instance})
    )


def test_cluster_without_nodes_has_its_own_reason():
    assert explain([], make_template()) == "no node for the pod: the cluster has no ready node"


def test_init_containers_and_sidecars_count_as_in_the_scheduler():
    spec: dict[str, Any] = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "2"}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
    }
    assert pod_requirements.sum_requests(spec) == {"cpu": 4.0, "memory": 2.0**30}
    assert pod_requirements.sum_requests({**spec, "initContainers": spec["initContainers"][1:]}) == {"cpu": 3.5}


def test_quotas_count_all_pods_and_current_usage():
    templates = [make_template(3, cpu="2", gpu="8")]
    usage = quota.sum_usage(templates, [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}])
    status = {
        "hard": {f"requests.{GPU}": "16", "pods": "10", "cpu": "8", "count/pytorchjobs.kubeflow.org": "1", "limits.cpu": "6"},
        "used": {"cpu": "4", "count/pytorchjobs.kubeflow.org": "1"},
    }
    lines = list(quota.explain_exceeded({"status": status}, usage))
    assert lines == [
        f"requests.{GPU}: the job needs 24, 0 in use, limit 16",
        "cpu: the job needs 6, 4 in use, limit 8",
        "count/pytorchjobs.kubeflow.org: the job needs 1, 1 in use, limit 1",
    ]
