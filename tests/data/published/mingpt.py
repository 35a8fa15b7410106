"""The shape of minGPT with DDP: a config file with overrides from the command line, and a snapshot of the trainer."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
import yaml

CONFIG = """
trainer_config: {max_epochs: 4, steps: 3, snapshot_path: gpt_snapshot.pt, save_every: 1}
data_config: {path: input.txt, block_size: 16}
"""


@dataclass
class TrainerConfig:
    max_epochs: int
    steps: int
    snapshot_path: str
    save_every: int


def read_config(words):
    config = yaml.safe_load(CONFIG)
    for word in words:
        path, _, value = word.partition("=")
        section, _, field = path.partition(".")
        config[section][field] = yaml.safe_load(value)
    return config


def main():
    config = read_config(sys.argv[1:])
    trainer = TrainerConfig(**config["trainer_config"])
    dist.init_process_group("gloo")
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    text = Path(config["data_config"]["path"]).read_text()
    print(f"Data has {len(text)} characters, {len(set(text))} unique.")
    model, optimizer = tiny.make_parts()
    start = 0
    try:
        snapshot = torch.load(trainer.snapshot_path)
        model.module.load_state_dict(snapshot["model_state"])
        start = snapshot["finished_epoch"]
        print(f"Resuming training from snapshot at Epoch {start}")
    except FileNotFoundError:
        print("Snapshot not found. Training model from scratch")
    for epoch in range(start + 1, trainer.max_epochs + 1):
        for iteration in range(trainer.steps):
            loss = tiny.fit(model, optimizer, *tiny.draw_batch(10 * epoch + iteration))
            print(f"[RANK{rank}] Epoch {epoch} | Iter {iteration} | Train Loss {loss:.5f}")
            tiny.show(epoch=epoch, step=iteration, loss=loss)
        if local == 0 and epoch % trainer.save_every == 0:
            tiny.save({"model_state": model.module.state_dict(), "finished_epoch": epoch}, trainer.snapshot_path)
            print(f"Snapshot saved at epoch {epoch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
