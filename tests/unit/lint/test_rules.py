"""Every rule speaks up where it should, at the right field, and is silent where it should."""

from __future__ import annotations

import pytest

from kfjob.lint.catalogue import BY_ID, RULES
from kfjob.lint.check import lint
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from tests.unit.lint import cases

KUBERNETES = Context(backend="kubernetes", launch="l")
FAULTY = [(name, *case) for name, (faulty, _) in cases.CASES.items() for case in faulty]
FINE = [(name, spec) for name, (_, fine) in cases.CASES.items() for spec in fine]


def job(changes):
    return JobSpec.model_validate({k: v for k, v in (cases.BASE | changes).items() if v is not None})


def findings(changes, context=KUBERNETES):
    spec = job(changes)
    return lint(spec, resolve(spec, context))


def test_every_rule_has_cases_of_both_kinds():
    assert set(cases.CASES) == set(BY_ID)
    assert all(faulty and fine for faulty, fine in cases.CASES.values())
    assert len(BY_ID) == len(RULES)


@pytest.mark.parametrize(("name", "changes", "path", "said"), FAULTY, ids=[f"{c[0]}-{i}" for i, c in enumerate(FAULTY)])
def test_rule_finds_the_fault(name, changes, path, said):
    (found,) = [problem for problem in findings(changes) if problem.rule == name]
    assert found.path == path
    assert said in found.title
    assert found.severity == BY_ID[name].severity


@pytest.mark.parametrize(("name", "changes"), FINE, ids=[f"{c[0]}-{i}" for i, c in enumerate(FINE)])
def test_rule_lets_the_rest_be(name, changes):
    assert [problem for problem in findings(changes) if problem.rule == name] == []


@pytest.mark.parametrize(
    ("image", "backend", "told"),
    [
        ("etcd:v3.4.37", "etcd", False),
        ("registry.example:5000/etcd:3.5.21", "etcd", True),
        ("etcd:v3.5.21", "etcd-v2", False),
        ("etcd:v3.6.0", "etcd-v2", True),
        ("etcd@sha256:" + "0" * 64, "etcd", False),
    ],
)
def test_the_jobs_own_etcd_is_old_enough(image, backend, told):
    found = findings({"rendezvous": backend}, Context(backend="kubernetes", launch="l", etcd_image=image))
    assert [problem.path for problem in found if problem.rule == "etcd-version"] == ["rendezvous"] * told


def test_rules_can_be_ignored_and_a_misspelt_one_is_said():
    assert [p.rule for p in findings({"image": "train"})] == ["latest-image"]
    assert findings({"image": "train", "lint": {"ignore": ["latest-image"]}}) == []
    (found,) = findings({"lint": {"ignore": ["latest"]}})
    assert (found.path, found.severity) == ("lint.ignore.0", "warning")


def test_this_machine_has_fewer_rules():
    local = Context(backend="local", launch="l")
    assert findings({"image": "train", "pod": {"grace": 5}}, local) == []
    assert [p.rule for p in findings({"env": {"LOGLEVEL": "info"}}, local)] == ["loglevel-unknown"]


def test_no_finding_shows_the_secret():
    for problem in findings({"env": {"HF_TOKEN": cases.FAKE_TOKEN}}):
        assert cases.FAKE_TOKEN not in "\n".join(problem.lines())


def test_every_rule_says_why():
    for rule in RULES:
        assert rule.title
        assert len(rule.why) > 20, rule.id
