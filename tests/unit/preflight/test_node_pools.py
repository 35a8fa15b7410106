"""Which node pools of Karpenter or EKS Auto Mode would serve a pod."""

from __future__ import annotations

from typing import Any

import pytest

from kfjob.api.preflight.node_pools import explain_pool_misfit, read_node_pool

GPU_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
P5 = {"node.kubernetes.io/instance-type": "p5.48xlarge"}


def explain(pod: dict[str, Any], **pool: Any) -> str:
    node = {key: pool.pop(key) for key in ("requirements", "taints") if key in pool}
    template = {"metadata": {"labels": pool.pop("labels", {})}, "spec": node}
    status = pool.pop("status", {})
    manifest = {"metadata": {"name": "gpu"}, "spec": {"template": template, **pool}, "status": status}
    return explain_pool_misfit(read_node_pool(manifest), pod, {"nvidia.com/gpu": 8.0, "cpu": 100.0})


def need(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [expression]} for expression in expressions]
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}


@pytest.mark.parametrize(
    ("pod", "pool", "reason"),
    [
        ({}, {}, ""),
        ({"nodeSelector": P5}, {}, ""),
        ({"nodeSelector": P5}, {"requirements": [need("node.kubernetes.io/instance-type", "p5.48xlarge", "p4d.24xlarge")]}, ""),
        ({"nodeSelector": P5}, {"requirements": [need("node.kubernetes.io/instance-type", "g5.xlarge")]}, "has no nodes with"),
        ({"nodeSelector": P5}, {"requirements": [need("karpenter.k8s.aws/instance-category", "g", "p")]}, ""),
        (
            {"nodeSelector": P5},
            {"requirements": [need("karpenter.k8s.aws/instance-category", "c", "m")]},
            "excludes p5.48xlarge",
        ),
        ({"nodeSelector": P5}, {"requirements": [need("eks.amazonaws.com/instance-family", "p5")]}, ""),
        ({"nodeSelector": P5}, {"requirements": [need("eks.amazonaws.com/instance-family", "g6")]}, "excludes p5.48xlarge"),
        ({"nodeSelector": P5}, {"requirements": [need("karpenter.k8s.aws/instance-gpu-count", "4", operator="Gt")]}, ""),
        ({"nodeSelector": P5}, {"requirements": [need("kubernetes.io/arch", "arm64")]}, "excludes p5.48xlarge"),
        ({}, {"taints": [GPU_TAINT]}, "has taint `nvidia.com/gpu:NoSchedule`"),
        ({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, {"taints": [GPU_TAINT]}, ""),
        ({}, {"startupTaints": [GPU_TAINT]}, ""),
        ({"nodeSelector": {"team": "a"}}, {}, "sets no label `team`"),
        ({"nodeSelector": {"team": "a"}}, {"labels": {"team": "a"}}, ""),
        ({"nodeSelector": {"team": "a"}}, {"labels": {"team": "b"}}, "has label `team=b`"),
        ({"nodeSelector": {"team": "a"}}, {"requirements": [need("team", operator="Exists")]}, ""),
        (affinity(need("team", "b"), need("karpenter.sh/capacity-type", "on-demand")), {}, ""),
        (affinity(need("team", "b")), {}, "sets no label `team`"),
        ({}, {"limits": {"nvidia.com/gpu": 8}}, ""),
        (
            {},
            {"limits": {"nvidia.com/gpu": 12}, "status": {"resources": {"nvidia.com/gpu": "8"}}},
            "its limit of nvidia.com/gpu",
        ),
        ({}, {"limits": {"cpu": "50"}}, "has reached its limit of cpu"),
    ],
)
def test_pool_serves_the_pod(pod, pool, reason):
    answer = explain(pod, **pool)
    assert reason in answer
    assert bool(reason) == bool(answer)
