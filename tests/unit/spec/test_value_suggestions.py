"""Values that a field does not take: their messages, and hints with a similar choice or the form that the field takes."""

from __future__ import annotations

from itertools import chain
from typing import Any, get_args, get_origin

import pytest
import yaml

from kfjob.base.errors import SpecError
from kfjob.source.spec_text import load_spec
from kfjob.spec.job import JobSpec
from kfjob.validation.model_fields import find_model, list_fields


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
    ("field", "value", "hint"),
    [
        ("launcher", "torch-run", "did you mean `torchrun`?"),
        ("restarts.policy", "on-failure", "did you mean `OnFailure`?"),
        ("image_pull_policy", "ifnotpresent", "did you mean `IfNotPresent`?"),
        ("train.precision", "bfloat16", "did you mean `bf16`?"),
        ("launcher", "xyzzy", None),
        ("restarts", "never", "write `restarts: {max: 0}` for no restarts"),
        ("restarts", False, "write `restarts: {max: 0}` for no restarts"),
        (
            "run",
            3,
            "write `run: {FIELD: VALUE}`; the fields are after_failure, backoff_limit, clean_pods, deadline, suspend, ttl",
        ),
        ("run.deadline", "10 minutes", "write seconds, or for example `90m` or `1d12h`"),
        ("resources.memory", "10GB", "for example `2`, `500m`, `16Gi`"),
        ("resources.cpu", True, "for example `2`, `500m`, `16Gi`"),
        ("name", True, "write it in quotes; YAML reads `yes`, `no`, `on` and `off` as true or false"),
        ("image", 3, "write it in quotes"),
        ("nodes", True, "write a number; YAML reads `yes`, `no`, `on` and `off` as true or false"),
        ("nodes", "two", None),
        ("volumes", True, None),
    ],
)
def test_wrong_value_gets_a_hint_if_its_form_or_a_choice_is_known(field, value, hint):
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec(field, value)))
    assert [problem.hint for problem in caught.value.problems] == [hint]


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


@pytest.mark.parametrize("field", [*list_number_fields(), "restarts.max", "train.betas.0"])
def test_a_truth_value_is_no_number(field):
    value = True
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


def test_values_of_secrets_are_not_in_hints():
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec("env", ["TOKEN=hunter2"])))
    assert "hunter2" not in str(caught.value)


def test_unknown_field_of_a_value_in_a_mapping_names_the_fields():
    with pytest.raises(SpecError) as caught:
        load_spec(yaml.safe_dump(make_spec("env", {"A": {"secrets": "a/b"}})))
    assert any("`env.A.secret`" in (problem.hint or "") for problem in caught.value.problems)
