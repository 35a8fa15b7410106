"""A wrong value gets a hint with the value that it probably means, and that value is valid."""

from __future__ import annotations

from itertools import chain
from typing import Any, get_args, get_origin

import pytest
import yaml

from kfjob.base.errors import SpecError
from kfjob.base.text import snake_case
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec
from kfjob.validation.field_suggestions import suggest_field
from kfjob.validation.model_fields import find_model, list_fields
from kfjob.validation.value_suggestions import list_choices, suggest_choice


def make_spec(field: str, value: Any) -> dict[str, Any]:
    """Return the fields of a spec that is valid if the value is."""
    is_trainer = field.startswith("train.")
    trainer = {"model": "tiny-llama", "data": "synthetic", "max_steps": 1}
    spec: dict[str, Any] = {"name": "t", "image": "a:1", **({"train": trainer} if is_trainer else {"command": "a"})}
    section = spec
    *parents, name = field.split(".")
    for parent in parents:
        section = section.setdefault(parent, {})
    section[name] = value
    return spec


@pytest.mark.parametrize(
    ("backend", "hint"),
    [
        ("local", 'use the option `--backend local`, or write `backend = "local"` in kfjob.toml'),
        ("kubernetes", 'use the option `--backend kubernetes`, or write `backend = "kubernetes"` in kfjob.toml'),
        ("c10d", "use `rendezvous.backend`"),
    ],
)
def test_value_decides_which_backend_is_meant(backend, hint):
    spec = {"name": "t", "image": "a:1", "command": "a", "backend": backend}
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(spec))
    assert [(problem.title, problem.hint) for problem in caught.value.problems] == [("unknown field `backend`", hint)]


@pytest.mark.parametrize(
    ("field", "value", "suggestion"),
    [
        ("nodes", "two", "2"),
        ("nodes", "twenty-four", "24"),
        ("nodes", "two hundred and six", "206"),
        ("nodes", "a dozen", "12"),
        ("nodes", "4 nodes", "4"),
        ("nodes", "1,000", "1000"),
        ("nodes", "1e2", "100"),
        ("resources.gpus", "eight GPUs", "8"),
        ("restarts.max", "none", "0"),
        ("train.max_steps", "3k", "3000"),
        ("train.max_steps", "1.5M", "1500000"),
        ("train.lr", "0,001", "0.001"),
        ("train.warmup_fraction", "5%", "0.05"),
        ("run.suspend", "enabled", "true"),
        ("train.compile", "flase", "false"),
        ("rendezvous", "c10", "c10d"),
        ("rendezvous.backend", "tcp", "c10d"),
        ("rendezvous", "etcd_v2", "etcd-v2"),
        ("launcher", "pytorch", "torchrun"),
        ("launcher", "torch.distributed.launch", "launch"),
        ("restarts.policy", "on-failure", "OnFailure"),
        ("restarts.policy", "none", "Never"),
        ("image_pull_policy", "if not present", "IfNotPresent"),
        ("run.clean_pods", "off", "None"),
        ("train.precision", "bfloat16", "bf16"),
        ("train.schedule", "cosine_with_warmup", "cosine"),
        ("resources.memory", "10GB", "10G"),
        ("resources.memory", "16 gibibytes", "16Gi"),
        ("resources.memory", "512m", "512Mi"),
        ("resources.memory", "64 gb", "64G"),
        ("resources.cpu", "two cores", "2"),
        ("resources.cpu", "500 millicores", "500m"),
        ("shared_memory", "1TiB", "1Ti"),
        ("run.deadline", "10 minutes", "10m"),
        ("run.deadline", "1.5 hours", "1h30m"),
        ("run.deadline", "2 days and 3 hours", "2d3h"),
        ("run.ttl", "02:30:00", "2h30m"),
        ("processes_per_node", "eight", "8"),
        ("processes_per_node", "gpus", "gpu"),
        ("restarts.policy", False, "Never"),
        ("restarts", 3, "restarts: {max: 3}"),
        ("restarts", "never", "restarts: {max: 0}"),
        ("restarts", False, "restarts: {max: 0}"),
        ("env", ["A=1", {"name": "B", "value": "secret"}], "env: {A: VALUE, B: VALUE}"),
        ("image_pull_secrets", "a, b", "image_pull_secrets: [a, b]"),
    ],
)
def test_wrong_value_gets_the_valid_value_that_it_means(field, value, suggestion):
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec(field, value)))
    (problem,) = caught.value.problems
    assert f"`{suggestion}`" in (problem.hint or "")
    corrected = yaml.safe_load(suggestion)
    corrected = corrected[field] if isinstance(corrected, dict) else suggestion if corrected is None else corrected
    assert JobSpec.model_validate(make_spec(field, corrected))


@pytest.mark.parametrize(
    ("field", "value"),
    [("nodes", "some"), ("nodes", 2.5), ("run.deadline", "1 fortnight"), ("resources.memory", "a lot"), ("launcher", "xyzzy")],
)
def test_value_without_a_meaning_gets_none(field, value):
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec(field, value)))
    assert "write `" not in (caught.value.problems[0].hint or "")
    assert "did you mean" not in (caught.value.problems[0].hint or "")


def list_number_fields() -> list[str]:
    """Return the fields of a spec that take a number and no truth value, without those of list items."""
    names = []
    for path in chain.from_iterable(list_fields(JobSpec).values()):
        model = find_model(JobSpec, path[:-1])
        annotation = model.model_fields[str(path[-1])].annotation if model else None
        kinds = {annotation, *(() if get_origin(annotation) is tuple else get_args(annotation))}
        if kinds & {int, float} and bool not in kinds:
            names.append(".".join(map(str, path)))
    return names


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("field", [*list_number_fields(), "restarts.max", "train.betas.0"])
def test_a_truth_value_is_no_number(field, value):
    section, _, name = field.rpartition(".")
    whole = {"train.model": {name: value}, "train.betas": [value, value]}
    spec = make_spec(section, whole[section]) if section in whole else make_spec(field, value)
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(spec))
    problem = next(problem for problem in caught.value.problems if problem.path == field)
    assert " number" in problem.title
    assert f"not `{str(value).lower()}`" in problem.title


def test_many_fields_take_numbers():
    assert len(list_number_fields()) > 50
    assert "nodes" in list_number_fields()


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("name", True, "write it in quotes; YAML reads `yes`, `no`, `on` and `off` as true or false"),
        ("image", 3, "write it in quotes"),
        ("nodes", True, "write a number; YAML reads `yes`, `no`, `on` and `off` as true or false"),
        ("resources.cpu", True, "for example `2`, `500m`, `16Gi`"),
        ("volumes", True, None),
    ],
)
def test_a_value_of_the_wrong_kind_gets_a_hint(field, value, hint):
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec(field, value)))
    assert [problem.hint for problem in caught.value.problems] == [hint]


def test_a_name_has_one_spelling_for_fields_and_for_values():
    assert {snake_case(name) for name in ("A.b/c", "a/b.c", "a-b c", "aB.C")} == {"a_b_c"}
    assert suggest_field(("nvidia.com/gpu",), JobSpec).hint == "use `resources.gpus`"
    assert suggest_choice("torch.distributed.launch", ("launch", "torchrun")) == "launch"


def list_enumerations() -> list[Any]:
    """Return the choices of every field of a spec that has some."""
    cases = []
    sections: list[tuple[str, ...]] = [(), *((name,) for name in JobSpec.model_fields)]
    for path in sections:
        for name, info in getattr(find_model(JobSpec, path), "model_fields", {}).items():
            if choices := list_choices(info.annotation):
                cases.append(pytest.param(choices, id=".".join((*path, name))))
    return cases


@pytest.mark.parametrize("choices", list_enumerations())
def test_every_choice_is_found_in_other_spellings(choices):
    for choice in choices:
        for spelling in (choice.upper(), choice.lower(), choice.replace("-", "_"), f" {choice}"):
            assert suggest_choice(spelling, choices) == choice


def test_values_of_secrets_are_not_in_hints():
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec("env", ["TOKEN=hunter2"])))
    assert "hunter2" not in str(caught.value)


def test_unknown_field_of_a_value_in_a_mapping_names_the_fields():
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec("env", {"A": {"secrets": "a/b"}})))
    assert any("`env.A.secret`" in (problem.hint or "") for problem in caught.value.problems)
