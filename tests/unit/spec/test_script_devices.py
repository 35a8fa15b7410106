"""Arguments of published scripts that must agree with the rest of a spec."""

from __future__ import annotations

import pytest

from kfjob.base.errors import SpecError
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import load_spec
from tests.pytorchjobs import lint

SPEC = "name: a\nimage: a:1\n{job}\ntrain: {{model: tiny-llama, data: /d, max_steps: 1, precision: fp32, {train}}}\n"


@pytest.mark.parametrize("job", ["processes_per_node: 4", "resources: {gpus: 4}", "instance: g4dn.12xlarge"])
def test_devices_that_the_job_has_are_accepted(job):
    assert load_spec(SPEC.format(job=job, train="devices: 4")).spec.train


@pytest.mark.parametrize(
    ("job", "title"),
    [
        ("processes_per_node: 8", "`devices: 4` differs from `processes_per_node: 8`"),
        ("resources: {gpus: 8}", "`devices: 4` differs from `resources.gpus: 8`"),
        ("nodes: 1", "`devices: 4` starts no processes here"),
    ],
)
def test_other_devices_are_one_error(job, title):
    with pytest.raises(SpecError) as caught:
        load_spec(SPEC.format(job=job, train="devices: 4"))
    (problem,) = caught.value.problems
    assert (problem.title, problem.path, problem.line) == (title, "train.devices", 4)


def test_checkpoint_that_resume_ignores_is_an_error():
    with pytest.raises(SpecError, match="`resume: false` ignores `checkpoint: /c`"):
        load_spec(SPEC.format(job="nodes: 1", train="resume: false, checkpoint: /c"))


def test_hints_offer_no_private_names():
    with pytest.raises(SpecError) as caught:
        load_spec(SPEC.format(job="nodes: 1", train="sharding_strategy: hybrid_zero"))
    assert "`_" not in str(caught.value)


def test_cards_without_bf16_are_reported_on_this_machine_too():
    spec = load_spec(SPEC.format(job="instance: g4dn.xlarge", train="seed: 1").replace("fp32", "bf16")).spec
    problems = lint(spec, resolve(spec, Context(backend="local", launch="l")))
    assert "unsupported-precision" in [problem.rule for problem in problems]
