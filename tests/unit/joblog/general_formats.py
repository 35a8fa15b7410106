"""Layouts of progress lines, each with the values that a reader must find in its last line, and lines of other work.

The lines are our own, and each takes a path of the reader that no other takes. `{s}` is the step, `{l}` the loss, `{e}` the
epoch from 1, `{i}` the number of the line from 0.
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
OF_1000 = AT_50 | {"total": 1000}
LR = AT_50 | {"lr": 0.01}
_OF_EPOCH: Values = {"epoch": 5, "loss": 1.98, "step": 8}
_COLUMNS = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
_STATES = [f"Steps:   5%|▌  | {n}/9000 [00:01<00:09,  4.50it/s, loss={9 - n / 1000}]" for n in range(1000)]


def list_steps(layout: str, last_loss: float) -> list[str]:
    """Return five lines of a layout with a falling loss."""
    return [layout.format(s=step, l=round(last_loss + (100 - step) / 50, 2)) for step in range(20, 101, 20)]


FORMATS: dict[str, tuple[list[str], Values]] = {
    # pairs
    "colons": (repeat("step: {s}, loss: {l}, lr: 0.001"), AT_50 | {"lr": 0.001}),
    "thousands": (repeat("step 1,0{s} | loss {l}"), {"step": 1050, "loss": 1.98}),
    "suffixes": (repeat("step {s} | loss {l} | 12.5K tok/s | 3.1M tokens"), AT_50 | {"speed": 12500.0}),
    "name after the value": (repeat("Iter {s} ({l} loss, 1.2 it/s)"), AT_50),
    "tensor": (repeat("{{'step': {s}, 'loss': tensor({l}, device='cuda:0')}}"), AT_50),
    "of": (repeat("Step {s} of 400: loss is {l}"), AT_50 | {"total": 400}),
    "two epochs of a rank": (repeat("GPU:0 | Epoch: {e} | Batchsize: 32 | Steps: 32")[:2], {"epoch": 2, "step": None}),
    "brackets and a speed": (repeat("[upd {s}] xent={l} tok/s=3267"), AT_50 | {"speed": 3267}),
    "speed and a time": (repeat("it {s} nll {l} tok/sec 3267 ms/it 340"), AT_50 | {"speed": 3267}),
    # counters
    "fraction": (repeat("Iter [{s}/400] Loss: {l}"), AT_50 | {"total": 400}),
    "epoch and fraction": (repeat("Epoch: [3][ {s}/400]\tLoss {l} (2.5)"), AT_50 | {"epoch": 3, "total": 400}),
    "epoch over step": (repeat("Batch 2/{s} loss {l} lr 0.001"), AT_50 | {"epoch": 2}),
    # dictionaries
    "json": (repeat('{{"step": {s}, "train": {{"loss": {l}}}, "val": {{"loss": 3.3}}}}'), AT_50),
    "logfmt": (repeat('level=info msg="train step" step={s} total=400 loss={l}'), AT_50 | {"total": 400}),
    # bars
    "bar with another unit": (
        redraw("Steps:   5%|▌  | {s}/400 [00:01<00:09,  2.00s/step, gpt_loss={l}]"),
        AT_50 | {"speed": 0.5},
    ),
    # blocks
    "block": (repeat("[step={s}/400,epoch=1]\n    train/loss={l}\n    optim/lr=0.001"), AT_50 | {"lr": 0.001, "total": 400}),
    # tables
    "short column names": (["E    #       LOSS NER  SCORE", *repeat("  0     {s}         {l}    0.35")], AT_50 | {"epoch": 0}),
    # sums of losses
    "combined loss of a dictionary": (repeat("step {s}\n{{'box_loss': 0.1,\n 'combined_loss': {l},\n 'lr': 0.01}}"), LR),
    "total in a dictionary over lines": (
        repeat('{{\n  "step": {s},\n  "loss": {{\n    "cls": 0.11,\n    "box": 0.5,\n    "total": {l}\n  }}\n}}'),
        AT_50,
    ),
    "total of a block": (repeat("Iteration {s}\n  recon loss: 0.31\n  kl loss: 0.11\n  total: {l}"), AT_50),
    "all losses": (repeat("step {s} kl=0.11 recon=0.9 all={l}"), AT_50),
    "full loss": (repeat("step {s} - d_loss 0.1 - perceptual_loss 0.4 - full_loss {l}"), AT_50),
    "overall": (repeat("[step {s}] ce: 0.11 aux: 0.4 overall: {l}"), AT_50),
    "total time": (repeat("step {s} ce_loss {l} time 0.4 total 12.{i}"), AT_50),
    "adversary": (repeat("step {s} disc_loss_total 0.7 gen_loss_total {l}"), AT_50),
    # columns
    "columns with single spaces and bar": (
        [" ".join(_COLUMNS.split()), *repeat("{e}/9 3.5G {l} 0.0123 1.2 45 640: 100%|███| 8/8 [00:03<00:00, 2.50it/s]")],
        _OF_EPOCH,
    ),
    "columns and line": (
        [_COLUMNS, *repeat("\x1b[K      {e}/9   3.5G   {l}   0.0123   1.2   45   640: 100% ━━━━━━━━ 8/8 2.5it/s 1.8s")],
        _OF_EPOCH,
    ),
    "columns without a known name": (
        [
            "   Epoch   gpu_mem   box   obj   cls   labels",
            *repeat("   {e}/9   3.5G  {l}  0.01  0.02  45: 100%|█| 8/8 [00:03<00:00, 2.5it/s]"),
        ],
        {"epoch": 5, "loss": None, "step": 8},
    ),
    "two rows": (
        [_COLUMNS, *repeat("      {e}/9    3.5G    {l}   0.0123   1.2   45    640: 100%|███| 8/8 [00:03<00:00, 2.50it/s]")[:2]],
        {"epoch": 2, "loss": 2.55, "step": 8},
    ),
    "values in json": (repeat('{{"t": 1700000000, "step": {s}, "values": {{"mse": {l}, "gn": 0.3}}}}'), AT_50),
    "fractions in parentheses": (repeat("({e}/30) ({s}/1000) loss={l}"), OF_1000 | {"epoch": 5}),
    # validation
    "validation between steps without a loss": (
        repeat(
            "step:{i}0/1000 val_loss:{l} train_time:1{i}0ms step_avg:10.0ms\nstep:{s}/1000 train_time:1{i}9ms step_avg:10.0ms"
        ),
        {"step": 50, "loss": None, "evaluation_loss": 1.98, "total": 1000},
    ),
    "validation of an epoch": (
        repeat("Epoch {e}: val_loss={l} val_acc=0.3"),
        {"epoch": 5, "loss": None, "evaluation_loss": 1.98},
    ),
    # a bar that is redrawn often
    "first loss of a long line": (
        ["\r".join(["Steps:   0%|   | 0/9000 [00:00<?, ?it/s]", *_STATES])],
        {"step": 999, "first_loss": 9.0, "loss": 8.001},
    ),
    # other shapes
    "constant loss of a block": (repeat("step {s}\n  kl_loss: 0.0\n  ce_loss: {l}"), AT_50),
    "comment as header": (["# step   rmse   lr", *repeat("  {s}   {l}   0.01")], LR),
    "step within an epoch": (repeat("epoch: 2/50, step_in_epoch: {s}, loss: {l}"), AT_50 | {"epoch": 2}),
    "unit before a colon": (repeat("Up. {s} : Cost {l} : 812.5 words/s : norm 1.2"), AT_50 | {"speed": 812.5}),
    "step in thousands": (repeat("| Epoch: 2/91 ({s}/409) | Loss: {l} | 1.8 steps/s | Step: 12k |"), AT_50 | {"epoch": 2}),
    "a range between name and value": (repeat("step {s} avg. loss [{e}1-{e}9]: {l}"), AT_50),
    "a range in a bar": (
        redraw("5%|▌  | {s}/1000 [00:01<00:09, 4.50it/s, init loss: 9.12, avg. loss [{e}1-{e}9]: {l}]"),
        OF_1000 | {"speed": 4.5},
    ),
    "two numbers before the loss": (repeat("1 {s} loss - {l}"), AT_50),
    "total in a prefix": (repeat("[train: 1, {s} / 1000] FPS: 81.2 (79.1)  ,  Loss/total: {l}"), AT_50 | {"speed": 81.2}),
    "lr before the loss of a block": (
        repeat("Epoch: [1][{s}/4687] lr: 0.01\nbatch_time: 0.412 (0.432)\tdata_time: 0.01 (0.02)\ntotal_loss: {l} (2.4)"),
        LR | {"epoch": 1},
    ),
    "weak counter of a block": (repeat("batch i:{s}, episode_len:1{i}\nkl:0.02,loss:{l},entropy:3.12"), AT_50),
    "loss of two counts": (repeat("loss in epoch 1 iteration {s}: {l}"), AT_50 | {"epoch": 1}),
    # lines without a loss
    "accuracy of rounds": (repeat("Round {s}: acc=0.3{e}"), {"step": 50, "loss": None}),
    "percent of rounds": (repeat("Round {s}, test accuracy: 3{e}.5%"), {"step": 50, "loss": None}),
    "training perplexity of a batch": (repeat("Batch {s}, train_perplexity=81{e}.2"), {"step": 50, "loss": None}),
    "score at a step": (repeat("Score at iteration {s} is {l}"), {"step": 50, "loss": None}),
    "time of an epoch": (repeat("Time for epoch {e} is 12.3 sec"), {"epoch": 5, "loss": None}),
    "step of a network": (repeat("G_step [{s}/900], D_step [{s}/900], d_real: {l}"), AT_50 | {"total": 900}),
    # speeds
    "speed in wps": (repeat("step {s} loss {l} 812.5 wps"), AT_50 | {"speed": 812.5}),
    "speed in (env steps/s)": (repeat("step {s} | loss {l} | (812.5 env steps/s)"), AT_50 | {"speed": 812.5}),
    "speed from step_time_ms=500": (repeat("step {s} loss {l} step_time_ms=500"), AT_50 | {"speed": 2}),
    "speed from 0.5 s/it": (repeat("step {s} loss {l} 0.5 s/it"), AT_50 | {"speed": 2}),
    "speed from batch time: 0.5 (0.4)": (repeat("step {s} loss {l} batch time: 0.5 (0.4)"), AT_50 | {"speed": 2}),
    "speed in fps": (repeat("step {s} loss {l} 812.5 fps"), AT_50 | {"speed": 812.5}),
    "speed in pairs/second": (repeat("step {s} loss {l} 812.5 pairs/second"), AT_50 | {"speed": 812.5}),
    "wps is a speed": (repeat("step {s} loss {l} wps: 812.5"), AT_50 | {"speed": 812.5}),
    "speed from sec_per_step=0.5": (repeat("step {s} loss {l} sec_per_step=0.5"), AT_50 | {"speed": 2}),
    # names
    "a script L": (repeat("epoch 0 batch {s}/200  ℒ={l}"), AT_50 | {"epoch": 0}),
    "quoted cells": (['"epoch","step","train_loss"', *repeat('"0","{s}","{l}"')], AT_50 | {"epoch": 0}),
    # stages
    "a line after each epoch": (
        [
            line
            for epoch, loss in ((1, 2.5), (2, 1.5), (3, 0.5))
            for line in (*list_steps("[{s}/100] loss: {l}", loss), f"Epoch {epoch} finished in 32.2s")
        ],
        {"step": 100, "total": 100, "loss": 0.5},
    ),
    "a second stage in other words": (
        [*list_steps("Pretrain iteration {s}: loss {l}", 2.5), *list_steps("finetune step {s}/100 | loss = {l}", 0.5)],
        {"step": 100, "loss": 0.5},
    ),
    "three losses of a step in three lines": (
        [
            f"[Train]({step}/6000) average {name}: {loss + 100 / step:.2f}"
            for step in range(1000, 6001, 1000)
            for name, loss in (("pos_loss", 0.3), ("neg_loss", 0.5), ("loss", 0.4))
        ],
        {"step": 6000, "loss": 0.42},
    ),
}

NO_PROGRESS: dict[str, list[str]] = {
    "nameless bar": [f" {i}0%|█   | {i}000/9000 [00:0{i}<00:09, 900.1it/s]" for i in range(1, 9)],
    "evaluation bar": [f"Epoch 3 [Val]:  {i}0%|█  | {i}/9 [00:0{i}<00:09, 1.1it/s, loss=1.{i}]" for i in range(1, 9)],
    "dates": [f"step 2026-02-0{i} loss 2026-02-0{i}" for i in range(1, 9)],
    "too large": [f"step {i} loss 1e99{i}" for i in range(1, 9)],
    "configuration": ["train:", "  step: 100", "  loss: 0.5", "  lr: 0.001", "eval:", "  step: 50", "  lr: 0.1"],
    "times of a benchmark": repeat("iteration {s}: step time 0.{s} ms, total 12.{i}"),
    "evaluation of a batch": repeat("val batch {s}/100 val_loss {l} 812 samples/s"),
    "percent of a download": repeat("Downloading: {s}% loss={l} MB"),
    "floating point": repeat("step {s} TFLOPs/s: 31.{i}"),
    "settings": ["step: 10", "lr: 0.1", "step: 20", "lr: 0.2", "step: 30", "lr: 0.3", "total: 4.5"],
    "steps of loading": repeat("Loading step {s} 812 samples/s"),
    "calibration": repeat("calibration step {s}/100: mse {l}"),
    "disks": repeat("({i}/24) disk loss probability {l}"),
    "totals": repeat("step {s}: total 12.{i} GB, overall 0.9{i}"),
    "seasons": repeat("S01 E{s} L1"),
    "ranks with a loss of packets": repeat("({i}/24) packet loss={l}"),
    "columns of a list": ["Epoch   name   size   state", *repeat("{e}   worker   {l}   ready")],
    "error of a solver": repeat("rk4 step {s} t=0.{s} Error: {l}e-05"),
    "gradient norm of a solver": repeat("Newton iteration {s}: gradient norm = {l}"),
    "results of rounds": repeat("Round {e}: score {s}-{e}"),
}
