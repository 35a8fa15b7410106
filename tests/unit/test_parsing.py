"""Every parser of nested text is called in one guarded place, and everything that it refuses is one `ParseError`."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from msgspec import Struct

import kfjob
from kfjob.base.parsing import (
    MAX_DEPTH,
    ParseError,
    ShapeError,
    decode_json,
    parse_json,
    parse_json_object,
    parse_toml,
    read_document,
)

ROOT = Path(kfjob.__file__).parent
PARSERS = {
    "json": {"load", "loads", "decode", "Decoder", "JSONDecoder", "raw_decode"},
    "msgspec": {"decode", "Decoder"},
    "tomllib": {"load", "loads"},
    "pickle": {"load", "loads", "Unpickler", "_Unpickler"},
    "marshal": {"load", "loads"},
    "shelve": {"open"},
    "plistlib": {"load", "loads"},
    "torch": {"load"},
    "yaml": {
        "load", "load_all", "safe_load", "safe_load_all", "full_load", "full_load_all", "unsafe_load", "compose", "compose_all",
        "parse", "scan", "Loader", "SafeLoader", "CSafeLoader",
    },
    "ast": {"literal_eval"},
    "pydantic_core": {"from_json"},
    "safetensors": {"safe_open"},
    "ElementTree": {"parse", "fromstring", "XML"},
}  # fmt: skip
"""Functions that parse nested text, by their module."""
METHODS = {"model_validate_json", "validate_json"}
"""Methods that parse nested text."""
GUARDED = {
    ("base/parsing.py", "json.loads"): "the guard itself",
    ("base/parsing.py", "json.decode"): "the guard itself",
    ("base/parsing.py", "tomllib.loads"): "the guard itself",
    ("source/yaml_loader.py", "yaml.parse"): "the guard of YAML: libyaml's events need no recursion",
    ("source/yaml_loader.py", "yaml.SafeLoader"): "the class; its callers are listed here",
    ("source/yaml_text.py", "yaml_loader.Loader"): "it reads no text; it tells the types of scalars",
    (
        "source/manifest_yaml.py",
        "yaml_loader.Loader",
    ): "the base class of the loader that `compose_documents` calls after `check_depth`",
    ("source/pin.py", "yaml_loader.Loader"): "`parse_yaml` has parsed the same text",
    ("source/pin.py", "yaml.compose"): "`parse_yaml` has parsed the same text",
    ("validation/spec_model.py", "model_validate_json"): "pydantic's own parser has a limit of depth",
    ("kinds/pytorchjob/importer/import_job.py", "model_validate_json"): "`SpecModel` turns every error into a SpecError",
    ("api/lifecycle/recorded_job.py", "model_validate_json"): "`SpecModel` turns every error into a SpecError",
    ("api/logs/merge.py", "pickle.load"): "a file of this process in a private folder",
    ("trainer/collectives.py", "json.loads"): "facts of the program's own ranks; it must run without kfjob",
    ("trainer/dcp_reader.py", "pickle.Unpickler"): "any exception is a KfjobError; `test_hostile_checkpoint.py`",
    ("trainer/dcp_reader.py", "torch.load"): "any exception is a KfjobError; `test_hostile_checkpoint.py`",
    ("trainer/lease.py", "validate_json"): "pydantic's own parser has a limit of depth",
    ("trainer/metadata_unpickler.py", "pickle._Unpickler"): "the restricted unpickler; `dcp_reader.py` calls it",
    ("trainer/model_settings.py", "json.loads"): "the text is this process's own",
    ("trainer/weights.py", "safetensors.safe_open"): "`_wrap_errors`; the header is parsed in Rust within a limit of its size",
}
"""The calls that are safe without `kfjob.base.parsing`, and why."""


def find_parsers(source: str) -> set[str]:
    """Return the calls of parsers in a module, such as `json.loads`, also under other names."""
    tree = ast.parse(source)
    modules, functions = dict[str, str](), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name.partition(".")[0]: alias.name.rpartition(".")[2] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            last = (node.module or "").rpartition(".")[2]
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
            functions |= {alias.asname or alias.name: f"{last}.{alias.name}" for alias in node.names}
    return {name for node in ast.walk(tree) if (name := _name_parser(node, modules, functions))}


def _name_parser(node: ast.AST, modules: dict[str, str], functions: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        module = modules.get(owner, owner)
        return f"{module}.{node.attr}" if node.attr in PARSERS.get(module, ()) else node.attr if node.attr in METHODS else ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in functions:
        module, _, name = functions[node.id].rpartition(".")
        is_parser = name in PARSERS.get(module, ()) or (module, name) == ("yaml_loader", "Loader")
        return functions[node.id] if is_parser else ""
    return ""


def test_every_parser_is_guarded():
    calls = {(str(file.relative_to(ROOT)), name) for file in ROOT.rglob("*.py") for name in find_parsers(file.read_text())}
    assert calls - GUARDED.keys() == set(), "parse with `kfjob.base.parsing`"
    assert GUARDED.keys() - calls == set(), "these calls are gone"


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.loads(x)",
        "import json as j\nf = j.load",
        "from json import loads\nloads(x)",
        "from json import loads as parse\nmap(parse, x)",
        "import msgspec\nmsgspec.json.decode(x)",
        "from msgspec import json\njson.decode(x)",
        "import pickle\nclass A(pickle.Unpickler): pass",
        "def f():\n    import tomllib\n    return tomllib.load(x)",
        "Model.model_validate_json(x)",
        "from kfjob.source.yaml_loader import Loader\nLoader(x)",
        "import yaml\nyaml.safe_load_all(x)",
    ],
)
def test_the_test_notices_a_parser(source: str):
    assert find_parsers(source)


class Shape(Struct):
    a: int


DEEP = ["[" * 100_000, '{"a":' * 100_000, "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), '{"a":' * 300 + "1" + "}" * 300]
BROKEN = ["", "nope", "{", "1" * 5000, b"\xff\xfe", b'"\xed\xa0\x80"', r'"\ud800"', r'{"\uDfff": 1}', "\0", "[1,]", '{"a": 1}x']


@pytest.mark.parametrize("text", [*DEEP, *BROKEN], ids=range(len(DEEP) + len(BROKEN)))
def test_text_that_is_not_json_is_one_short_error(text: str | bytes):
    for parse in (parse_json, parse_json_object, lambda text: decode_json(text, list[Shape])):
        with pytest.raises(ParseError) as caught:
            parse(text)
        assert len(str(caught.value)) < 300


def test_text_of_another_shape_is_a_shape_error():
    with pytest.raises(ShapeError):
        decode_json('{"a": "x"}', Shape)
    for text in ("[]", "null", "5"):
        with pytest.raises(ShapeError):
            parse_json_object(text)


def test_pair_of_surrogates_is_one_character():
    assert parse_json(r'"\ud83d\ude00"') == "\N{GRINNING FACE}"


def test_depth_counts_levels_and_not_brackets():
    flat = "[" + ",".join(["[]"] * 10_000) + "]"
    assert len(parse_json(flat)) == 10_000
    assert parse_json('"' + "[" * 10_000 + '"') == "[" * 10_000
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 10_000, "a = " + "[" * 300 + "]" * 300, "a" + ".a" * 10_000 + " = 1", "a = ", b"\xff", "a = 1\na = 2"],
)
def test_text_that_is_not_toml_is_one_short_error(text: str | bytes):
    with pytest.raises(ParseError) as caught:
        parse_toml(text)
    assert len(str(caught.value)) < 300


def test_document_is_a_regular_file_of_limited_size(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * 11)
    for name in ("fifo", "large", "/dev/zero", "."):
        with pytest.raises(ParseError):
            read_document(tmp_path / name, max_bytes=10)
    with pytest.raises(OSError, match="missing"):
        read_document(tmp_path / "missing")
    assert read_document(tmp_path / "large", max_bytes=11) == b"x" * 11
