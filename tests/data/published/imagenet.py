"""The shape of PyTorch's ImageNet example under torchrun: meters with averages, and a checkpoint after each epoch."""

import argparse
import os
import shutil
import time
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


class Meter:
    def __init__(self, name, form):
        self.name, self.form, self.value, self.sum, self.count = name, form, 0.0, 0.0, 0

    def update(self, value):
        self.value, self.sum, self.count = value, self.sum + value, self.count + 1

    def __str__(self):
        return f"{self.name} {self.value:{self.form}} ({self.sum / self.count:{self.form}})"


def train(loader, model, optimizer, epoch, every):
    meters = [
        Meter("Time", "6.3f"),
        Meter("Data", "6.3f"),
        Meter("Loss", ".4e"),
        Meter("Acc@1", "6.2f"),
        Meter("Acc@5", "6.2f"),
    ]
    end = time.time()
    for i, (inputs, targets) in enumerate(loader):
        waited = time.time() - end
        loss = tiny.fit(model, optimizer, inputs, targets)
        for meter, value in zip(meters, (time.time() - end, waited, loss, 1.5 * i, 5.0 * i), strict=True):
            meter.update(value)
        end = time.time()
        if i % every == 0:
            print(
                "\t".join([f"Epoch: [{epoch}][{i + 1:{len(str(len(loader)))}d}/{len(loader)}]", *map(str, meters)]), flush=True
            )
            tiny.show(epoch=epoch, step=i + 1, loss=loss)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--resume", default="")
    parser.add_argument("-p", "--print-freq", type=int, default=10)
    options = parser.parse_args()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo", init_method="env://")
    model, optimizer = tiny.make_parts()
    start = 0
    if options.resume and Path(options.resume).is_file():
        print(f"=> loading checkpoint '{options.resume}'")
        state = torch.load(options.resume)
        start = state["epoch"]
        model.load_state_dict(state["state_dict"])
        print(f"=> loaded checkpoint '{options.resume}' (epoch {start})")
    elif options.resume:
        print(f"=> no checkpoint found at '{options.resume}'")
    data = tiny.make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(start, options.epochs):
        sampler.set_epoch(epoch)
        train(loader, model, optimizer, epoch, options.print_freq)
        print(f" *   Acc@1 {12.5 + epoch:.3f} Acc@5 {40.0 + epoch:.3f}")
        if dist.get_rank() == 0:
            tiny.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, "checkpoint.pth.tar")
            shutil.copyfile("checkpoint.pth.tar", "model_best.pth.tar")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
