"""Families of layouts that mean the same, with the values of their last line, and lines of other work that look like them.

The lines are our own; `general_formats` explains their placeholders.
"""

from __future__ import annotations

from tests.unit.joblog.general_formats import AT_50, Values, redraw, repeat

Format = tuple[list[str], Values]
OF_1000 = AT_50 | {"total": 1000}
LR = AT_50 | {"lr": 0.01}
NO_LOSS: dict[str, float | None] = {"step": 50, "loss": None, "evaluation_loss": 1.98}
COMPACT: dict[str, float | None] = AT_50 | {"epoch": 1}

SUMS: dict[str, Format] = {
    "losses of a dictionary over lines": (
        repeat(
            "INFO:tf:Step {s} per-step time 0.41s\nINFO:tf:{{'Loss/cls_loss': 0.11,\n 'Loss/total_loss': {l},\n 'lr': 0.01}}"
        ),
        LR,
    ),
    "combined loss of a dictionary": (repeat("step {s}\n{{'box_loss': 0.1,\n 'combined_loss': {l},\n 'lr': 0.01}}"), LR),
    "overall loss of a dictionary": (repeat("step {s}: {{'loss_cls': 0.1, 'overall_loss': {l}}}"), AT_50),
    "total in a dictionary of losses": (repeat('{{"step": {s}, "loss": {{"cls": 0.11, "box": 0.5, "total": {l}}}}}'), AT_50),
    "total in a dictionary over lines": (
        repeat('{{\n  "step": {s},\n  "loss": {{\n    "cls": 0.11,\n    "box": 0.5,\n    "total": {l}\n  }}\n}}'),
        AT_50,
    ),
    "total of a block": (repeat("Iteration {s}\n  recon loss: 0.31\n  kl loss: 0.11\n  total: {l}"), AT_50),
    "loss below a speed": (repeat("step {s} | 812 tok/s\n  ce_loss: {l}\n  lr: 0.01"), LR | {"speed": 812}),
    "sum of losses": (repeat("iter {s} | loss_rpn 0.1 | loss_bbox 0.2 | loss_sum {l}"), AT_50),
    "all losses": (repeat("step {s} kl=0.11 recon=0.9 all={l}"), AT_50),
    "full loss": (repeat("step {s} - d_loss 0.1 - perceptual_loss 0.4 - full_loss {l}"), AT_50),
    "overall": (repeat("[step {s}] ce: 0.11 aux: 0.4 overall: {l}"), AT_50),
    "total after the loss": (repeat("it {s} policy_loss 0.1 value_loss 0.2 loss/total {l}"), AT_50),
    "total beside the loss of the model": (repeat("iter {s} lm loss: 2.2 | aux loss: 0.3 | total loss: {l}"), AT_50),
    "sum of an epoch beside the loss": (repeat("step {s} loss {l} loss_sum 51{i}.5"), AT_50),
    "total time": (repeat("step {s} ce_loss {l} time 0.4 total 12.{i}"), AT_50),
    "adversary": (repeat("step {s} disc_loss_total 0.7 gen_loss_total {l}"), AT_50),
}

_COLUMNS = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
_OF_EPOCH: Values = {"epoch": 5, "loss": 1.98, "step": 8}
COLUMNS: dict[str, Format] = {
    "columns and bar": (
        [_COLUMNS, *repeat("      {e}/9    3.5G    {l}   0.0123   1.2   45    640: 100%|███| 8/8 [00:03<00:00, 2.50it/s]")],
        _OF_EPOCH,
    ),
    "columns with single spaces and bar": (
        [" ".join(_COLUMNS.split()), *repeat("{e}/9 3.5G {l} 0.0123 1.2 45 640: 100%|███| 8/8 [00:03<00:00, 2.50it/s]")],
        _OF_EPOCH,
    ),
    "columns and redrawn bar": (
        [_COLUMNS, *redraw("     2/9   3.5G   {l}   0.0123   1.2   45   640:  50%|███| {s}/80 [00:03<00:00, 2.50it/s]")],
        AT_50 | {"epoch": 2, "total": 80, "first_loss": 2.91},
    ),
    "columns and bar of a logger": (
        [
            f"INFO {_COLUMNS}",
            *repeat("INFO     {e}/9   3.5G   {l}   0.01   1.2   45   640: 100%|██| 8/8 [00:03<00:00, 2.50it/s]"),
        ],
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
    "columns with a total": (
        [
            "   Epoch   gpu_mem   box   obj   total  labels",
            *repeat("   {e}/9   3.5G  0.2  0.01  {l}  45: 100%|█| 8/8 [00:03<00:00, 2.5it/s]"),
        ],
        _OF_EPOCH,
    ),
    "two rows": (
        [_COLUMNS, *repeat("      {e}/9    3.5G    {l}   0.0123   1.2   45    640: 100%|███| 8/8 [00:03<00:00, 2.50it/s]")[:2]],
        {"epoch": 2, "loss": 2.55, "step": 8},
    ),
}

NESTED: dict[str, Format] = {
    "metrics of json": (repeat('{{"step": {s}, "metrics": {{"ce": {l}}}}}'), AT_50),
    "metrics of training in json": (repeat('{{"step": {s}, "train": {{"metrics": {{"nll": {l}, "acc": 0.2}}}}}}'), AT_50),
    "statistics in json": (repeat('{{"iter": {s}, "stats": {{"xent": {l}, "lr": 0.01}}}}'), LR),
    "values in json": (repeat('{{"t": 1700000000, "step": {s}, "values": {{"mse": {l}, "gn": 0.3}}}}'), AT_50),
    "metrics of a step": (repeat("step {s} metrics={{'ce': {l}, 'acc': 0.1}}"), AT_50),
}

COUNTERS: dict[str, Format] = {
    "fraction, epoch and time of a batch": (
        repeat("{s}/1000 (epoch 0.5), train_loss = {l}, grad/param norm = 1.0e-02, time/batch = 0.1s"),
        OF_1000 | {"epoch": 0.5, "speed": 10},
    ),
    "fraction and epoch": (repeat("{s}/1000 (epoch 3): loss {l}, 0.1 s/batch"), OF_1000 | {"epoch": 3, "speed": 10}),
    "fraction and dash": (repeat("{s}/1000 - loss = {l}"), OF_1000),
    "fraction in parentheses": (repeat("({s}/1000) loss={l}"), OF_1000),
    "spaced fraction in parentheses": (repeat("( {s} / 1000 ) loss: {l}"), OF_1000),
    "fraction in parentheses of a rank": (repeat("[rank0]: ({s}/1000) loss={l}"), OF_1000),
    "fraction in parentheses of a logger": (repeat("INFO - ({s}/1000) loss: {l} lr: 0.01"), OF_1000 | LR),
    "fractions in parentheses": (repeat("({e}/30) ({s}/1000) loss={l}"), OF_1000 | {"epoch": 5}),
    "rank in parentheses": (repeat("(3/24) step {s} loss={l}"), AT_50 | {"total": None}),
}

VALIDATION: dict[str, Format] = {
    "validation and time of a step": (
        repeat("step:{s}/1000 val_loss:{l} train_time:1000ms step_avg:10.00ms"),
        NO_LOSS | {"speed": 100},
    ),
    "validation between steps without a loss": (
        repeat(
            "step:{i}0/1000 val_loss:{l} train_time:1{i}0ms step_avg:10.0ms\nstep:{s}/1000 train_time:1{i}9ms step_avg:10.0ms"
        ),
        NO_LOSS | {"total": 1000},
    ),
    "validation and speed": (repeat("iter {s}/400 | val loss {l} | elapsed 12.1s | 812 tok/s"), NO_LOSS | {"speed": 812}),
    "validation of an epoch": (
        repeat("Epoch {e}: val_loss={l} val_acc=0.3"),
        {"epoch": 5, "loss": None, "evaluation_loss": 1.98},
    ),
    "validation beside a loss": (
        repeat("step {s} loss {l}\nstep {s} val_loss 3.3 812 tok/s"),
        AT_50 | {"evaluation_loss": 3.3},
    ),
}

REDRAWN: dict[str, Format] = {
    name: (redraw(layout), AT_50 | {"first_loss": 2.91})
    for name, layout in {
        "first loss of a bar": "Training:   5%|▌  | {s}/400 [00:01<00:09,  4.50it/s, loss={l}]",
        "first loss of an epoch": "Epoch 1/3:   5%|▌  | {s}/400 [00:01<00:09,  4.50it/s, loss={l}]",
        "first loss in a name": "loss {l}:   5%|▌  | {s}/400 [00:01<00:09,  4.50it/s]",
        "first loss of a line": "{s}/400 [====>.....] - ETA: 3s - loss: {l}",
        "first loss of redrawn pairs": "step {s}/400 loss {l}",
    }.items()
}
_OF_A_LONG_LINE: Values = {"step": 999, "first_loss": 9.0, "loss": 8.001}
_STATES = [f"Steps:   5%|▌  | {n}/9000 [00:01<00:09,  4.50it/s, loss={9 - n / 1000}]" for n in range(1000)]
REDRAWN["first loss of a long line"] = (["\r".join(["Steps:   0%|   | 0/9000 [00:00<?, ?it/s]", *_STATES])], _OF_A_LONG_LINE)

_UNITS = ("fps", "wps", "graphs/s", "utt/s", "clips/sec", "molecules/s", "env steps/s", "pairs/second")
_NAMES = ("fps", "wps", "words/s", "graphs_per_second", "frames per second", "env_steps_per_sec", "samples per sec")
_TIMES = (
    "0.5 s/it", "(0.5 sec/step)", "2.00it/s 0.50s/it", "it/s 2.00 s/it 0.50", "500ms/step", "time/step: 0.5s", "step_time=0.5",
    "avg step time 0.5", "step_time_ms=500", "batch time: 0.5 (0.4)", "sec_per_step=0.5", "step_avg:500ms",
)  # fmt: skip
SHAPES: dict[str, Format] = {
    "names in quotes": (repeat("('Epoch:', 1, 'Step:', {s}, 'Loss:', {l})"), COMPACT),
    "list of names": (repeat("['iter', {s}, 'train_loss', {l}, 'lr', 0.01]"), LR),
    "number and name in quotes": (repeat("({s}, 'loss', {l})"), AT_50),
    "percent and name": (repeat("training {s}.0% complete, loss={l}, 12s left"), {"step": None, "loss": 1.98}),
    "percent alone": (repeat("[{s}%] loss: {l}"), {"step": None, "loss": 1.98}),
    "percent of an epoch": (repeat("Train Epoch: 3 [{s}%]"), {"epoch": 3, "loss": None}),
    "number and loss": (repeat("{s} loss={l}"), AT_50),
    "number and dash": (repeat("  {s} - loss: {l} - acc: 0.1"), AT_50),
    "number and brackets": (repeat("{s} [D loss: {l}, acc.: 51.20%] [G loss: 0.8]"), AT_50),
    "arrow": (repeat("[{s}] loss -> {l}; val_loss -> 3.3"), AT_50 | {"evaluation_loss": 3.3}),
    "wide arrow": (repeat("step {s} → loss {l}"), AT_50),
    "scores of phases": (repeat("Epoch {e} train 0.{s} val 0.3 test 0.2"), {"epoch": 5, "loss": None}),
    "score before the loss": (repeat("val acc: 0.3, train loss: {l}, step {s}"), AT_50),
    "constant loss": (repeat("step {s} kl_loss 0.0 ce_loss {l}"), AT_50),
    "constant loss of a block": (repeat("step {s}\n  kl_loss: 0.0\n  ce_loss: {l}"), AT_50),
    "rate of a step": (repeat("Iteration {s}, loss = {l}\nIteration {s}, lr = 0.01"), LR),
    "comment as header": (["# step   rmse   lr", *repeat("  {s}   {l}   0.01")], LR),
    "step within an epoch": (repeat("epoch: 2/50, step_in_epoch: {s}, loss: {l}"), AT_50 | {"epoch": 2}),
    "unit before a colon": (repeat("Up. {s} : Cost {l} : 812.5 words/s : norm 1.2"), AT_50 | {"speed": 812.5}),
    "error of an epoch": (repeat("<epoch 1> [{s}/469] err = {l}"), {"epoch": 1, "step": 50, "loss": None}),
    "padded step in brackets": (repeat("[04:24:16] - [step:         {s}] loss:  {l}, time/iteration:  5.0e+02 ms"), AT_50),
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
    "short name with a total": (repeat("Epoch 1.0{e} / 50, i = {s} / 4300, train_loss = {l}"), AT_50),
}

WITHOUT_LOSS: dict[str, Format] = {
    "accuracy of rounds": (repeat("Round {s}: acc=0.3{e}"), {"step": 50, "loss": None}),
    "percent of rounds": (repeat("Round {s}, test accuracy: 3{e}.5%"), {"step": 50, "loss": None}),
    "training perplexity of a batch": (repeat("Batch {s}, train_perplexity=81{e}.2"), {"step": 50, "loss": None}),
    "score at a step": (repeat("Score at iteration {s} is {l}"), {"step": 50, "loss": None}),
    "time of an epoch": (repeat("Time for epoch {e} is 12.3 sec"), {"epoch": 5, "loss": None}),
    "step of a network": (repeat("G_step [{s}/900], D_step [{s}/900], d_real: {l}"), AT_50 | {"total": 900}),
    "error of an iteration": (repeat("iteration {s}, error: {l}"), {"step": 50, "loss": None}),
}

RATES: dict[str, Format] = {
    **{f"speed in {unit}": (repeat(f"step {{s}} loss {{l}} 812.5 {unit}"), AT_50 | {"speed": 812.5}) for unit in _UNITS},
    **{
        f"speed in ({unit})": (repeat(f"step {{s}} | loss {{l}} | (812.5 {unit})"), AT_50 | {"speed": 812.5}) for unit in _UNITS
    },
    **{f"{name} is a speed": (repeat(f"step {{s}} loss {{l}} {name}: 812.5"), AT_50 | {"speed": 812.5}) for name in _NAMES},
    **{f"speed from {text}": (repeat(f"step {{s}} loss {{l}} {text}"), AT_50 | {"speed": 2}) for text in _TIMES},
}

OTHER_NAMES: dict[str, Format] = {
    "CatBoost": (
        repeat("{s}:\tlearn: {l}\ttest: 2.5\tbest: 2.5 (9)\ttotal: 12ms\tremaining: 3.1s"),
        AT_50,
    ),
    "a script L": (repeat("epoch 0 batch {s}/200  ℒ={l}"), AT_50 | {"epoch": 0}),
    "quoted cells": (['"epoch","step","train_loss"', *repeat('"0","{s}","{l}"')], AT_50 | {"epoch": 0}),
}


def list_steps(layout: str, last_loss: float) -> list[str]:
    """Return five lines of a layout with a falling loss."""
    return [layout.format(s=step, l=round(last_loss + (100 - step) / 50, 2)) for step in range(20, 101, 20)]


STAGES: dict[str, Format] = {
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

FAMILIES: dict[str, Format] = (
    STAGES | SUMS | COLUMNS | NESTED | COUNTERS | VALIDATION | REDRAWN | SHAPES | WITHOUT_LOSS | RATES | OTHER_NAMES
)

OTHER_WORK: dict[str, list[str]] = {
    "a number of samples": repeat('{{"n": {s}, "latency": {l}}}'),
    "quoted cells of other work": ['"name","step","region"', *repeat('"a{i}","{s}","eu"')],
    "times of a benchmark": repeat("iteration {s}: step time 0.{s} ms, total 12.{i}"),
    "times of a kernel": repeat("iter {s} avg time/iter 0.{s}"),
    "evaluation of a batch": repeat("val batch {s}/100 val_loss {l} 812 samples/s"),
    "bandwidth of a device": repeat("{s} [GPU] bandwidth: {l} GB/s"),
    "sizes of parts": repeat("fold {e}: train 0.8 val 0.2"),
    "use of a processor": repeat("CPU {s}% mem {l}"),
    "percent of a download": repeat("Downloading: {s}% loss={l} MB"),
    "tuples": repeat("({s}, 'worker', {l})"),
    "floating point": repeat("step {s} TFLOPs/s: 31.{i}"),
    "rates of groups": repeat("group {s} lr {l}"),
    "settings": ["step: 10", "lr: 0.1", "step: 20", "lr: 0.2", "step: 30", "lr: 0.3", "total: 4.5"],
    "steps of loading": repeat("Loading step {s} 812 samples/s"),
    "calibration": repeat("calibration step {s}/100: mse {l}"),
    "disks": repeat("({i}/24) disk loss probability {l}"),
    "shares": repeat("{{'train': 0.{s}, 'val': 0.{e}}}"),
    "totals": repeat("step {s}: total 12.{i} GB, overall 0.9{i}"),
    "settings of totals": ["step: 5", "total: 2.5", "overall: 0.5", "total: 3.5"],
    "letters of a machine": repeat("G1 X{s} Y{l} E0.5"),
    "seasons": repeat("S01 E{s} L1"),
    "ranks with a loss of packets": repeat("({i}/24) packet loss={l}"),
    "columns of a list": ["Epoch   name   size   state", *repeat("{e}   worker   {l}   ready")],
    "pieces of hardware": repeat("GPU{i} L1 {s} L2 {l}"),
    "error of a solver": repeat("rk4 step {s} t=0.{s} Error: {l}e-05"),
    "gradient norm of a solver": repeat("Newton iteration {s}: gradient norm = {l}"),
    "batches of a training set": repeat("Training set batch {s} written to disk in 1.{e} s"),
    "results of rounds": repeat("Round {e}: score {s}-{e}"),
    "blocks of an epoch": repeat("Epoch {e}: {s} / 900 blocks finalized"),
    "times of a solver": repeat("Time for iteration {s} is 12.{i} sec"),
    "versions": repeat("I{s} module {l} loaded"),
    "numbers of correct answers": repeat("Fold {e}: 9{s} / 10000"),
}
