"""The identity of the frozen base model: a checkpoint of adapters is useless with another one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kfjob.base.errors import KfjobError
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.hub import fetch_folder
from kfjob.trainer.manifest import describe_file
from kfjob.trainer.model import CONFIG
from kfjob.trainer.storage import Checkpoint
from kfjob.trainer.weights import FILES, PretrainedWeights
from kfjob.trainspec.train_spec import TrainSpec, get_shape


def identify_base(spec: TrainSpec, ranks: Ranks | None = None) -> dict[str, str]:
    """Return the name, the revision and the checksum of the spec's base model; nothing without `lora`.

    The checksum is of the contents of config.json and of the weights; with `ranks` each file is read by one of them. New
    weights are a function of the shape and the seed, so these have the checksum.

    Raises:
        KfjobError: a file cannot be read.
    """
    if spec.lora is None:
        return {}
    name, shape, contents = str(spec.model), get_shape(spec), {"seed": str(spec.seed)}
    if shape:
        name = f"new weights of {spec.model if isinstance(spec.model, str) else spec.model.architecture}"
        contents["shape"] = shape.model_dump_json()
    else:
        folder = fetch_folder(name, (CONFIG, *FILES), kind="model", revision=spec.model_revision)
        weights = PretrainedWeights.open(folder)
        files = [folder / CONFIG, *(weights.list_files() if weights else ())]
        contents = ({} if weights else contents) | _read_checksums(files, ranks)
    checksum = hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
    return {"name": name, "revision": spec.model_revision or "", "checksum": checksum}


def check_base(checkpoint: Checkpoint, base: dict[str, str]) -> None:
    """Check that a checkpoint belongs to this base model, and that both or neither are of adapters.

    Raises:
        KfjobError: that is not the case.
    """
    stored = checkpoint.manifest.base
    if stored.get("checksum") == base.get("checksum"):
        return
    if not (stored and base):
        title = f"{checkpoint.name} holds {'adapters' if stored else 'all weights'}, and this run trains"
        title += " all weights" if stored else " adapters (`lora`)"
        hint = "`kfjob-export` writes a model that `model` can name; use it with another checkpoint_dir"
        raise KfjobError(title, location=checkpoint.path, hint=hint)
    raise KfjobError(
        f"{checkpoint.name} holds adapters of another base model",
        location=checkpoint.path,
        cause=f"its base is {describe_base(stored)}, that of this run {describe_base(base)}",
        hint="use the base model that the checkpoint was trained with, or another checkpoint_dir",
    )


def describe_base(base: dict[str, str]) -> str:
    """Return the name and the beginning of the checksum."""
    return f"`{base['name']}` (SHA-256 {base['checksum'][:16]}…)"


def _read_checksums(files: list[Path], ranks: Ranks | None) -> dict[str, str]:
    """Return the SHA-256 of each file."""
    if ranks is None:
        return {path.name: describe_file(path)["sha256"] for path in files}
    own: dict[str, str] = {}
    with ranks.fail_together():
        try:
            own = _read_checksums(files[ranks.rank :: ranks.world_size], None)
        except OSError as error:
            raise KfjobError("cannot read the base model", location="model", cause=str(error)) from error
    return {name: checksum for part in ranks.all_gather(own) for name, checksum in part.items()}
