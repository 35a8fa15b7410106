"""The differences of two specs, for people: without the secrets of either."""

from __future__ import annotations

import pytest

from kfjob.api.lifecycle.spec_change import list_changes
from kfjob.spec.job import JobSpec

PLAIN = "hunter2abc"


def make_spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "train", "image": "i:1", "command": ["true"], **fields})


@pytest.mark.parametrize("name", ["API_KEY", "secret", "key", "hub_token", "wandb_key", "PASSWORD"])
def test_secrets_of_both_specs_are_hidden_under_every_name_of_a_variable(name: str):
    old, new = make_spec(env={name: PLAIN}), make_spec(env={name: "other9xyz", "COLOUR": "blue"})
    text = "\n".join(list_changes(old, new))
    assert PLAIN not in text
    assert "other9xyz" not in text
    assert f"env.{name}: " in text
    assert 'env.COLOUR: (not set) -> "blue"' in text


@pytest.mark.parametrize("place", ["overrides", "sidecar"])
def test_a_secret_of_a_named_variable_is_hidden(place: str):
    def build(value: str) -> JobSpec:
        env = [{"name": "API_KEY", "value": value}]
        if place == "sidecar":
            return make_spec(pod={"sidecars": [{"name": "s", "image": "i:1", "env": env}]})
        pod = {"containers": [{"name": "pytorch", "env": env}]}
        return make_spec(overrides={"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}})

    text = "\n".join(list_changes(build(PLAIN), build("other9xyz")))
    assert text
    assert PLAIN not in text
    assert "other9xyz" not in text


def test_a_recorded_secret_is_hidden_where_the_new_spec_repeats_it():
    old = make_spec(env={"API_KEY": PLAIN})
    text = "\n".join(list_changes(old, make_spec(command=["train", PLAIN], nodes=2)))
    assert PLAIN not in text
    assert "nodes: 1 -> 2" in text


def test_a_new_value_is_shown_without_the_fields_that_are_not_set():
    before = JobSpec(name="train", image="a:1", command=["true"])
    (change,) = list_changes(
        before, before.model_copy(update={"overrides": {"spec": {"a": 0, "b": None, "c": [], "d": False}}})
    )
    assert '{"a": 0}' in change
    assert '"b"' not in change


def test_of_long_values_the_part_that_differs_is_shown():
    script = "echo begin; " * 100
    before, after = (make_spec(command=["sh", "-c", f"{script} exit {code}; {script}"]) for code in (1, 2))
    (change,) = list_changes(before, after)
    old, new = change.removeprefix("command: ").split(" -> ")
    assert (old[0], old[-1]) == ("…", "…")
    assert "exit 1" in old
    assert "exit 2" in new
    assert len(change) < 500
