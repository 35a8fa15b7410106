"""The page of the trainer's arguments, from TrainSpec and the table of script arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from docs.generate.spec import format_row
from kfjob.trainspec.model_shapes import PRESETS, count_parameters
from kfjob.trainspec.script_arguments import SCRIPT_ARGUMENTS
from kfjob.trainspec.train_fields import LoraSpec
from kfjob.trainspec.train_spec import TrainSpec

_HEAD = """\
# Arguments of the trainer

Each argument is a field of the `train:` section of a spec (`max_steps: 500`) and an argument of the trainer's command line
(`--max-steps=500` or `--max_steps 500`). Both also accept the arguments of two published scripts, see
[below](#names-of-other-scripts). An unknown argument is an error.
"""
_LORA = """\
## Fields of lora

On a command line, `lora` is JSON: `--lora='{"r": 8, "target_modules": ["q_proj", "v_proj"]}'`. The names are those of PEFT's
LoraConfig.
"""
_PRESETS = """\
## Presets

Shapes of models, with random weights; the tiny and micro ones are for trials. `kfjob estimate` prints their memory.
"""
_SCRIPTS = """\
## Names of other scripts

*fabric* is a fine-tuning of Llama 3 with FSDP through Lightning Fabric, *eks* is the FSDP sample for Llama 2 on Amazon EKS.
*eks* describes a model by its sizes; a size that you omit is the default of the sample. An *accepted* argument has no effect,
and the trainer prints a warning. A *rejected* argument is an error, a *checked* one
only if it differs from the job.
"""
_COLUMNS = ("argument", "script", "result", "meaning")


def format_page() -> str:
    """Return the page."""
    fields = _format_table(("argument", "default", "meaning"), _list_fields(TrainSpec))
    lora = _format_table(("field", "default", "meaning"), _list_fields(LoraSpec))
    presets = _format_table(("preset", "architecture", "parameters"), _list_presets())
    scripts = _format_table(_COLUMNS, _list_script_arguments())
    return "\n".join([_HEAD, *fields, "", _LORA, *lora, "", _PRESETS, *presets, "", _SCRIPTS, *scripts]) + "\n"


def _list_fields(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        default: Any = field.default
        shown = "required" if default is PydanticUndefined else "unset" if default is None else f"`{_format_json(default)}`"
        yield f"`{name}`", shown, str(field.description)


def _list_presets() -> Iterator[tuple[str, ...]]:
    for name, shape in PRESETS.items():
        yield f"`{name}`", shape.architecture, f"{count_parameters(shape):,}"


def _list_script_arguments() -> Iterator[tuple[str, ...]]:
    for argument in SCRIPT_ARGUMENTS.values():
        yield f"`{argument.name}`", ", ".join(argument.scripts), argument.result, argument.meaning


def _format_json(value: Any) -> str:
    return json.dumps(value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value)


def _format_table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    for cells in (columns, ("---",) * len(columns), *rows):
        yield format_row(cells)
