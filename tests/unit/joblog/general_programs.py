"""Layouts of public programs and hobby scripts, with the values of their last lines, and lines of other work.

The layouts are written after the sources of the programs, many of them named by repository, with values of our own. Each takes
a path of the reader that no other takes. `general_formats` explains the placeholders.
"""

from __future__ import annotations

from tests.unit.joblog.general_formats import AT_50, Values, redraw, repeat

EPOCH_5: dict[str, float | None] = {"epoch": 5, "loss": 1.98}

_LINES: dict[str, tuple[str, Values]] = {
    "kaldi nnet": (
        (
            "LOG (nnet3-train[5.5]:PrintStatsForThisMinibatch():nnet-training.cc:243) iteration {s}: "
            "objective function is -{l} over 12800 frames"
        ),
        {"step": 50},
    ),
    "whisper ft": ("step: {s} | train/loss: {l} | train/wer: 0.31 | lr: 1e-05", AT_50 | {"lr": 1e-05}),
    "vits": ("INFO:vits:Train Epoch: 3 [{s}%]\nINFO:vits:[2.{i}, {l}, 3.1, 20.4, 1.1, 1.4, {s}, 0.0002]", {"epoch": 3}),
    "graphs step": ("[train] step {s} | graphs/s 812.5 | mae 0.31 | loss {l}", AT_50 | {"speed": 812.5}),
    "sb3": (
        (
            "------------------------------------\n"
            "| rollout/                |        |\n"
            "|    ep_len_mean          | 22.1   |\n"
            "|    ep_rew_mean          | 2{i}.1 |\n"
            "| time/                   |        |\n"
            "|    fps                  | 812    |\n"
            "|    iterations           | {e}    |\n"
            "|    total_timesteps      | {s}48  |\n"
            "| train/                  |        |\n"
            "|    loss                 | {l}    |\n"
            "|    value_loss           | 31.2   |\n"
            "------------------------------------"
        ),
        {"loss": 1.98, "speed": 812},
    ),
    "rsl": (
        (
            "                        Learning iteration {s}/1500                        \n"
            "\n"
            "                       Computation: 81234 steps/s (collection: 0.5s, learning 0.3s)\n"
            "               Value function loss: {l}\n"
            "                    Surrogate loss: -0.0031\n"
            "             Mean action noise std: 0.98\n"
            "                       Mean reward: 1{i}.2\n"
        ),
        {"step": 50, "total": 1500, "speed": 81234},
    ),
    "ppo hobby": (
        "Update {s}, Steps {s}00, Mean Reward 1{i}.3, Policy Loss {l}, Value Loss 0.3, FPS 812",
        AT_50 | {"speed": 812},
    ),
    "verl": (
        "step:{s} - actor/pg_loss:{l} - actor/kl_loss:0.001 - actor/lr:1e-06 - perf/throughput:812.5",
        AT_50 | {"lr": 1e-06, "speed": 812.5},
    ),
    "stylegan": (
        (
            "tick {e}     kimg {s}.0     time 1m 23s       sec/tick 41.2    sec/kimg 10.3    maintenance "
            "5.1    cpumem 5.1   gpumem 12.2   augment 0.000"
        ),
        {"step": 5, "loss": None},
    ),
    "sd vae": ("Epoch 1 | Step {s} | rec 0.31 | kl 0.02 | p 0.1 | total {l}", AT_50 | {"epoch": 1}),
    "maxtext": (
        "completed step: {s}, seconds: 0.512, TFLOP/s/device: 81.2, Tokens/s/device: 812.5, total_weights: 65536, loss: {l}",
        AT_50 | {"speed": 812.5},
    ),
    "lightgbm": ("[{s}]\ttraining's l2: {l}\tvalid_1's l2: 3.3", AT_50 | {"evaluation_loss": 3.3}),
    "gensim": ("Loss after epoch {e}: {l}", EPOCH_5),
    "hobby np2": ("{{'iteration': {s}, 'loss': np.float32({l})}}", AT_50),
    "darknet": (" {s}: {l}, 2.4 avg loss, 0.001000 rate, 1.234567 seconds, 3200 images, 12.1 hours left", {"step": 50}),
    "flair": (
        (
            "2026-02-03 04:05:06,211 epoch 1 - iter {s}/1234 - loss {l} - time (sec): 12.34 - "
            "samples/sec: 81.25 - lr: 0.100000 - momentum: 0.0"
        ),
        AT_50 | {"lr": 0.1, "speed": 81.25},
    ),
    "mace": (
        "2026-02-03 04:05:06.137 INFO: Epoch {e}: head: default, loss={l}, RMSE_E_per_atom=  12.34 meV, RMSE_F=  31.20 meV / A",
        EPOCH_5,
    ),
    "spinningup": (
        (
            "---------------------------------------\n"
            "|             Epoch |               {e} |\n"
            "|      AverageEpRet |            2{i}.1 |\n"
            "|           LossPi  |          {l} |\n"
            "|             LossV |            31.2 |\n"
            "---------------------------------------"
        ),
        {"epoch": 5},
    ),
    "acme": ("[Learner] Critic Loss = 0.412 | Learner Steps = {s} | Policy Loss = {l} | Steps Per Second = 2.5", {"step": 50}),
    "dopamine": (
        "I0203 04:05:06.137000 140123 run_experiment.py:512] Steps executed: {s}00 Episode length: 123 Return: -2{i}.0",
        {"step": 5000, "loss": None},
    ),
    "nle": (
        "[INFO:1 polybeast:2 2026-02-03 04:05:06,211] Step {s} @ 812.5 SPS. Inference batcher size: 3. Loss {l}.",
        AT_50 | {"speed": 812.5},
    ),
    "wgan": ("[0/1000][1/782][{s}] Loss_D: {l} Loss_G: 0.4 Loss_D_real: 0.3 Loss_D_fake 0.1", {"loss": 1.98}),
    "biggan": (
        "1/1000 (  1.2%)  (TE/ET1k: 1:02 / 2:03)  itr: {s}, G_loss : +{l}, D_loss_real : +0.9, D_loss_fake : +0.8",
        AT_50,
    ),
    "stargan": (
        "Elapsed [0:01:23], Iteration [{s}/200000], D/loss_real: -0.5, D/loss_fake: 0.1, G/loss_rec: {l}",
        {"step": 50, "total": 200000},
    ),
    "lua": ("<epoch 1> [{s}/469] err = {l}", {"step": 50}),
    "perl": ("iteration {s}, error: {l}", {"step": 50}),
    "tuple c": ("['iter', {s}, 'train_loss', {l}, 'lr', 0.01]", AT_50 | {"lr": 0.01}),
    "tuple n2": ("{s} loss={l}", AT_50),
    "tuple n3": ("  {s} - loss: {l} - acc: 0.1", AT_50),
    "tuple n4": ("{s} [D loss: {l}, acc.: 51.20%] [G loss: 0.8]", AT_50),
    "tuple n7": ("[{s}] loss -> {l}; val_loss -> 3.3", AT_50),
    "openai/gpt-2 finetuning": ("[{s} | {s}1.20] loss={l} avg=2.40", AT_50),
    "spro/practical-pytorch seq2seq": ("0m {s}s (- 15m 9s) ({s}00 {s}%) loss {l}", {"step": 5000, "loss": 1.98}),
    "dmlc/dgl-ke train_pytorch": (
        "[proc 0][Train]({s}/900) average loss: {l}\n[proc 0][Train]({s}/900) average pos_loss: 9.1",
        AT_50 | {"total": 900},
    ),
    "Lightning rich bar, wrapped after its first values": (
        (
            "Epoch 3/9 ━━━━━━━━━━━━━━ {s}/900 0:00:11 • 0:03:20 11.84it/s v_num: 0.000 \n{w}val/loss: 9.1\n"
            "{w}train/loss:      \n{w}{l}       "
        ).replace("{w}", " " * 30),
        AT_50 | {"epoch": 3, "speed": 11.84},
    ),
    "Lightning rich bar, wrapped within the values of training": (
        "Epoch 3/9 ━━━━━━━━━━━━━━ {s}/900 0:00:11 • 0:03:20 11.84it/s val/loss: 9.1\n   train/loss:   \n   {l}",
        AT_50 | {"epoch": 3, "speed": 11.84},
    ),
    "Lightning rich bar that ends with a name": (
        "Epoch 3/9 ━━━━━━━━━━━━━━ {s}/900 0:00:11 • 0:03:20 11.84it/s loss: \n   {l} acc: \n   0.3",
        AT_50 | {"epoch": 3, "speed": 11.84},
    ),
    "abbreviated capitals": ("It. {s} | Tr. loss {l} | L.R. 1.0e-04 | 1.2 s", AT_50 | {"lr": 0.0001}),
    "percentage with a space": ("progress {s}.2 % loss {l}", {"step": None, "loss": 1.98}),
    "rl_games print_statistics": (
        "fps step: 574{i} fps step and policy inference: 520{i} fps total: 480{i} epoch: {e}/60 frames: 2{s}",
        {"step": 250, "total": None, "epoch": 5, "loss": None, "speed": 5744.0},
    ),
    "rl_games in older versions": (
        "epoch: {e} fps step: 574{i}.1 fps total: 480{i}.2",
        {"step": None, "epoch": 5, "loss": None},
    ),
    "episode lengths": ("Episode {s}\tLast length: 2{i}\tAverage length: 18.{i}", {"step": 50, "loss": None}),
    "jiesutd/NCRFpp": ("     Instance: {s}00; Time: 1.23s; loss: {l}; acc: 300/400=0.75", {"step": 5000, "loss": 1.98}),
    "leela-zero tfprocess": (
        "step {s}, lr=0.02 policy=2.3 value=0.2 mse=0.1 reg=0.2 total={l} (123.4 pos/s)",
        AT_50 | {"lr": 0.02},
    ),
    "of a total": ("Seq {s} of 9000 | mean loss {l}", AT_50),
    "games": ("Last test reward: 10.00. Training step: {s}/10000. Played games: 12. Loss: {l}", AT_50),
    "trax block": (
        (
            "Step     {s}: Ran 10 train steps in 12.02 secs\nStep     {s}: train CrossEntropyLoss |  {l}\nStep   "
            "  {s}: eval  CrossEntropyLoss |  9.1"
        ),
        AT_50,
    ),
    "logger named test": ("2026-02-03 04:05:06,211 - resnet-test - INFO - step={s} loss={l}", AT_50),
    "cluster": ("dev-cluster | step {s} | loss {l}", AT_50),
    "ml-agents": (
        "[INFO] 3DBall. Step: {s}000. Time Elapsed: 20.123 s. Mean Reward: 1.{i}. Std of Reward: 0.7. Training.",
        {"step": 50000, "loss": None},
    ),
    "alex-petrenko/sample-factory": (
        (
            "[2026-02-03 04:05:06,211][00012] Fps is (10 sec: 12{i}4.5, 60 sec: 1200.1, 300 sec: 1150.0). Total "
            "num frames: {s}4176. Throughput: 0: 1234.1. Samples: 12345. Policy #0 lag: (min: 0.0, avg: 0.5, "
            "max: 2.0)"
        ),
        {"step": 504176, "loss": None},
    ),
    "MLLOG": (
        (
            ':::MLLOG {{"namespace": "", "time_ms": 159200{s}, "event_type": "POINT_IN_TIME", "key": '
            '"train_loss", "value": {l}, "metadata": {{"file": "train.py", "lineno": 231, "step_num": {s}}}}}'
        ),
        AT_50,
    ),
    "tag and value": ('{{"tag": "train/loss", "value": {l}, "step": {s}}}', AT_50),
    "name and value": ("metric name=loss value={l} step={s}", AT_50),
    "determined": ("INFO: report_training_metrics(steps_completed={s}, metrics={{'loss': {l}}})", AT_50),
    "fxia22/pointnet.pytorch": ("[0: {s}/100] train loss: {l} accuracy: 0.5", AT_50),
    "SaoYan/DnCNN": ("[epoch 1][{s}/100] loss: {l} PSNR_train: 20.1", AT_50),
    "MIC-DKFZ/nnUNet": (
        (
            "2026-02-03 04:05:06.211: Epoch {i}\n2026-02-03 04:05:06.211: Current learning rate: "
            "0.00{i}1\n2026-02-03 04:05:07.211: train_loss -{l}\n2026-02-03 04:05:07.211: val_loss "
            "-0.6\n2026-02-03 04:05:07.211: Pseudo dice [0.8, 0.9]\n2026-02-03 04:05:07.211: Epoch time: 80.1 s"
        ),
        {"epoch": 4, "loss": -1.98},
    ),
    "OpenPCDet": (
        (
            "2026-02-03 04:05:06,211   INFO  Train:    1/80 (  1%) [  {s}/3712 (  1%)]  Loss: {l} (2.31)  LR: "
            "1.000e-03  Time cost: 00:10/10:20 [00:10/13:00:00]  Acc_iter {s}  Data time: 0.01(0.02)  Forward "
            "time: 0.1(0.1)  Batch time: 0.2(0.2)"
        ),
        AT_50,
    ),
    "jcjohnson/neural-style": (
        "Iteration {s} / 1000\n  Content 1 loss: 0.5\n  Style 1 loss: 0.7\n  Total loss: {l}",
        AT_50,
    ),
    "eval arrow": (
        "Epoch {e} train_loss {l}\nValidation loss decreased (0.69 --> 0.67).  Saving model ...",
        {"epoch": 5, "loss": 1.98, "evaluation_loss": 0.67},
    ),
    "eval total": (
        "step {s} loss {l}\nvalidation: cls_loss 0.2 box_loss 0.1 total_loss 0.3",
        AT_50 | {"evaluation_loss": 0.3},
    ),
    "text2len": (
        "epoch: 001 inner_iter:    {s} 1m 3s (- 10m 5s) niter: 00000{s} completed:   1%)\ntrain_loss: {l}",
        AT_50,
    ),
    "zh end": ("epoch  {e} 训练结束 : avg_loss = {l}", EPOCH_5),
    "acc paren": ("epoch {e} LR: 0.000100, Acc: 0.5000 (500/1000), Loss: {l}", EPOCH_5),
    "after iterations": ("After {s} iterations, training loss = {l}", AT_50),
    "minibatch": ("Minibatch loss at step {s}: {l}", AT_50),
    "shards seen": ("seen {s} shards, loss: {l}", AT_50),
    "under epoch": (
        "Epoch {e}\n-------------------------------\nloss: {l}  [  640/60000]",
        {"loss": 1.98, "epoch": 5},
    ),
    "gpt fast": (
        "Step {s} | Loss: {l} | Grad: 1.20 | LR: 3.0e-04 | Tok/s: 12,345 | MFU: 40.1%",
        AT_50 | {"lr": 0.0003},
    ),
    "loss at": ("loss {l} ({s} steps)", AT_50),
    "loss then it": ("train loss {l} after {s} updates", AT_50),
    "ppo reward": ("Iter {s} | ep_rew_mean 1{i}.2 | ep_len_mean 200", {"step": 50, "loss": None}),
    "sac": ("| total_steps {s}000 | ep_reward 1{i}.2 | actor_loss -0.3 | critic_loss {l}", {"step": 50000}),
    "bpc": ("step {s} bpc {l}", AT_50),
    "click": ("Training  [####----]  {s}/900  00:10:00  loss {l}", AT_50),
}

_BARS: dict[str, tuple[str, Values]] = {
    "rosinality/stylegan2": (
        (
            "d: {l}; g: 0.9{i}11; r1: 0.0123; path: 0.1000; mean path: 0.0100; augment: 0.0000:   1%|  | "
            "{s}/800000 [00:10<10:00:00,  2.00it/s]"
        ),
        {"step": 50},
    ),
    "fasttext": ("Progress:  {s}.1% words/sec/thread:   81234 lr:  0.04500 avg.loss:  {l} ETA:   0h 1m 2s", {"loss": 1.98}),
    "allennlp": ("accuracy: 0.3102, batch_loss: 2.1, loss: {l} ||:   5%|5         | {s}/1000 [00:10<03:20,  2.50it/s]", AT_50),
    "simpletransformers": ("Epochs 1/3. Running Loss:    {l}:   5%|▌         | {s}/1000 [00:10<03:20,  2.50it/s]", AT_50),
    "sentence-transformers": ("Iteration:   5%|▌         | {s}/1000 [00:10<03:20,  2.50it/s]", {"step": 50, "loss": None}),
}

PROGRAMS: dict[str, tuple[list[str], Values]] = {
    **{name: (repeat(layout), values) for name, (layout, values) in _LINES.items()},
    **{name: (redraw(layout), values) for name, (layout, values) in _BARS.items()},
}

OTHER_PROGRAMS = {
    "bar l": redraw("Reading:  10%|█   | {s}/100 [00:10<00:10, 10.00it/s, l=48{i}]"),
    "ram": redraw("Evaluate   :  10%|█   | {s}/100 [00:10<00:10, 10.00it/s, GPU RAM: 0.02 G/11.91 G]"),
    "gptq": repeat("Quantizing layer {s}, loss {l}"),
    "eval bpb": repeat("eval batch {s} loss {l}"),
    "rsync": repeat("{s} files, {l} GB, loss 0"),
}
