"""Write YAML that every reader reads alike: text that some reader takes for another type has quotes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from kfjob.base.common_types import JsonObject
from kfjob.base.printable import encode_json, is_clean
from kfjob.source.manifest_yaml import resolve_plain

_LIKE_ANOTHER_TYPE = re.compile(
    r"""
    y | n | yes | no | on | off | true | false | null | ~ | | = | <<
    | [-+]?\.(?:inf|nan)
    | [-+]?0x[0-9a-f_.]*(?:p[-+]?[0-9]+)?
    | [-+]?0o[0-7_]*
    | [-+]?0b[-+]?[01_]*
    | [-+]?(?=[.,_:]*[0-9])[0-9_,:]*(?:\.[0-9_,]*)?(?:e[-+]?[0-9_]+)?
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Everything that YAML 1.1 (yaml.org/type) or 1.2 (section 10.3) calls a boolean, null, number, date, `=` or merge, in any
case, and numbers as other readers extend them."""
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Writer(_Dumper):  # type: ignore[misc]
    """A dumper without aliases, with quotes around ambiguous text, and with lines as a block."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Return True: a value that stands twice is written twice."""
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Return the node of a text, also of a key."""
        style = "|" if "\n" in text.rstrip("\n") else "'" if is_ambiguous(text) else None
        node: yaml.Node = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Writer.add_representer(str, _Writer.represent_text)


def is_ambiguous(text: str) -> bool:
    """Return whether a reader of YAML could take the text without quotes for something else than text."""
    return _LIKE_ANOTHER_TYPE.fullmatch(text) is not None or not isinstance(resolve_plain(text), str)


def write_yaml(documents: Iterable[Any], *, width: int = 120, compact: bool = False) -> str:
    """Return JSON data as YAML documents; characters that act on a terminal are escaped.

    With `compact`, a mapping or list of scalars is on one line, as `{gpus: 8}`.
    """
    documents = list(documents)
    options: JsonObject = {"sort_keys": False, "width": width, "default_flow_style": None if compact else False}
    text = str(yaml.dump_all(documents, Dumper=_Writer, allow_unicode=True, **options))
    return text if is_clean(text) else str(yaml.dump_all(documents, Dumper=_Writer, allow_unicode=False, **options))


def format_manifests(manifests: Sequence[JsonObject], form: str) -> str:
    """Return manifests as YAML documents, or as one List in JSON (`form` is `json`); `kubectl apply -f -` takes both."""
    if form == "json":
        return encode_json({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, indent=2) + "\n"
    return write_yaml(manifests)
