"""Pretrained weights, read from safetensors one unit after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kfjob.errors import KfjobError
from kfjob.parsing import parse_json_object
from kfjob.trainer.lora import base_name, is_adapter

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FILES = (INDEX, "*.safetensors")
_OLD_NAMES = {"lm_head.weight": "embed_out.weight"}
"""Names in files that differ from those in the model: transformers 5 renames GPT-NeoX's head when it loads and saves."""


class PretrainedWeights:
    """The tensors of a Hugging Face folder by name, read on demand."""

    def __init__(self, files: dict[str, Path]) -> None:
        """Store the file of each tensor."""
        self._files = files
        self._loaded: set[str] = set()

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        """Return the weights in a folder; None if it has only a configuration.

        Raises:
            KfjobError: the weights are not safetensors, or are incomplete.
        """
        index, single = folder / INDEX, folder / SINGLE
        with _wrap_errors(folder):
            if index.exists():
                files = parse_json_object(index.read_bytes())["weight_map"]
                return cls({name: _find_shard(folder, file) for name, file in files.items()})
            if single.is_file():
                with safe_open(single, framework="pt") as tensors:
                    return cls(dict.fromkeys(tensors.keys(), single))
        if other_files := [path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".safetensors")]:
            raise KfjobError(f"cannot read the weights in `{folder}`", cause=f"`{other_files[0]}` is not model.safetensors")
        return None

    def list_files(self) -> list[Path]:
        """Return the files with the tensors."""
        return sorted(set(self._files.values()))

    @torch.no_grad()
    def load_into(self, unit: nn.Module, prefix: str) -> None:
        """Load the weights of the unit with the name `prefix`, of a sharded parameter only this rank's shard.

        Parameters that were loaded before are skipped, and so are adapters.

        Raises:
            KfjobError: a tensor is missing or has another shape.
        """
        for name, parameter in unit.named_parameters(prefix):
            if name in self._loaded or is_adapter(name):
                continue
            stored_name = base_name(name)
            stored_name = stored_name if stored_name in self._files else _OLD_NAMES.get(stored_name, stored_name)
            if stored_name not in self._files:
                hint = (
                    "some model families use other names: save the model with `save_pretrained(…, save_original_format=False)`"
                )
                raise KfjobError(f"the pretrained weights have no `{name}`", location="model", hint=hint)
            with _wrap_errors(self._files[stored_name]), safe_open(self._files[stored_name], framework="pt") as tensors:
                stored = tensors.get_slice(stored_name)
                if tuple(stored.get_shape()) != parameter.shape:
                    shapes = f"{tuple(stored.get_shape())}, the model's is {tuple(parameter.shape)}"
                    raise KfjobError(f"the pretrained `{name}` has shape {shapes}")
                for target, part in _find_parts(parameter):
                    target.copy_(stored[part])
            self._loaded.add(name)


def _find_parts(parameter: nn.Parameter) -> Iterator[tuple[Tensor, tuple[slice, ...]]]:
    """Yield this rank's parts of a parameter, each with its place in the full tensor; a shard may be empty."""
    if not isinstance(parameter, DTensor):
        yield parameter, tuple(slice(0, size) for size in parameter.shape)
        return
    local = parameter.to_local()
    sharded: Any = parameter
    for chunk in sharded.__create_chunk_list__():  # as torch's distributed checkpoint finds them
        if local.numel():
            yield local, tuple(slice(begin, begin + size) for begin, size in zip(chunk.offsets, chunk.sizes, strict=True))


def _find_shard(folder: Path, name: str) -> Path:
    """Return the path of a file that the index names; anybody may have written the index."""
    path = folder / name
    if path.name != name or not path.is_file():
        raise ValueError(f"`{name}` is not the name of a file in the folder")
    return path


@contextmanager
def _wrap_errors(path: Path) -> Iterator[None]:
    """Turn read errors into KfjobErrors."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise KfjobError(f"cannot read the weights in `{path}`", cause=str(error)) from error
