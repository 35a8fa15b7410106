"""No valid spec makes a rule raise, whatever its overrides remove."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.plan import resolve
from kfjob.source.spec_text import load_spec
from tests.pytorchjobs import lint
from tests.unit.lint import cases
from tests.unit.lint.test_rules import KUBERNETES, lint_job

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "tests/golden/specs").glob("*.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_goldens_have_no_errors(spec):
    loaded = load_spec(spec.read_text(encoding="utf-8"), file=spec.name, assignments=["image=registry.example/a:1"])
    assert [p for p in lint(loaded.spec, resolve(loaded.spec, KUBERNETES)) if p.severity == "error"] == []


@pytest.mark.parametrize("spec", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_have_no_warnings(spec):
    loaded = load_spec(spec.read_text(encoding="utf-8"), file=spec.name, assignments=["image=registry.example/a:1"])
    assert lint(loaded.spec, resolve(loaded.spec, KUBERNETES)) == []


@pytest.mark.parametrize(
    "overrides",
    [
        {"spec": {"elasticPolicy": None}},
        {"spec": {"elasticPolicy": {"minReplicas": None, "maxReplicas": None}}},
        {"spec": {"runPolicy": None}},
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": None}}}},
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"volumes": None, "initContainers": None}}}}}},
        cases.over(terminationGracePeriodSeconds=None),
        cases.over(containers=[{"name": "pytorch", "env": None, "resources": None, "volumeMounts": None, "image": None}]),
        cases.over(containers=[{"name": "pytorch", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}]),
        cases.over(hostNetwork=True, affinity=None, dnsPolicy=None),
    ],
)
@pytest.mark.parametrize(
    "base", [{}, cases.ELASTIC, cases.llama(), {"rendezvous": "etcd"}], ids=["", "elastic", "train", "etcd"]
)
def test_overrides_can_remove_any_field(base, overrides):
    lint_job({**base, "overrides": overrides.get("overrides", overrides)})
