"""Pretrained weights, read from safetensors unit by unit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from kfjob.errors import KfjobError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FILES = (INDEX, "*.safetensors")
_OLDER = {"lm_head.weight": "embed_out.weight"}
"""Names in files that differ from those in the model: GPT-NeoX's head, which transformers 5 renames when it loads and saves."""


class Weights:
    """The tensors of a Hugging Face folder by name, each read when it is asked for."""

    def __init__(self, files: dict[str, Path]) -> None:
        """Know which file holds which tensor."""
        self._files = files
        self._filled: set[str] = set()

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """The weights in a folder, None where it has a configuration only.

        Raises:
            KfjobError: the folder has weights that are not safetensors, or not whole.
        """
        index, single = folder / INDEX, folder / SINGLE
        with _readable(folder):
            if index.exists():
                return cls({name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()})
            if single.exists():
                with safe_open(single, framework="pt") as tensors:
                    return cls(dict.fromkeys(tensors.keys(), single))
        if others := [path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".safetensors")]:
            raise KfjobError(f"cannot read the weights in `{folder}`", cause=f"`{others[0]}` is not model.safetensors")
        return None

    @torch.no_grad()
    def fill(self, unit: nn.Module, prefix: str) -> None:
        """Copy the weights of a unit whose name in the model is `prefix`; those of units filled before are left alone.

        Raises:
            KfjobError: a tensor is missing or has another shape.
        """
        for name, parameter in unit.named_parameters(prefix):
            if name in self._filled:
                continue
            kept = name if name in self._files else _OLDER.get(name, name)
            if kept not in self._files:
                hint = "some families' files have other names: save them with `save_pretrained(…, save_original_format=False)`"
                raise KfjobError(f"the pretrained weights have no `{name}`", location="model", hint=hint)
            with _readable(self._files[kept]), safe_open(self._files[kept], framework="pt") as tensors:
                found = tensors.get_tensor(kept)
            if found.shape != parameter.shape:
                shapes = f"{tuple(found.shape)}, the model's is {tuple(parameter.shape)}"
                raise KfjobError(f"the pretrained `{name}` has shape {shapes}")
            parameter.copy_(found)
            self._filled.add(name)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in our words what the files say."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise KfjobError(f"cannot read the weights in `{path}`", cause=str(error)) from error
