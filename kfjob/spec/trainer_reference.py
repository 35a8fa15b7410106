"""docs/reference/trainer-arguments.md, made from TrainSpec and the table of aliases.

python -m kfjob.spec.trainer_reference > docs/reference/trainer-arguments.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from kfjob.spec.reference import format_row
from kfjob.spec.script_arguments import SCRIPT_ARGUMENTS
from kfjob.spec.train import TrainSpec

_HEAD = """\
# Arguments of the trainer

Each one is a field of the `train:` section of a spec (`max_steps: 500`) and an argument of the trainer's command line
(`--max-steps=500`; `--max_steps 500` means the same). Arguments of two published scripts are understood in both places too: see
[below](#names-of-other-scripts). What is unknown is refused.

This page is made from the code by `python -m kfjob.spec.trainer_reference`.
"""
_NAMES = """\
## Names of other scripts

*fabric* is a fine-tuning of Llama 3 with FSDP through Lightning Fabric, *eks* the FSDP sample for Llama 2 on Amazon EKS. A
model that is described by sizes, as in *eks*, has the sizes of the sample's own default where it names none. What is accepted
changes nothing, and the trainer says so.
"""


def format_page() -> str:
    """The whole page."""
    return (
        "\n".join([_HEAD, *_table(("argument", "default", "meaning"), _fields()), "", _NAMES, *_table(_COLUMNS, _aliases())])
        + "\n"
    )


_COLUMNS = ("argument", "of", "here", "meaning")


def _fields() -> Iterator[tuple[str, ...]]:
    for name, field in TrainSpec.model_fields.items():
        default: Any = field.default
        shown = "required" if default is PydanticUndefined else "unset" if default is None else f"`{_json(default)}`"
        yield f"`{name}`", shown, str(field.description)


def _aliases() -> Iterator[tuple[str, ...]]:
    for alias in SCRIPT_ARGUMENTS.values():
        yield f"`{alias.name}`", ", ".join(alias.scripts), alias.here, alias.meaning


def _json(value: Any) -> str:
    return json.dumps(value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value)


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    for cells in (columns, ("---",) * len(columns), *rows):
        yield format_row(cells)


if __name__ == "__main__":
    sys.stdout.write(format_page())
