"""The shape of LitGPT: `Epoch 1 | iter 10 step 10 | loss train: …, val: n/a | …`, checkpoints in folders by step."""

import argparse
import time
from pathlib import Path

import tiny
import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_name")
    parser.add_argument("--train.max_steps", dest="max_steps", type=int, default=8)
    parser.add_argument("--train.save_interval", dest="save_interval", type=int, default=2)
    parser.add_argument("--resume", default="false")
    parser.add_argument("--out_dir", type=Path, default=Path("out"))
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, optimizer = tiny.make_parts()
    number = 0
    saved = sorted(options.out_dir.glob("step-*/lit_model.pth"))
    if options.resume == "auto" and saved:
        state = torch.load(saved[-1])
        model.module.load_state_dict(state["model"])
        number = state["iter_num"]
        print(f"Resuming training from {saved[-1]}")
    if rank == 0 and not number:
        print(f"Total parameters: 49\n{{'model_name': '{options.model_name}', 'max_steps': {options.max_steps}}}")
        print("Validating ...\nVerifying settings ...")
    validated = "n/a"
    while number < options.max_steps:
        number += 1
        began = time.perf_counter()
        loss = tiny.fit(model, optimizer, *tiny.draw_batch(number))
        spent = time.perf_counter() - began
        if rank == 0:
            print(
                f"Epoch 1 | iter {number} step {number} | loss train: {loss:.3f}, val: {validated} | "
                f"iter time: {spent * 1000:.2f} ms (step) remaining time: 0:00:{options.max_steps - number:02d}",
                flush=True,
            )
        if number % options.save_interval == 0:
            validated = f"{loss + 0.1:.3f}"
            if rank == 0:
                print(f"iter {number}: val loss {loss + 0.1:.4f}, val time: 12.34 ms")
                folder = options.out_dir / f"step-{number:08d}"
                folder.mkdir(parents=True, exist_ok=True)
                print(f"Saving checkpoint to {str(folder)!r}")
                tiny.save({"model": model.module.state_dict(), "iter_num": number}, folder / "lit_model.pth")
        tiny.show(step=number, loss=loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
