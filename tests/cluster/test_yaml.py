"""YAML in and out, compared with the reader of kubectl (the Go module sigs.k8s.io/yaml)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import yaml

from kfjob.base.errors import SpecError
from kfjob.source.template.fill import parse
from kfjob.source.yaml_writer import write_yaml
from tests.cluster.facts import ROOT
from tests.golden.test_manifests import SPECS, compile_spec

REFUSED = "refused"
OBJECT = "apiVersion: v1\nkind: Thing\nmetadata: {name: a}\n"
AMBIGUOUS = """
    y Y n N yes on Off true TRUE null ~ = << .inf -.INF .NaN +.inf 2e-05 0o17 08 0755 +.5 1e3 1e400 0x1F 0b11 0b-1 1_000 1__0 _1
    0_7 1,000 12:30:45 1:2:3.5 2001-01-01 18446744073709551616 -9223372036854775809 0xFFFFFFFFFFFFFFFFF 1.5.3 10.0.0.1 8Gi .5e3
    -0 --- ... %YAML \u00e9 \ufeff
"""
WORDS = [*AMBIGUOUS.split(), "", "- a", "a: b", "a #b", "2001-1-1 1:2:3", " 1", "1 ", "1\n", "a\x85b", "\u2028"]
CHARACTERS = "aby01589._+-:eExXoOfF#~=<>|'\"\\ \t\n\r\x85\u2028\ufeff\x00\x1b\x7fé\U0001f600[]{},&*!%@`?$"
NUMERIC = "0123456789+-._eExXobBaFinfy"
BLOCK_SCALARS = (
    "|\n{}two\n{} three\n{}\n",
    "|-\n{}x\n\n",
    "|+\n{}x\n\n",
    ">\n{}fold\n{}me\n\n{}  more\n",
    ">-\n{}x\n",
    "multi\n{}line",
)
SCALARS = (
    *(
        "a",
        "'x y'",
        '"q\\tz\\u00e9"',
        "a # b",
        "a#b",
        "x: y",
        "'it''s'",
        "!!str 12",
        "!!int '5'",
        "!!float 7",
        "!!bool y",
        "@x",
        "-",
    ),
    *("!!binary aGk=", "!custom 5", "[1, y]", "{k: 0x1F}", "{y: n, 'no': off}", "{}", "*anchor", "&again 0x10", "a\tb", "?"),
)
KEYS = ["a", "b", "c", "y", "'on'", "1.5", "0x10", "k k", "01", '"q"', "1e3", "1234567.5", "1e-7", "1e999"]


def read_with_go(texts: Sequence[str]) -> list[Any]:
    """Return the JSON value of each document, or `REFUSED`."""
    command = [str(ROOT / "scripts" / "cluster"), "read-yaml"]
    lines = "\n".join(json.dumps(text) for text in texts)
    output = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    results = [json.loads(line) for line in output.strip().split("\n")]
    assert len(results) == len(texts)
    return [REFUSED if "error" in result else result["json"] for result in results]


def read(text: str) -> Any:
    try:
        return dict(*parse(text).objects)
    except SpecError:
        return REFUSED


def make_text(random: Random) -> str:
    """Return a text such as may stand in a manifest, or a random one."""
    if random.random() < 0.3:
        return random.choice(WORDS)
    alphabet = CHARACTERS if random.random() < 0.5 else NUMERIC
    return "".join(random.choice(alphabet) for _ in range(random.randint(0, random.choice((3, 6, 30, 200)))))


def make_value(random: Random, depth: int = 3) -> Any:
    """Return JSON data of mappings, lists, texts and numbers."""
    kind = random.random()
    if depth and kind < 0.3:
        return {make_text(random): make_value(random, depth - 1) for _ in range(3)}
    if depth and kind < 0.5:
        return [make_value(random, depth - 1) for _ in range(3)]
    if random.random() < 0.6:
        return make_text(random)
    return random.choice(
        [random.randint(-(10**20), 10**20), random.random() * 10 ** random.randint(-300, 300), True, None, [], {}]
    )


def as_go_prints(value: Any) -> Any:
    """Return the value as Go writes it in JSON: whole floats below 1e21 without a fraction, larger integers as floats."""
    if isinstance(value, dict):
        return {key: as_go_prints(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_go_prints(item) for item in value]
    if type(value) is int and not -(2**63) <= value < 2**64:
        value = float(value)
    return int(Decimal(repr(value))) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value


def test_every_reader_reads_the_written_text():
    random = Random(1)  # noqa: S311 - test data
    values = [{make_text(random): make_value(random), "a": [make_text(random), {make_text(random): 1}]} for _ in range(1500)]
    texts = [write_yaml([value]) for value in values]
    for value, text, go in zip(values, texts, read_with_go(texts), strict=True):
        assert go == as_go_prints(value), text
        assert yaml.safe_load(text) == value, text
        assert yaml.load(text, yaml.CSafeLoader) == value, text


def test_goldens_are_the_same_for_kubectl():
    manifests = [manifest for spec in SPECS for manifest in compile_spec(spec)]
    folder = ROOT / "tests" / "golden" / "manifests"
    texts = [text for spec in SPECS for text in (folder / spec.name).read_text(encoding="utf-8").split("\n---\n")]
    assert read_with_go(texts) == manifests


def test_scalars_and_keys_are_read_as_by_kubectl():
    random = Random(2)  # noqa: S311 - test data
    texts = [f"{OBJECT}{key}: 1\n" for key in ("null", "18446744073709551615", "[1]", "y", "1_0")]
    for _ in range(4000):
        word = "".join(random.choice(NUMERIC) for _ in range(random.randint(1, 8)))
        word = random.choice([word, random.choice(WORDS), f"{random.uniform(-10, 10)}e{random.randint(-400, 400)}"])
        if not set(word) & set("\n\x85\u2028\ufeff#%") and word.strip() == word and "- " not in word and ": " not in word:
            tag = random.choice(["", "", "!!int ", "!!float ", "!!str ", "!!bool ", "!!null ", "!!timestamp ", "!x "])
            texts.append(OBJECT + random.choice([f"a: {tag}{word}\n", f"{word}: 1\n", f"a: ['{word}', {word} , \"{word}\"]\n"]))
    assert_same_as_go(texts)


def make_node(random: Random, indent: int, depth: int = 3) -> str:
    """Return the text of a YAML value in block or flow style, after its key or dash."""
    space, kind = " " * indent, random.random()
    if not depth or kind < 0.4:
        text = random.choice([*SCALARS, *BLOCK_SCALARS, *(word for word in WORDS if word.isalnum())])
        return " " + text.replace("{}", text and space) if text in BLOCK_SCALARS else f" {text}"
    if kind < 0.6:
        return "".join(f"\n{space}-{make_node(random, indent + 2, depth - 1)}" for _ in range(random.randint(1, 3)))
    entries = [f"{key}:{make_node(random, indent + 2, depth - 1)}" for key in random.sample(KEYS, random.randint(1, 3))]
    if random.random() < 0.3:
        merge = random.choice(["*map", "{m: 1}", "[*map, {b: y}]", "5", "[5]", "*anchor"])
        entries.insert(random.randint(0, len(entries)), f"<<: {merge}")
    return "".join(f"\n{space}{entry}" for entry in entries)


def test_documents_are_read_as_by_kubectl():
    random = Random(3)  # noqa: S311 - test data
    heads = ["", "# comment\n", "---\n", "%YAML 1.1\n---\n"]
    anchors = "anchor: &anchor 0o17\nmap: &map {a: 0755, m: n}\n"
    assert_same_as_go([f"{random.choice(heads)}{OBJECT}{anchors}z:{make_node(random, 2)}\n" for _ in range(1500)])


def assert_same_as_go(texts: Sequence[str]) -> None:
    """Check that kfjob reads each text as kubectl does; it may refuse a redefined anchor and a key that is set twice."""
    accepted = 0
    for text, go in zip(texts, read_with_go(texts), strict=True):
        ours = read(text)
        if ours == REFUSED and ("&again" in text or "01:" in text):
            continue
        assert json.dumps(ours, sort_keys=True) == json.dumps(go, sort_keys=True), text
        accepted += go != REFUSED
    assert accepted > len(texts) / 3
