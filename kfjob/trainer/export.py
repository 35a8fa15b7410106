"""`kfjob-export CHECKPOINT FOLDER`, or `python -m kfjob.trainer.export …`: the weights of a checkpoint for other programs.

As a Hugging Face folder (safetensors in shards, config.json, the tokenizer), or as one file of torch. One process, without
ranks or a GPU; the weights stand whole in the host's memory. `--upload NAME` puts the folder on the hub besides.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kfjob.errors import KfjobError, SpecError
from kfjob.spec.train import TrainSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments, and only then import torch."""
    parser = argparse.ArgumentParser(prog="kfjob-export", description="Write the weights of a checkpoint for other programs.")
    parser.add_argument("checkpoint", help="a checkpoint's folder or URL, or the folder that holds them: then the newest")
    parser.add_argument("folder", type=Path, help="a new folder, or with --format torch a new file")
    parser.add_argument("--format", choices=("hf", "torch"), default="hf", help="Hugging Face's files, or one file of torch")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="of the numbers")
    parser.add_argument("--shard-size", default="5GB", help="largest safetensors file")
    parser.add_argument("--tokenizer", type=Path, help="a folder; unset, the one that the training used, where it is here")
    parser.add_argument("--upload", metavar="NAME", help="put the folder on the hub as this model, private if it is new")
    parser.add_argument("--public", action="store_true", help="with --upload: not private")
    given = parser.parse_args(argv)
    if given.upload and given.format != "hf":
        parser.error("--upload is for --format hf")
    try:
        said = export(
            given.checkpoint,
            given.folder,
            form=given.format,
            dtype=given.dtype,
            shard_size=given.shard_size,
            tokenizer=given.tokenizer,
        )
        if given.upload:
            said += f"\n{upload(given.folder, given.upload, private=not given.public)}"
    except KfjobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(said + "\n")
    return 0


def export(
    checkpoint: str,
    target: Path,
    *,
    form: str = "hf",
    dtype: str = "fp32",
    shard_size: str = "5GB",
    tokenizer: Path | None = None,
) -> str:
    """Write the weights, and say what was written.

    Raises:
        KfjobError: there is no such checkpoint, it is damaged, or the target is there already.
    """
    import torch

    from kfjob.trainer.model import meta_model

    if target.exists():
        raise KfjobError(f"`{target}` is there already", hint="name a new one")
    found, spec = _open(checkpoint)
    model = meta_model(spec)
    types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    state = {name: tensor.to(types[dtype]) for name, tensor in _weights(found, model).items()}
    staged = target.with_name(f".{target.name}.partial")
    if form == "torch":
        torch.save(state, staged)
        staged.rename(target)
        return f"{len(state)} tensors of {found.name} in {target}"
    shutil.rmtree(staged, ignore_errors=True)
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.config.dtype = types[dtype]
    model.save_pretrained(staged, max_shard_size=shard_size)
    copied = _copy_tokenizer(tokenizer or _tokenizer_of(spec), staged)
    staged.rename(target)
    return f"{found.name} in {target}{'' if copied else ', without a tokenizer: --tokenizer names its folder'}"


def upload(folder: Path, name: str, *, private: bool = True) -> str:
    """Put an exported folder on the hub that HF_ENDPOINT names, and say where it is; a model that is there gets a new commit.

    Raises:
        KfjobError: the hub does not take it; the folder stays.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        api.create_repo(name, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=name, folder_path=folder, commit_message=f"{folder.name}, exported by kfjob-export")
    except Exception as error:  # the client's own differ from one version to the next
        hint = f"a token that may write, in HF_TOKEN; `{folder}` is complete, and `hf upload {name} {folder}` tries again"
        raise KfjobError(f"cannot upload to `{name}`", location="--upload", cause=str(error), hint=hint) from error
    return f"{name} is at {done.repo_url}"


def _open(place: str) -> tuple[Any, TrainSpec]:
    """The checkpoint at a place, or the newest in it, verified."""
    from kfjob.trainer.checkpoint import Checkpoint, complete
    from kfjob.trainer.storage import split, storage_of

    within = complete(storage_of(place))
    if within:
        found = within[0]
    else:
        storage, name = split(place)
        found = Checkpoint(storage=storage, name=name, manifest=storage.read(name))
    if fault := found.storage.damage(found.name, found.manifest):
        raise KfjobError(f"checkpoint `{found.path}` is damaged", cause=fault)
    try:
        return found, TrainSpec.model_validate(found.manifest.spec)
    except SpecError as error:
        raise KfjobError(f"`{found.path}` was written by another version of kfjob", cause=str(error)) from error


def _weights(found: Any, model: Any) -> dict[str, Any]:
    """The model's tensors, from the shards of all ranks."""
    import torch
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = found.storage.reader(found.name, found.manifest)
    there = reader.read_metadata().state_dict_metadata
    names = [name for name in model.state_dict() if f"model.{name}" in there]
    if not names:
        raise KfjobError(f"`{found.path}` has no weights by the names of its model")
    whole = model.state_dict()
    tensors = {name: torch.empty(whole[name].shape, dtype=there[f"model.{name}"].properties.dtype) for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there are no ranks is meant
        load({"model": tensors}, storage_reader=reader, no_dist=True)
    return tensors


def _tokenizer_of(spec: TrainSpec) -> Path | None:
    """The folder that the training took it from, if it is on this machine."""
    places = [spec.tokenizer, f"{spec.data}/tokenizer", str(spec.model)]
    return next((Path(p).expanduser() for p in places if p and (Path(p).expanduser() / "tokenizer.json").exists()), None)


def _copy_tokenizer(folder: Path | None, into: Path) -> bool:
    from kfjob.trainer.data.tokenizer import FILES

    if folder is None:
        return False
    for name in FILES:
        if (folder / name).exists():
            shutil.copy(folder / name, into / name)
    return True


if __name__ == "__main__":
    sys.exit(main())
