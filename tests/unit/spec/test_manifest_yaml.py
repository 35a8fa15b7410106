"""How manifests are read and written; tests/cluster/test_yaml.py compares both with kubectl's own reader."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kfjob.source.manifest_yaml import ManifestLoader, read_value
from kfjob.source.yaml_writer import is_ambiguous, write_yaml


def read(text: str) -> Any:
    loader = ManifestLoader(text)
    return read_value(loader.get_single_node())


SCALARS = {
    "0755": 493, "0x1F": 31, "0o17": 15, "0b11": 3, "1_000": 1000, "08": 8, "+1": 1, "1e3": 1000, "-0": 0, "1.0": 1,
    "2e-05": 2e-05, ".5": 0.5, "1.50": 1.5, "18446744073709551615": 2**64 - 1, "18446744073709551616": 18446744073709552000,
    "y": True, "N": False, "on": True, "OFF": False, "yes": True, "yES": "yES", "~": None, "": None, "NULL": None,
    "2026-01-01": "2026-01-01", "12:30:45": "12:30:45", "1e400": "1e400", "_1": "_1",
    ".5_0": 0.5, "-.5_0": -0.5, ".5__0": ".5__0", "._5": "._5", ".5_": ".5_", ".5_e1": ".5_e1", ".5e1_0": 5000000000,
    "=": "=", "<<": "<<",
    "'0755'": "0755", '"y"': "y", "!!str 0755": "0755", "!!int '5'": 5, "!custom 5": "5", "!!binary aGk=": "hi",
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_scalar_is_read_as_by_kubectl(text: str, value: Any):
    item = read(f"a: {text}")["a"]
    assert (item, type(item)) == (value, type(value))


def test_keys_become_the_texts_of_kubectl():
    keys = {"y": "true", "1_000": "1000", "0755": "493", "1.10": "1.1", "1e6": "1e+06", "'n'": "n", ".inf": ".inf"}
    assert list(read("\n".join(f"{key}: 1" for key in keys))) == list(keys.values())


def test_later_merge_or_key_wins():
    assert read("a: &m {x: 1, y: 2}\nb: {x: 5, <<: *m}\nc: {<<: [*m, {x: 3, z: 4}], 'y': 6}") == {
        "a": {"x": 1, "true": 2},
        "b": {"x": 1, "true": 2},
        "c": {"x": 1, "z": 4, "true": 2, "y": 6},
    }


REFUSED = ["a: .inf", "a: .nan", "~: 1", "[1]: 2", "{<<: 5}", "!!int x", "!!binary x", "18446744073709551615: 1"]


@pytest.mark.parametrize("text", REFUSED)
def test_value_that_kubectl_refuses_is_an_error(text: str):
    with pytest.raises(yaml.constructor.ConstructorError):
        read(text)


AMBIGUOUS = """
    y Y n on Off yes TRUE null ~ = << .inf -.INF .nan 2e-05 0o17 08 +.5 1e3 0x1F 0b1 1_000 1,000 12:30:45 0x1p3 1. -0 0e0 1__0
    0b-1 0x 0o 0o777777777777777777777777
    2001-01-01 2001-01-01T00:00:00Z
"""
PLAIN = "train.py --lr 8Gi 10.0.0.1 1.34.4 yes-man nodes registry/image:1 p4d.24xlarge \u00e9"


@pytest.mark.parametrize("text", ["", *AMBIGUOUS.split()])
def test_ambiguous_text_has_quotes(text: str):
    assert is_ambiguous(text)
    assert write_yaml([{"env": [text], text: 1}]) == f"env:\n- '{text}'\n'{text}': 1\n"


@pytest.mark.parametrize("text", PLAIN.split())
def test_plain_text_has_no_quotes(text: str):
    assert write_yaml([[text]]) == f"- {text}\n"


def test_written_text_has_no_aliases_and_no_control_characters():
    shared = ["a\x1b[31m\u2028"]
    assert write_yaml([{"a": shared, "b": shared}]) == 'a:\n- "a\\e[31m\\L"\nb:\n- "a\\e[31m\\L"\n'
