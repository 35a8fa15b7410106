"""`kfjob-export CHECKPOINT FOLDER`, or `python -m kfjob.trainer.export …`: export a checkpoint's weights for other programs.

The result is a Hugging Face folder (sharded safetensors, config.json, the tokenizer) or one file of torch. A checkpoint of
adapters (`lora`) becomes a folder of PEFT (adapter_model.safetensors, adapter_config.json), or with `--merge` a model with the
adapters added to the weights of the base. One process runs, without ranks or a GPU, and holds the full weights in the host's
memory. `--upload NAME` also uploads the folder to the hub.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kfjob.base.errors import KfjobError, SpecError, explain_os_error
from kfjob.trainer.redact import redact, write_error, write_note
from kfjob.trainspec.train_spec import TrainSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, and only then import torch."""
    parser = argparse.ArgumentParser(prog="kfjob-export", description="Export the weights of a checkpoint for other programs.")
    parser.add_argument("checkpoint", help="folder or URL of a checkpoint, or a folder of checkpoints to take the newest from")
    parser.add_argument("folder", type=Path, help="new folder, or new file with --format torch")
    parser.add_argument("--format", choices=("hf", "torch"), default="hf", help="hf: a Hugging Face folder; torch: one file")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="dtype of the weights")
    parser.add_argument("--shard-size", default="5GB", help="size limit of a safetensors file")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer folder; default: the one of the training, if it exists here")
    parser.add_argument("--merge", action="store_true", help="add adapters (`lora`) to the base model, and export that")
    parser.add_argument(
        "--base", metavar="MODEL", help="folder or hub name of the base for --merge; default: the one trained with"
    )
    parser.add_argument("--upload", metavar="NAME", help="upload the folder to the hub as this model; a new model is private")
    parser.add_argument("--public", action="store_true", help="make a model that --upload creates public")
    parser.add_argument(
        "--trust-checkpoint",
        action="store_true",
        help="unpickle the checkpoint without restrictions, which can run code; checkpoints of kfjob never need it",
    )
    arguments = parser.parse_args(argv)
    if arguments.upload and arguments.format != "hf":
        parser.error("--upload needs --format hf")
    if arguments.base and not arguments.merge:
        parser.error("--base needs --merge")
    write_note(f"exporting {arguments.checkpoint}; loading torch takes a few seconds")
    try:
        summary = export(
            arguments.checkpoint,
            arguments.folder,
            file_format=arguments.format,
            dtype=arguments.dtype,
            shard_size=arguments.shard_size,
            tokenizer=arguments.tokenizer,
            trusted=arguments.trust_checkpoint,
            merge=arguments.merge,
            base=arguments.base,
        )
        if arguments.upload:
            summary += f"\n{upload(arguments.folder, arguments.upload, private=not arguments.public)}"
    except (KfjobError, OSError) as error:
        problem = explain_os_error(error) if isinstance(error, OSError) else error
        write_error(problem)
        return problem.exit_code
    sys.stdout.write(redact(summary) + "\n")
    return 0


def export(
    checkpoint: str,
    target: Path,
    *,
    file_format: str = "hf",
    dtype: str = "fp32",
    shard_size: str = "5GB",
    tokenizer: Path | None = None,
    trusted: bool = False,
    merge: bool = False,
    base: str | None = None,
) -> str:
    """Write the weights to `target`, and return a summary.

    Raises:
        KfjobError: the checkpoint does not exist or is damaged, the target exists, or adapters do not belong to the base.
    """
    import torch

    from kfjob.trainer.data.tokenizer import copy_tokenizer
    from kfjob.trainer.lora import add_adapters, write_adapters
    from kfjob.trainer.model import build_meta_model

    if target.exists():
        raise KfjobError(f"`{target}` exists", hint="choose a new target")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    with ExitStack() as pins:
        source, spec = _open_checkpoint(checkpoint, pins)
        model = build_meta_model(spec)
        add_adapters(model, spec)
        state = _read_weights(source, model, trusted=trusted)
    if merge:
        model = _merge(source, spec, state, base)
        state = model.state_dict()
    state = {name: tensor.to(dtypes[dtype]) for name, tensor in state.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        staging = Path(folder) / target.name
        if file_format == "torch":
            try:
                torch.save(state, staging)
            except RuntimeError as error:  # torch's own error of a full disk
                raise KfjobError(f"cannot write `{target}`", cause=str(error)) from error
            staging.rename(target)
            return f"{len(state)} tensors of {source.name} in {target}"
        if spec.lora and not merge:
            write_adapters(build_meta_model(spec), spec, state, staging)
        else:
            model.load_state_dict(state, assign=True)
            model.tie_weights()
            model.config.dtype = dtypes[dtype]
            model.save_pretrained(staging, max_shard_size=shard_size)
        if tokenizer := tokenizer or find_tokenizer(spec):
            copy_tokenizer(tokenizer, staging)
        staging.rename(target)
    return f"{source.name} in {target}{'' if tokenizer else ', without a tokenizer: set --tokenizer to its folder'}"


def upload(folder: Path, name: str, *, private: bool = True) -> str:
    """Upload an exported folder to the hub of HF_ENDPOINT, and return a summary; an existing model gets a new commit.

    Raises:
        KfjobError: the upload failed; the folder stays.
    """
    from huggingface_hub import HfApi

    from kfjob.trainer.hub import first_line

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=name, folder_path=folder, commit_message=f"{folder.name}, exported by kfjob-export")
    except Exception as error:  # the client's exceptions differ between versions
        hint = f"set HF_TOKEN to a token with write access; `hf upload {name} {folder}` retries, the folder is complete"
        raise KfjobError(f"cannot upload to `{name}`", location="--upload", cause=first_line(error), hint=hint) from error
    return f"{name} is at {commit.repo_url}"


def _open_checkpoint(location: str, pins: ExitStack) -> tuple[Any, TrainSpec]:
    """Return the checkpoint at a location, or the newest one in it, and its spec; verified, and pinned by `pins`."""
    from kfjob.trainer.checkpoint import find_checkpoints
    from kfjob.trainer.manifest import NO_CHECKPOINT_HINT
    from kfjob.trainer.pins import pin

    if "://" not in location and not Path(location).exists():
        raise KfjobError(f"`{location}` does not exist", hint=NO_CHECKPOINT_HINT)
    checkpoint = find_checkpoints(location)[0]
    pins.enter_context(pin(checkpoint.storage, checkpoint.name))
    if problem := checkpoint.storage.find_damage(checkpoint.name, checkpoint.manifest):
        raise KfjobError(f"checkpoint `{checkpoint.path}` is damaged", cause=problem, hint="name another checkpoint")
    try:
        return checkpoint, TrainSpec.model_validate(checkpoint.manifest.spec)
    except SpecError as error:
        raise KfjobError(f"`{checkpoint.path}` was written by another version of kfjob", cause=str(error)) from error


def _merge(checkpoint: Any, spec: TrainSpec, adapters: dict[str, Any], base: str | None) -> Any:
    """Return the base model of a checkpoint, which may have moved to `base`, with the adapters added to its weights."""
    from kfjob.trainer.base_model import check_base, identify_base
    from kfjob.trainer.lora import merge_adapters, write_adapters
    from kfjob.trainer.model import build_base_model, build_meta_model

    if spec.lora is None:
        raise KfjobError(f"`{checkpoint.path}` has no adapters to merge", location="--merge", hint="remove `--merge`")
    if base:
        spec = spec.model_copy(update={"model": base, "model_revision": None})
    check_base(checkpoint, identify_base(spec))
    with TemporaryDirectory() as folder:
        write_adapters(build_meta_model(spec), spec, adapters, Path(folder))
        return merge_adapters(build_base_model(spec), Path(folder))


def _read_weights(checkpoint: Any, model: Any, *, trusted: bool) -> dict[str, Any]:
    """Return the model's full tensors, read from the shards of all ranks."""
    import torch
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    from kfjob.trainer.dcp_reader import load_tensors, read_metadata

    stored = read_metadata(checkpoint, trusted=trusted).state_dict_metadata
    tensors = {}
    for name, meta_tensor in model.state_dict().items():
        entry = stored.get(f"model.{name}")
        if isinstance(entry, TensorStorageMetadata):
            tensors[name] = torch.empty(meta_tensor.shape, dtype=entry.properties.dtype)
    if not tensors:
        raise KfjobError(f"`{checkpoint.path}` has no weights with the names of its model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a load without ranks is intended
        load_tensors(checkpoint, {"model": tensors}, trusted=trusted, distributed=False)
    return tensors


def find_tokenizer(spec: TrainSpec) -> Path | None:
    """Return the tokenizer folder of the training, if it exists on this machine."""
    folders = [spec.tokenizer, f"{spec.data}/tokenizer", spec.model if isinstance(spec.model, str) else None]
    paths = [Path(folder).expanduser() for folder in folders if folder]
    return next((path for path in paths if (path / "tokenizer.json").exists()), None)


if __name__ == "__main__":
    sys.exit(main())
