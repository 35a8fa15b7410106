"""Pretrained weights, read from safetensors unit by unit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

import torch
from torch import nn

from kfjob.errors import KfjobError


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
            KfjobError: the folder has weights that are not safetensors.
        """
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if index.exists():
            return cls({name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()})
        if single.exists():
            from safetensors import safe_open

            with safe_open(single, framework="pt") as tensors:
                return cls(dict.fromkeys(tensors.keys(), single))
        if others := [path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".safetensors")]:
            raise KfjobError(f"cannot read the weights `{others[0]}` in `{folder}`", hint="save the model as model.safetensors")
        return None

    @torch.no_grad()
    def fill(self, unit: nn.Module, prefix: str) -> None:
        """Copy the weights of a unit whose name in the model is `prefix`; those of units filled before are left alone.

        Raises:
            KfjobError: a tensor is missing or has another shape.
        """
        from safetensors import safe_open

        for name, parameter in unit.named_parameters(prefix):
            if name in self._filled:
                continue
            if name not in self._files:
                raise KfjobError(f"the pretrained weights have no `{name}`")
            with safe_open(self._files[name], framework="pt") as tensors:
                found = tensors.get_tensor(name)
            if found.shape != parameter.shape:
                shapes = f"{tuple(found.shape)}, the model's is {tuple(parameter.shape)}"
                raise KfjobError(f"the pretrained `{name}` has shape {shapes}")
            parameter.copy_(found)
            self._filled.add(name)
