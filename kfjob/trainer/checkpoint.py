"""Checkpoints: their tensors, and the checks of a load.

torch's distributed checkpoint (DCP) stores tensors by name, so a checkpoint of 4 ranks with fsdp loads on 2 ranks with ddp.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from kfjob.base.errors import KfjobError
from kfjob.trainer import metrics
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import DamagedError
from kfjob.trainer.metrics import log
from kfjob.trainer.model_settings import find_different_settings, read_settings
from kfjob.trainer.shapes import full_shape
from kfjob.trainer.storage import Checkpoint, Storage, open_storage, split_location
from kfjob.trainer.storage.base import not_shared


class NotFiniteError(KfjobError):
    """A checkpoint, or a model that would become one, holds NaN or infinite values."""


class CheckpointState(Protocol):
    """The tensors of a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors in a form that DCP writes; every rank calls it, and gradients are zero."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the values that DCP has loaded into the tensors of `state_dict`."""

    def full_weights(self) -> dict[str, torch.Tensor]:
        """Return the model's full tensors on the host on rank 0, nothing on the other ranks."""


class ModelState:
    """The model and the optimiser of torch's own strategies."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Read and restore these two."""
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return the trained tensors by parameter name, which is the same for every strategy."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        is_new = not self._optimizer.state
        model_state, optimizer_state = get_state_dict(self._model, self._optimizer)
        if is_new:  # torch has made the moments by a step with a learning rate of 0, and counted it
            for state in self._optimizer.state.values():
                state["step"].zero_()
        frozen = list_frozen(self._model)
        trained = {name: tensor for name, tensor in model_state.items() if name not in frozen}
        return {"model": trained, "optimizer": optimizer_state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state of the model and the optimiser; the optimiser keeps its own settings, which are those of the spec."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

        groups = self._optimizer.param_groups
        settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(strict=not list_frozen(self._model)),
        )
        for group, own in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(own)

    def full_weights(self) -> dict[str, torch.Tensor]:
        """Return the gathered tensors; those that share the memory of a parameter are copied, for the training goes on."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        weights: dict[str, Any] = get_model_state_dict(
            self._model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        shared = {_address(tensor) for tensor in _local_tensors(list(self._model.parameters()))}
        return {name: tensor.clone() if _address(tensor) in shared else tensor for name, tensor in weights.items()}


def list_checkpoints(storage: Storage, *, warn: bool = False, set_aside: bool = False) -> list[Checkpoint]:
    """Return the checkpoints with a valid manifest, newest first; their files are not checked.

    `warn` logs a warning about each damaged one, and `set_aside` renames it, so that no save replaces what can be repaired.

    Raises:
        KfjobError: a manifest cannot be read, or is of another version.
    """
    checkpoints, damaged = [], []
    for name in storage.list_names():
        try:
            checkpoints.append(Checkpoint(storage=storage, name=name, manifest=storage.read_manifest(name)))
        except DamagedError as error:
            log.log(logging.WARNING if warn else logging.DEBUG, "Checkpoint %s is damaged: %s", name, error.title)
            damaged.append(name)
    for name in damaged if set_aside else ():
        storage.set_aside(name, "damaged")
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.manifest.step, reverse=True)


def find_checkpoints(location: str, *, warn: bool = False) -> list[Checkpoint]:
    """Return the checkpoints in a folder as `list_checkpoints` does, or the one at this location.

    Raises:
        KfjobError: there is none, or a manifest cannot be read.
    """
    if checkpoints := list_checkpoints(open_storage(location), warn=warn):
        return checkpoints
    storage, name = split_location(location)
    return [Checkpoint(storage=storage, name=name, manifest=storage.read_manifest(name))]


def prepare_storage(storage: Storage, ranks: Ranks, *, check_lease: Callable[[], None] | None = None) -> None:
    """Prove that every rank can use the storage, and remove temporary files of killed runs and the outcome of the run before.

    Raises:
        LostLeaseError: another job took over meanwhile, and removed the files with which the ranks try the storage.
        KfjobError: a rank cannot write, read, rename or delete there, or the ranks do not share the location.
    """
    with ranks.fail_together():
        if ranks.is_rank_zero:
            storage.create()
    names = [f".probe-{ranks.broadcast(secrets.token_hex(4))}-{rank}" for rank in range(ranks.world_size)]
    with ranks.fail_together():
        storage.probe(names[ranks.rank])
    with ranks.fail_together():
        if ranks.is_rank_zero and (missing := set(names) - set(storage.list_files(".probe-"))):
            if check_lease:
                check_lease()
            raise not_shared(storage.location, min(missing))
    with ranks.fail_together():
        storage.remove_file(names[ranks.rank])
    with ranks.fail_together():
        if ranks.is_rank_zero:
            storage.prepare()
            storage.remove_file(metrics.OUTCOME_FILE)


def load_checkpoint(
    checkpoint: Checkpoint, model: nn.Module, state: CheckpointState, ranks: Ranks, *, trusted: bool = False
) -> None:
    """Load the checkpoint into `state`, which belongs to `model`; see `dcp_reader` for `trusted`.

    Raises:
        KfjobError: the checkpoint belongs to a model with other shapes, or holds more than data.
        NotFiniteError: a value in it is not finite.
    """
    from kfjob.trainer.dcp_reader import load_tensors

    _check_shapes(checkpoint, parameter_shapes(model))
    _check_settings(checkpoint, read_settings(model))
    tensors = state.state_dict()
    load_tensors(checkpoint, tensors, trusted=trusted)
    state.load_state_dict(tensors)
    if not is_finite(tensors, ranks):
        hint = "move it away, or set `resume` to an older checkpoint"
        raise NotFiniteError(f"checkpoint `{checkpoint.path}` holds values that are not finite", location="resume", hint=hint)


def is_finite(state: object, ranks: Ranks) -> bool:
    """Return whether every number in the tensors of all ranks is finite."""
    tensors = [tensor for tensor in _local_tensors(state) if tensor.is_floating_point() and tensor.numel()]
    largest = torch.nn.utils.get_total_norm(tensors, norm_type=math.inf)  # needs no memory, and NaN is larger than all numbers
    return ranks.all_reduce([not bool(largest.isfinite())]) == [0]


def _address(tensor: torch.Tensor) -> int:
    """Return where the memory of a tensor begins, also if it is a view."""
    return tensor.untyped_storage().data_ptr()


def _local_tensors(state: object) -> Iterator[torch.Tensor]:
    """Yield this rank's tensors in nested dictionaries and lists."""
    if isinstance(state, torch.Tensor):
        yield state.to_local() if isinstance(state, DTensor) else state
    elif isinstance(state, Mapping):
        for value in state.values():
            yield from _local_tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _local_tensors(value)


def parameter_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Return the name and full shape of each parameter, the same for every strategy."""
    return {name.removeprefix("module."): list(full_shape(parameter)) for name, parameter in model.named_parameters()}


def list_frozen(model: nn.Module) -> set[str]:
    """Return the names of the parameters that are not trained; tied ones have several."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {name.removeprefix("module.") for name, parameter in parameters if not parameter.requires_grad}


def _check_settings(checkpoint: Checkpoint, settings: dict[str, Any]) -> None:
    """Check that the model computes the same function; checkpoints of earlier versions do not tell."""
    stored = checkpoint.manifest.model_settings
    if different := find_different_settings(stored, settings, training=False):
        lines = [
            f"{name}: {json.dumps(stored[name])} in the checkpoint, {json.dumps(settings[name])} in the model"
            for name in different
        ]
        raise _of_another_model(checkpoint, "with other settings", lines)


def _check_shapes(checkpoint: Checkpoint, model_shapes: dict[str, list[int]]) -> None:
    stored = checkpoint.manifest.parameters
    if stored == model_shapes:
        return
    different = [name for name in {**stored, **model_shapes} if stored.get(name) != model_shapes.get(name)]
    lines = [
        f"{name}: {stored.get(name, 'absent')} in the checkpoint, {model_shapes.get(name, 'absent')} in the model"
        for name in different[:3]
    ]
    more = [f"and {len(different) - 3} more"] if len(different) > 3 else []
    raise _of_another_model(checkpoint, "of another shape", lines + more)


def _of_another_model(checkpoint: Checkpoint, difference: str, lines: list[str]) -> KfjobError:
    return KfjobError(
        f"{checkpoint.name} is of a model {difference}",
        location=checkpoint.path,
        cause="\n".join(lines),
        hint="use the model that wrote the checkpoint, or another checkpoint_dir",
    )
