"""The shape of PyTorch's tutorial on fault-tolerant DDP: every rank prints its epochs, without a loss."""

import argparse
import os
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def __init__(self, data, save_every, path):
        self.rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.data, self.save_every, self.path = data, save_every, Path(path)
        self.model, self.optimizer = tiny.make_parts()
        self.start = 0
        if self.path.exists():
            state = torch.load(self.path)
            self.model.module.load_state_dict(state["model"])
            self.start = state["epochs"]
            print(f"Resuming training from snapshot at Epoch {self.start}")

    def run(self, epochs):
        for epoch in range(self.start, epochs):
            size = len(next(iter(self.data))[0])
            print(f"[GPU{self.global_rank}] Epoch {epoch} | Batchsize: {size} | Steps: {len(self.data)}")
            self.data.sampler.set_epoch(epoch)
            for inputs, targets in self.data:
                tiny.fit(self.model, self.optimizer, inputs, targets)
            if self.rank == 0 and epoch % self.save_every == 0:
                tiny.save({"model": self.model.module.state_dict(), "epochs": epoch + 1}, self.path)
                print(f"Epoch {epoch} | Training snapshot saved at {self.path}")
            tiny.show(epoch=epoch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("save_every", type=int)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    data = tiny.make_data()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    Trainer(loader, options.save_every, "snapshot.pt").run(options.epochs)
    dist.destroy_process_group()
