"""Pretrained weights, read from safetensors one unit after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json_object, read_document
from kfjob.trainer.lora import base_name, is_adapter

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FILES = (INDEX, "*.safetensors")


class PretrainedWeights:
    """The tensors of a Hugging Face folder by name, read on demand."""

    def __init__(self, files: dict[str, Path], model: Any = None) -> None:
        """Store the file of each tensor, and where the parameters of the transformers model are that have other names there."""
        self._files = files
        self._sources = _find_sources(model, files) if model is not None else {}
        self._loaded: set[str] = set()

    @classmethod
    def open(cls, folder: Path, model: Any = None) -> Self | None:
        """Return the weights in a folder, for `model` if they are to be loaded; None if it has only a configuration.

        Raises:
            KfjobError: the weights are not safetensors, or are incomplete.
        """
        index, single = folder / INDEX, folder / SINGLE
        with _wrap_errors(folder):
            if index.exists():
                files = parse_json_object(read_document(index))["weight_map"]
                return cls({name: _find_shard(folder, file) for name, file in files.items()}, model)
            if single.is_file():
                with safe_open(single, framework="pt") as tensors:
                    return cls(dict.fromkeys(tensors.keys(), single), model)
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
        with ExitStack() as stack:
            files: dict[Path, Any] = {}

            def find(name: str) -> Any:
                path = self._files[name]
                if path not in files:
                    files[path] = stack.enter_context(safe_open(path, framework="pt"))
                return files[path].get_slice(name)

            for name, parameter in unit.named_parameters(prefix):
                if name in self._loaded or is_adapter(name):
                    continue
                source = self._sources.get(base_name(name), _Source(((base_name(name),),)))
                if missing := [stored for part in source.names for stored in part if stored not in self._files]:
                    hint = (
                        "some model families use other names: "
                        "save the model with `save_pretrained(…, save_original_format=False)`"
                    )
                    raise KfjobError(f"the pretrained weights have no `{missing[0]}`", location="model", hint=hint)
                with _wrap_errors(self._files[source.names[0][0]]):
                    if (shape := source.read_shape(find)) != parameter.shape:
                        raise KfjobError(f"the pretrained `{name}` has shape {shape}, the model's is {tuple(parameter.shape)}")
                    for target, place in _find_parts(parameter):
                        target.copy_(source.read(find, place))
                self._loaded.add(name)


@dataclass(frozen=True)
class _Source:
    """Where the numbers of a parameter are: in one tensor, or in the matrices of experts, which transformers fuses."""

    names: tuple[tuple[str, ...], ...]
    """The tensors of each expert, whose rows follow each other; one of one tensor if the parameter is not fused."""
    is_fused: bool = False

    def read_shape(self, find: Callable[[str], Any]) -> tuple[int, ...]:
        """Return the shape of the parameter; `find` returns the slice of a tensor."""
        if not self.is_fused:
            return tuple(find(self.names[0][0]).get_shape())
        shapes = {tuple(tuple(find(name).get_shape()) for name in expert) for expert in self.names}
        (expert,) = shapes  # all experts have the same shapes
        return len(self.names), sum(rows for rows, _ in expert), expert[0][1]

    def read(self, find: Callable[[str], Any], place: tuple[slice, ...]) -> Tensor:
        """Return a part of the parameter."""
        if not self.is_fused:
            part: Tensor = find(self.names[0][0])[place]
            return part
        experts, rows, columns = place
        return torch.stack([self._read_rows(find, expert, rows, columns) for expert in self.names[experts]])

    def _read_rows(self, find: Callable[[str], Any], names: tuple[str, ...], rows: slice, columns: slice) -> Tensor:
        parts, offset = [], 0
        for matrix in map(find, names):
            size = matrix.get_shape()[0]
            begin, end = (min(size, max(0, row - offset)) for row in (rows.start, rows.stop))
            parts += [matrix[begin:end, columns]] if begin < end else []
            offset += size
        return torch.cat(parts)


def _find_sources(model: Any, names: Iterable[str]) -> dict[str, _Source]:
    """Return where the parameters are that have another name in files, by transformers' own table for the model's family.

    Of the conversions in it only the one of experts is known here; a parameter with another one is missing.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, rename_source_key

    transforms: list[Any] = get_model_conversion_mapping(model)
    converters = [transform for transform in transforms if isinstance(transform, WeightConverter)]
    renamings = [transform for transform in transforms if not isinstance(transform, WeightConverter)]
    fused: dict[str, dict[str, list[str]]] = {}
    sources: dict[str, _Source] = {}
    for name in sorted(names, key=_sort_by_number):
        target, pattern = rename_source_key(name, renamings, converters)
        converter = next((converter for converter in converters if pattern in converter.source_patterns), None)
        if converter is None and target != name:
            sources[target] = _Source(((name,),))
        elif converter and pattern and _fuses_experts(converter):
            fused.setdefault(target, {part: [] for part in converter.source_patterns})[pattern].append(name)
    for target, parts in fused.items():
        sources[target] = _Source(tuple(zip(*parts.values(), strict=True)), is_fused=True)
    return sources


def _fuses_experts(converter: Any) -> bool:
    """Return whether the experts' matrices are stacked, and the rows of their parts put together."""
    operations = [(type(operation).__name__, operation.dim) for operation in converter.operations if hasattr(operation, "dim")]
    merged = [("MergeModulelist", 0), ("Concatenate", 1)]
    return len(operations) == len(converter.operations) and operations == merged[: len(converter.operations)]


def _sort_by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


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
