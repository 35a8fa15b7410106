"""Layouts of progress lines, each with the values that a reader must find in its last line.

The lines are our own. `{s}` is the step, `{l}` the loss, `{e}` the epoch from 1, `{i}` the number of the line from 0.
"""

from __future__ import annotations

from collections.abc import Mapping

STEPS = (10, 20, 30, 40, 50)
LOSSES = (2.91, 2.55, 2.31, 2.12, 1.98)


def repeat(layout: str) -> list[str]:
    """Return one line, or several, for each step."""
    values = zip(STEPS, LOSSES, strict=True)
    text = "\n".join(layout.format(s=step, l=loss, i=i, e=i + 1) for i, (step, loss) in enumerate(values))
    return text.split("\n")


def redraw(layout: str) -> list[str]:
    """Return one line that was redrawn for each step."""
    return ["\r" + "\r".join(repeat(layout))]


Values = Mapping[str, float | None]
AT_50: dict[str, float | None] = {"step": 50, "loss": 1.98}
GROUPED = (
    "[ep 0 it {s}] nll {l} tok/s 3267", "ep 0 it {s} nll {l} tok/s 3267", "[it {s}] nll {l} tok/s 3267",
    "[ep 0] it {s} nll {l}", "[ep 0, it {s}] nll {l}", "(ep 0 it {s}) nll {l}", "[ep=0 it={s}] nll={l}",
    "[ep 0 it {s}] nll: {l}",
    "step {s} nll {l} tok/s 3267", "upd {s} | xent {l}", "[ep 0 it {s}] loss {l} tok/s 3267", "[it {s}] loss: {l}",
    "[ep 0 step {s}] nll {l} tok/s 3267", "[ep 0 iter {s}] loss {l} tok/s 3267",
    "[it {s}] [nll {l}] [tok/s 3267]", "[it {s}][nll {l}]", "(it {s}) (nll {l}) (lr 1e-3)", "[upd {s}] xent={l} tok/s=3267",
    "[ep 0 | it {s}] nll {l} | tok/s 3267", "[it:{s}] loss:{l} tok/s:3267", "[it #{s}] nll {l}",
    "[ep 0; it {s}] nll {l}; tok/s 3267",
    "(ep: 0, it: {s}) nll: {l}, tok/s: 3267", "it {s} (nll {l} tok/s 3267)", "[global_step {s}] nll {l}", "(upd {s}) NLL {l}",
    "[batch {s} nll {l}] tok/s 3267", "[it {s}/9000] nll {l} tok/s 3267", "[ep 0/4 it {s}/9000] nll {l} tok/s 3267",
    "[it {s} lr 1e-3] nll {l}", "[ep 0] [it {s}] loss {l} s/it 0.31", "[it {s}] loss {l} gnorm 1.25 tok/s 3267",
    "[it {s}] loss {l} mem 12.3 tok/s 3267", "[it {s}] loss {l} acc 0.31 tok/s 3267 mfu 0.41", "step {s} tok/s 3267 loss {l}",
    "step {s}/9000 tok/s 3267 nll {l}", "[train it {s}] nll {l} img/s 3267", "it {s} nll {l} tok/sec 3267 ms/it 340",
)  # fmt: skip
"""Pairs in brackets or parentheses, with more pairs after them; a rate may be the name of the number after it."""


def expect_group(layout: str) -> Values:
    """Return the values of the last line of a layout."""
    return AT_50 | ({"speed": 3267.0} if "3267" in layout else {})


FORMATS: dict[str, tuple[list[str], Values]] = {
    **{layout: (repeat(layout), expect_group(layout)) for layout in GROUPED},
    # pairs
    "colons": (repeat("step: {s}, loss: {l}, lr: 0.001"), AT_50 | {"lr": 0.001}),
    "equal signs": (repeat("step={s} loss={l} lr=0.001"), AT_50 | {"lr": 0.001}),
    "spaces": (repeat("step {s} loss {l} lr 0.001"), AT_50 | {"lr": 0.001}),
    "pipes": (repeat("| step {s} | loss {l} | lr 1e-3 |"), AT_50 | {"lr": 0.001}),
    "tabs": (repeat("step\t{s}\tloss\t{l}"), AT_50),
    "average in parentheses": (repeat("step: {s}  loss: {l} (2.4411)  time: 0.31 (0.30)"), AT_50),
    "thousands": (repeat("step 1,0{s} | loss {l}"), {"step": 1050, "loss": 1.98}),
    "suffixes": (repeat("step {s} | loss {l} | 12.5K tok/s | 3.1M tokens"), AT_50 | {"speed": 12500.0}),
    "index first": (repeat("{s} | loss {l} | lr 0.001"), AT_50),
    "loss first": (repeat("loss: {l:>7f}  [{s:>5d}/60000]"), AT_50 | {"total": 60000}),
    "name after the value": (repeat("Iter {s} ({l} loss, 1.2 it/s)"), AT_50),
    "loss at a step": (repeat("Training loss at step {s}: {l}"), AT_50),
    "cost after an iteration": (repeat("Cost after iteration {s}: {l}"), AT_50),
    "tensor": (repeat("{{'step': {s}, 'loss': tensor({l}, device='cuda:0')}}"), AT_50),
    "bullets": (repeat("🚀 Epoch 2 • Step {s} • Loss {l}"), AT_50 | {"epoch": 2}),
    "of": (repeat("Step {s} of 400: loss is {l}"), AT_50 | {"total": 400}),
    "parts of a loss": (repeat("epoch 1 step {s} loss_a: 0.5 loss_b: 0.7 total_loss: {l}"), AT_50),
    "only part losses": (repeat("iter {s} D_loss: {l} G_loss: 0.8"), AT_50),
    "reward instead of a loss": (repeat("global_step={s}, episodic_return=1{i}.5"), {"step": 50, "loss": None}),
    "speed instead of a loss": (repeat("iteration {s}: 812.4 samples/s"), {"step": 50, "loss": None, "speed": 812.4}),
    "epochs alone": (repeat("[GPU0] Epoch {e} | Batchsize: 32 | Steps: 64"), {"epoch": 5, "step": None, "loss": None}),
    "two epochs of a rank": (repeat("GPU:0 | Epoch: {e} | Batchsize: 32 | Steps: 32")[:2], {"epoch": 2, "step": None}),
    "training and validation": (repeat("Epoch {e}: train_loss={l} val_loss=3.3"), {"epoch": 5, "loss": 1.98}),
    # counters
    "fraction": (repeat("Iter [{s}/400] Loss: {l}"), AT_50 | {"total": 400}),
    "epoch and fraction": (repeat("Epoch: [3][ {s}/400]\tLoss {l} (2.5)"), AT_50 | {"epoch": 3, "total": 400}),
    "two fractions": (repeat("[1/9][{s}/400] loss: {l}"), AT_50 | {"epoch": 1}),
    "two counters": (repeat("[1][{s}/400] loss: {l}"), AT_50 | {"epoch": 1, "total": 400}),
    "tuple": (repeat("[2,    {s}] loss: {l}"), AT_50 | {"epoch": 2}),
    "samples and percent": (repeat("Train Epoch: 1 [{s}/60000 ({i}%)]\tLoss: {l}"), AT_50 | {"epoch": 1, "total": 60000}),
    "number and slash": (repeat("Train: 4 [  {s}/1251 (  3%)]  Loss: {l} (2.2)  LR: 1.0e-03"), AT_50 | {"epoch": 4}),
    "range": (repeat("Epoch[2] Batch [0-{s}]  Speed: 99.5 samples/sec  loss={l}"), AT_50 | {"epoch": 2}),
    "epoch over step": (repeat("Batch 2/{s} loss {l} lr 0.001"), AT_50 | {"epoch": 2}),
    "boosting round": (repeat("[{i}]\ttrain-rmse:{l}\teval-rmse:3.1"), {"step": 4, "loss": 1.98}),
    # dictionaries
    "json": (repeat('{{"step": {s}, "train": {{"loss": {l}}}, "val": {{"loss": 3.3}}}}'), AT_50),
    "json of strings": (repeat('{{"num_updates": "{s}", "loss": "{l}", "lr": "0.001"}}'), AT_50 | {"lr": 0.001}),
    "json with a total": (repeat('{{"step": "{s}/240", "loss": {l}}}'), AT_50 | {"total": 240}),
    "message in json": (repeat('{{"level": "info", "pid": 7, "message": "step {s}/400 loss={l}"}}'), AT_50 | {"total": 400}),
    "json over lines": (repeat('{{\n  "epoch": {e},\n  "train_loss": {l},\n  "val_loss": 3.3\n}}'), {"epoch": 5, "loss": 1.98}),
    "logfmt": (repeat('level=info msg="train step" step={s} total=400 loss={l}'), AT_50 | {"total": 400}),
    # bars
    "bar with a postfix": (redraw("Training:   5%|▌  | {s}/400 [00:01<00:09,  4.50it/s, loss={l}]"), AT_50 | {"total": 400}),
    "bar with values in its name": (redraw("Epoch 2/3 - loss: {l}:   5%|▌  | {s}/400 [00:01<00:09,  4.50it/s]"), AT_50),
    "bar with another unit": (
        redraw("Steps:   5%|▌  | {s}/400 [00:01<00:09,  2.00s/step, gpt_loss={l}]"),
        AT_50 | {"speed": 0.5},
    ),
    "bar without a total": (redraw("Epoch #1: {s}it [00:05, 1800.20it/s, loss={l}]"), AT_50 | {"epoch": 1}),
    "rich bar": (redraw("Working ━━━━━━╸━━━━━  10% 0:00:20 loss={l} step={s}/400"), AT_50 | {"total": 400}),
    "keras": (repeat("Epoch {e}/5\n100/100 - 3s - loss: {l} - val_loss: 3.3"), {"epoch": 5, "step": 100, "loss": 1.98}),
    "table row and bar": (
        [
            "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size",
            *repeat("        {i}/99      3.5G    {l}    0.0123        45        640: 100%|███| 8/8 [00:03<00:00,  2.50it/s]"),
        ],
        {"epoch": 4, "loss": 1.98, "step": 8},
    ),
    # blocks
    "block": (repeat("[step={s}/400,epoch=1]\n    train/loss={l}\n    optim/lr=0.001"), AT_50 | {"lr": 0.001, "total": 400}),
    "loss below a step": (repeat("STEP: {s}\nloss: {l}\ntest loss: 3.3"), AT_50),
    "epoch above": (repeat("Epoch {e}/9\n-----\ntrain Loss: {l} Acc: 0.5\nval Loss: 3.3 Acc: 0.5"), {"epoch": 5, "loss": 1.98}),
    "table of a step": (repeat("-----\n| loss      | {l}  |\n| step      | {s}   |\n-----"), AT_50),
    # tables
    "columns": (
        ["epoch     train_loss  valid_loss  time", *repeat("{e}         {l}      3.300000    00:10")],
        {"epoch": 5, "loss": 1.98},
    ),
    "short column names": (["E    #       LOSS NER  SCORE", *repeat("  0     {s}         {l}    0.35")], AT_50 | {"epoch": 0}),
    "csv": (["epoch,step,train_loss,val_loss", *repeat("1,{s},{l},3.3")], AT_50 | {"epoch": 1}),
    "markdown": (["| Step | Training Loss | Speed |", "|---|---|---|", *repeat("| {s} | {l} | 3.1 |")], AT_50),
}

NO_PROGRESS: dict[str, list[str]] = {
    "data preparation": [f"Map:  {i}0%|█   | {i}000/9000 [00:0{i}<00:09, 900.1 examples/s]" for i in range(1, 9)],
    "nameless bar": [f" {i}0%|█   | {i}000/9000 [00:0{i}<00:09, 900.1it/s]" for i in range(1, 9)],
    "shards": [f"Loading checkpoint shards:  {i}0%|█  | {i}/9 [00:0{i}<00:09, 1.1s/it]" for i in range(1, 9)],
    "evaluation bar": [f"Epoch 3 [Val]:  {i}0%|█  | {i}/9 [00:0{i}<00:09, 1.1it/s, loss=1.{i}]" for i in range(1, 9)],
    "evaluation": [f"eval step {i}: loss 1.{i}" for i in range(1, 9)],
    "sizes": ["Steps: 22, loss scale: 65536", "Steps: 22, loss scale: 32768", "Steps: 22, loss scale: 16384"],
    "checkpoints": [f"step {i}00: saved checkpoint in 1{i}.3 s" for i in range(1, 9)],
    "waiting": [f"Waiting for the store to be ready ({i}/30), attempt {i}" for i in range(1, 9)],
    "packet loss": [f"step {i}: 100 packets, loss 0.{i}%, rtt 0.2 ms" for i in range(1, 9)],
    "web server": [f'10.0.0.{i}:80 - "GET /log?step={i}&loss=1.{i} HTTP/1.1" 200' for i in range(1, 9)],
    "addresses": [f"10.0.0.{i} iter 1.2.{i} loss 1.2.{i}" for i in range(1, 9)],
    "dates": [f"step 2026-02-0{i} loss 2026-02-0{i}" for i in range(1, 9)],
    "too large": [f"step {i} loss 1e99{i}" for i in range(1, 9)],
    "configuration": ["train:", "  step: 100", "  loss: 0.5", "  lr: 0.001", "eval:", "  step: 50", "  lr: 0.1"],
    "downloads": [f"Downloading model.bin: {i}0%|█ | {i}.1G/9.9G [00:0{i}<00:09, 42.0MB/s]" for i in range(1, 9)],
    "serving": [f"Avg prompt throughput: 12{i}.5 tokens/s, Running: {i} reqs, GPU KV cache: 1{i}.2%" for i in range(1, 9)],
    "search": [f"Trial {i} finished with value: 0.{i} and parameters: {{'lr': 0.0{i}}}" for i in range(1, 9)],
}
