"""The shape of Fabric: it knows the number of nodes, `fabric.print` writes on rank 0, and one file is saved."""

import argparse
from pathlib import Path

import tiny
import torch
import torch.distributed as dist


class Fabric:
    def __init__(self, devices, num_nodes):
        self.expected = devices * num_nodes

    def launch(self):
        dist.init_process_group("gloo")
        if dist.get_world_size() != self.expected:
            raise RuntimeError(f"expected {self.expected} processes, and {dist.get_world_size()} have started")

    def print(self, *words):
        if dist.get_rank() == 0:
            print(*words, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--num-nodes", type=int, default=2)
    parser.add_argument("--iters", type=int, default=8)
    options = parser.parse_args()
    fabric = Fabric(options.devices, options.num_nodes)
    fabric.launch()
    model, optimizer = tiny.make_parts()
    path, first = Path("checkpoint.ckpt"), 1
    if path.exists():
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        first = state["iteration"] + 1
    for iteration in range(first, options.iters + 1):
        loss = tiny.fit(model, optimizer, *tiny.draw_batch(iteration))
        fabric.print(f"Iteration: {iteration} | Train loss: {loss:.4f} | Learning rate: {0.05:.6f}")
        if iteration % 2 == 0 and dist.get_rank() == 0:
            tiny.save({"model": model.module.state_dict(), "iteration": iteration}, path)
        tiny.show(step=iteration, loss=loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
