"""Layouts of frameworks and hobby scripts, with the values of their last lines; `general_formats` explains the placeholders.

The lines are our own, in the style of programs for speech, graphs, games, images, diffusion, and in other languages.
"""

from __future__ import annotations

from tests.unit.joblog.general_formats import AT_50, Values, redraw, repeat

EPOCH_5: dict[str, float | None] = {"epoch": 5, "loss": 1.98}

_LINES: dict[str, tuple[str, Values]] = {
    "espnet": (
        (
            "[host] 2026-02-03 04:05:06,211 (trainer:732) INFO: 5epoch:train:{s}-{s}batch: "
            "iter_time=1.2e-04, forward_time=0.145, loss_ctc={l}, loss_att=1.2, acc=0.31, loss={l}, "
            "backward_time=0.2, optim0_lr0=1.0e-04, train_time=0.9"
        ),
        AT_50 | {"epoch": 5, "lr": 0.0001},
    ),
    "icefall": (
        (
            "2026-02-03 04:05:06,211 INFO [train.py:961] (0/4) Epoch 3, batch {s}, loss[loss={l}, "
            "simple_loss=0.41, pruned_loss=0.39, over 5402.00 frames. ], tot_loss[loss=2.61, "
            "simple_loss=0.5, over 1234567.00 frames. ], batch size: 23, lr: 2.31e-02"
        ),
        AT_50 | {"epoch": 3, "lr": 0.0231},
    ),
    "wenet": (
        "2026-02-03 04:05:06,211 DEBUG TRAIN Batch 0/{s} loss {l} loss_att 41.2 loss_ctc 55.1 lr 0.00004 rank 0",
        AT_50 | {"epoch": 0, "lr": 4e-05},
    ),
    "funasr": (
        (
            "[2026-02-03 04:05:06,211][root][INFO] - train, rank: 0, epoch: 1/50, data_slice: 0/1, "
            "step_in_slice: {s}/4000, step_in_epoch: {s}, total step: {s}, (loss_avg_rank: {l}), "
            "(loss_avg_slice: {l}), (lr: 1.0e-04), [('loss', {l}), ('acc', 0.4)]"
        ),
        AT_50 | {"lr": 0.0001},
    ),
    "kaldi nnet": (
        (
            "LOG (nnet3-train[5.5]:PrintStatsForThisMinibatch():nnet-training.cc:243) iteration {s}: "
            "objective function is -{l} over 12800 frames"
        ),
        {"step": 50},
    ),
    "whisper ft": ("step: {s} | train/loss: {l} | train/wer: 0.31 | lr: 1e-05", AT_50 | {"lr": 1e-05}),
    "tts": (
        (
            "   --> STEP: {s}/406 -- GLOBAL_STEP: {s}\n"
            "     | > loss: {l}  (2.41)\n"
            "     | > grad_norm: 1.2  (1.3)\n"
            "     | > current_lr: 0.0001 \n"
            "     | > step_time: 0.5  (0.5)"
        ),
        AT_50,
    ),
    "vits": ("INFO:vits:Train Epoch: 3 [{s}%]\nINFO:vits:[2.{i}, {l}, 3.1, 20.4, 1.1, 1.4, {s}, 0.0002]", {"epoch": 3}),
    "speechbrain": (
        "Epoch: {e}, lr: 1.00e+00 - train loss: {l} - valid loss: 3.3, valid CER: 5.1",
        EPOCH_5 | {"evaluation_loss": 3.3},
    ),
    "pyg": ("Epoch: {e:03d}, Loss: {l}, Train: 0.31, Val: 0.29, Test: 0.30", EPOCH_5),
    "dgl": ("Epoch {i:05d} | Time(s) 0.0123 | Loss {l} | Accuracy 0.31 | ETputs(KTEPS) 812.1", {"epoch": 4, "loss": 1.98}),
    "dgl2": ("In epoch {e}, loss: {l}, val acc: 0.512 (best 0.530), test acc: 0.51 (best 0.52)", EPOCH_5),
    "ogb": ("Run: 01, Epoch: {e:02d}, Loss: {l}, Train: 31.2%, Valid: 29.1% Test: 30.2%", EPOCH_5),
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
    "dqn": ("Episode {s}/500, Score: 2{i}, Epsilon: 0.9{i}, Loss: {l}", AT_50 | {"total": 500}),
    "ppo hobby": (
        "Update {s}, Steps {s}00, Mean Reward 1{i}.3, Policy Loss {l}, Value Loss 0.3, FPS 812",
        AT_50 | {"speed": 812},
    ),
    "grpo": ("[step {s}] reward=0.3{i} kl=0.01 loss={l} tok/s=812", AT_50 | {"speed": 812}),
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
    "gan hobby": ("[Epoch 1/200] [Batch {s}/938] [D loss: {l}] [G loss: 0.7]", AT_50 | {"epoch": 1, "total": 938}),
    "keras gan": ("{s} [D loss: {l}, acc.: 51.20%] [G loss: 0.8]", AT_50),
    "esrgan": (
        (
            "<epoch:  1, iter:      {s}, lr:(1.000e-04,)> [eta: 1 day, 2:03:04, time (data): 0.412 "
            "(0.01)] l_g_pix: {l} l_g_percep: 1.2 l_d_real: 0.4"
        ),
        AT_50 | {"lr": 0.0001, "epoch": 1},
    ),
    "edm": (
        "tick {e}     kimg {s}.1      loss {l}    time 2m 10s      sec/tick 12.1    sec/kimg 1.20",
        {"step": 5, "loss": 1.98},
    ),
    "sd vae": ("Epoch 1 | Step {s} | rec 0.31 | kl 0.02 | p 0.1 | total {l}", AT_50 | {"epoch": 1}),
    "dit": ("[2026-02-03 04:05:06] (step=00000{s}) Train Loss: {l}, Train Steps/Sec: 2.50", AT_50 | {"speed": 2.5}),
    "maxtext": (
        "completed step: {s}, seconds: 0.512, TFLOP/s/device: 81.2, Tokens/s/device: 812.5, total_weights: 65536, loss: {l}",
        AT_50 | {"speed": 812.5},
    ),
    "clu": (
        "I0203 04:05:06.137000 140123 logging_writer.py:48] [{s}] learning_rate=0.001, loss={l}, steps_per_sec=2.5",
        AT_50 | {"lr": 0.001, "speed": 2.5},
    ),
    "flax": ("I0203 04:05:06.137000 140123 train.py:45] train epoch: {e}, loss: {l}, accuracy: 31.2", EPOCH_5),
    "t5x": (
        (
            "I0203 04:05:06.137000 140123 metric_writer.py:98] {s} : accuracy=0.3, cross_ent_loss=812.1, "
            "loss={l}, learning_rate=0.01, timing/steps_per_second=2.5"
        ),
        AT_50 | {"lr": 0.01},
    ),
    "mlx": (
        (
            "Iter {s}: Train loss {l}, Learning Rate 1.000e-05, It/sec 2.512, Tokens/sec 812.5, Trained "
            "Tokens 51200, Peak mem 12.1 GB"
        ),
        AT_50 | {"lr": 1e-05},
    ),
    "lightgbm": ("[{s}]\ttraining's l2: {l}\tvalid_1's l2: 3.3", AT_50 | {"evaluation_loss": 3.3}),
    "xgb": ("[{s}]\ttrain-logloss:{l}\teval-logloss:3.3", AT_50 | {"evaluation_loss": 3.3}),
    "gensim": ("Loss after epoch {e}: {l}", EPOCH_5),
    "julia flux": ("[ Info: Epoch {e}: loss = {l}", EPOCH_5),
    "julia 2": ("┌ Info: step {s}\n│   loss = {l}\n└   acc = 0.31", AT_50),
    "rust burn": ("[Train - Epoch 1 - Iteration {s}] Loss {l} | Accuracy 31.2 %", AT_50 | {"epoch": 1}),
    "rust candle": ("{s} train loss: {l} test acc: 31.20%", AT_50),
    "rust tracing": ("2026-02-03T04:05:06.137Z  INFO train: step=50{i} loss={l} lr=0.001", {"step": 504, "loss": 1.98}),
    "llama.cpp ft": ("train_opt_callback: iter= {s} sample={s}/1000 sched=0.1 loss={l} dt=00:00:12 eta=00:12:12 |-->", AT_50),
    "js": (
        (
            "Epoch {e} / 5 ========================================>\n"
            "1234ms 12341us/step - acc=0.31 loss={l} val_acc=0.3 val_loss=3.3"
        ),
        EPOCH_5,
    ),
    "r torch": ("Epoch {e}, training loss: {l}, validation loss: 3.3", EPOCH_5 | {"evaluation_loss": 3.3}),
    "fairseq": (
        (
            "2026-02-03 04:05:06 | INFO | train_inner | epoch 001:     {s} / 1234 loss={l}, "
            "nll_loss=1.1, ppl=8.1, wps=81234, ups=2.5, wpb=32123, bsz=512, num_updates={s}, lr=1e-04, "
            "gnorm=1.2, loss_scale=8, train_wall=40, gb_free=12, wall=50"
        ),
        AT_50 | {"lr": 0.0001},
    ),
    "opennmt": (
        (
            "[2026-02-03 04:05:06,211 INFO] Step {s}/100000; acc: 31.2; ppl: 81.2; xent: {l}; lr: "
            "0.00010; sents: 4096; bsz: 2123/ 2012/ 8; 81234/80123 tok/s; 12 sec"
        ),
        AT_50 | {"lr": 0.0001},
    ),
    "marian": (
        (
            "[2026-02-03 04:05:06] Ep. 1 : Up. {s} : Sen. 12,345 : Cost {l} * 81,234 @ 4,321 after "
            "123,456 : Time 12.34s : 8123.45 words/s : gNorm 1.2 : L.r. 1.0e-04"
        ),
        AT_50 | {"epoch": 1, "speed": 8123.45},
    ),
    "detectron": (
        (
            "[02/03 04:05:06 d2.utils.events]:  eta: 1:02:03  iter: {s}  total_loss: {l}  loss_cls: 0.3  "
            "loss_box_reg: 0.2  time: 0.4123  data_time: 0.01  lr: 0.001  max_mem: 3123M"
        ),
        AT_50 | {"lr": 0.001},
    ),
    "recbole": (
        "epoch {e} training [time: 1.23s, train loss: {l}]\nepoch {e} evaluating [time: 0.12s, valid_score: 0.31]",
        EPOCH_5,
    ),
    "hobby arrow": ("step {s} => loss {l}", AT_50),
    "hobby semic": ("[{s}] train_loss -> {l}; val_loss -> 3.3", AT_50 | {"evaluation_loss": 3.3}),
    "hobby print tuple": ("({s}, 'loss', {l})", AT_50),
    "hobby print comma": ("epoch 1 step {s} loss tensor({l}, grad_fn=<NllLossBackward0>)", AT_50 | {"epoch": 1}),
    "hobby np": ("iteration: {s} loss: [{l}]", AT_50),
    "hobby np2": ("{{'iteration': {s}, 'loss': np.float32({l})}}", AT_50),
    "hobby emoji": ("🔥 it {s:>6} ┃ 📉 {l} loss ┃ ⚡ 812.5 tok/s", AT_50 | {"speed": 812.5}),
    "hobby epoch dash": ("Epoch: {e} - Batch: 100 - Loss: {l}", EPOCH_5),
    "hobby mean": ("epoch={e} mean train loss = {l} ({i}.2s)", EPOCH_5),
    "tf estimator": ("INFO:tensorflow:loss = {l}, step = {s} (0.412 sec)", AT_50),
    "tf est2": ("INFO:tensorflow:global_step/sec: 2.5\nINFO:tensorflow:loss = {l}, step = {s} (40.1 sec)", AT_50),
    "tf est3": ("I0203 04:05:06.137000 140123 basic_session_run_hooks.py:260] loss = {l}, step = {s} (40.123 sec)", AT_50),
    "tf models": ("I0203 04:05:06.137000 140 model_lib_v2.py:705] Step {s} per-step time 0.412s loss={l}", AT_50),
    "orbit": (
        "train | step:    {s} | steps/sec:    2.5 | output:\n    {{'learning_rate': 0.01,\n     'training_loss': {l}}}",
        AT_50 | {"lr": 0.01},
    ),
    "t2t": ("INFO:tensorflow:Step {s}: total_loss={l}, l2_loss=0.3, lr=0.01", AT_50 | {"lr": 0.01}),
    "haiku": ("[Step {s}] Train loss/acc: {l} / 0.31", AT_50),
    "jax mesh": ("step={s:5d}  loss={l:.4f}  gnorm=1.20  dt=500ms  mfu=31.2%  tok/s=812.5", AT_50 | {"speed": 812.5}),
    "accelerate": ("epoch 1: step {s}/1000 train_loss={l}", AT_50 | {"epoch": 1, "total": 1000}),
    "nemo": (
        (
            "Epoch 0: :   5%|▌         | {s}/1000 [00:10<03:20, v_num=0, reduced_train_loss={l}, "
            "global_step={s}.0, train_step_timing in s=0.5]"
        ),
        AT_50 | {"total": 1000},
    ),
    "nemo2": (
        (
            "Training epoch 0, iteration {s}/999 | lr: 0.01 | global_batch_size: 512 | global_step: {s} "
            "| reduced_train_loss: {l} | train_step_timing in s: 0.5"
        ),
        AT_50 | {"lr": 0.01, "epoch": 0},
    ),
    "gpt-neox": (
        (
            "  samples/sec: 81.2 | iteration       {s}/  320000 | elapsed time per iteration (ms): 500.0 "
            "| learning rate: 1.0E-04 | approx flops per GPU: 31.2TFLOPS | lm_loss: {l}E+00 | loss "
            "scale: 1.0 | number of skipped iterations:   0 |"
        ),
        AT_50 | {"lr": 0.0001, "total": 320000},
    ),
    "lit-gpt": (
        "Epoch 1 | iter {s} step {e} | loss train: {l}, val: n/a | iter time: 412.00 ms (step) remaining time: 1:02:03",
        AT_50 | {"epoch": 1},
    ),
    "tinyllama": (
        "iter {s} step {e}: loss {l}, iter time: 412.00ms (optimizer.step) remaining time: 12.00 hours. total time: 0.10 hours",
        AT_50,
    ),
    "nnunet": (
        (
            "2026-02-03 04:05:06.137: Epoch {e}\n"
            "2026-02-03 04:05:06.137: Current learning rate: 0.01\n"
            "2026-02-03 04:05:06.137: train_loss {l}\n"
            "2026-02-03 04:05:06.137: val_loss 3.3\n"
            "2026-02-03 04:05:06.137: Pseudo dice [0.31, 0.2]\n"
            "2026-02-03 04:05:06.137: Epoch time: 81.2 s"
        ),
        EPOCH_5 | {"lr": 0.01, "evaluation_loss": 3.3},
    ),
    "monai": (
        "----------\nepoch {e}/100\n1/24, train_loss: 3.1\n24/24, train_loss: 2.9\nepoch {e} average loss: {l}",
        {"epoch": 5},
    ),
    "monai ig": (
        "INFO:ignite.engine.engine.SupervisedTrainer:Epoch: 1/100, Iter: {s}/82 -- train_loss: {l} ",
        AT_50 | {"epoch": 1, "total": 82},
    ),
    "catalyst": ("train (3/10) loss: {l} | lr: 0.001 | step {s}", AT_50),
    "poutyne": (
        "Epoch: {e}/10 Train steps: 100 Val steps: 20 5.12s loss: {l} acc: 31.2 val_loss: 3.3 val_acc: 30.1",
        EPOCH_5 | {"evaluation_loss": 3.3},
    ),
    "paddle": (
        (
            "[2026/02/03 04:05:06] ppcls INFO: [Train][Epoch 1/120][Iter: {s}/5004]lr(LinearWarmup): "
            "0.00100, top1: 0.01, CELoss: {l}, loss: {l}, batch_cost: 0.5s, reader_cost: 0.01, ips: "
            "812.5 samples/s, eta: 1:02:03"
        ),
        AT_50 | {"epoch": 1, "lr": 0.001, "speed": 812.5},
    ),
    "paddledet": (
        (
            "[02/03 04:05:06] ppdet.engine INFO: Epoch: [0] [ {s}/1000] learning_rate: 0.001 loss_xy: "
            "0.5 loss_obj: 4.1 loss: {l} eta: 1:02:03 batch_cost: 0.4123 data_cost: 0.01 ips: 812.5 images/s"
        ),
        AT_50 | {"epoch": 0, "lr": 0.001, "speed": 812.5},
    ),
    "mxnet": (
        "INFO:root:Epoch[1] Batch [0-{s}]\tSpeed: 812.5 samples/sec\taccuracy=0.31\tcross-entropy={l}",
        AT_50 | {"epoch": 1, "speed": 812.5},
    ),
    "oneflow": (
        (
            "[rank:0] [train], epoch: 0/50, iter: {s}/5004, loss: {l}, lr: 0.001, top1: 0.01, "
            "throughput: 812.5 | 2026-02-03 04:05:06"
        ),
        AT_50 | {"epoch": 0, "lr": 0.001, "speed": 812.5},
    ),
    "colossal": ("[Epoch 1 / Iter {s}]: loss={l}, lr=0.001, throughput=812.5 samples/s", AT_50 | {"epoch": 1}),
    "darknet": (" {s}: {l}, 2.4 avg loss, 0.001000 rate, 1.234567 seconds, 3200 images, 12.1 hours left", {"step": 50}),
    "caffe": (
        (
            "I0203 04:05:06.137000 140123 solver.cpp:218] Iteration {s} (2.5 iter/s, 40.1s/100 iters), loss = {l}\n"
            "I0203 04:05:06.137000 140123 sgd_solver.cpp:105] Iteration {s}, lr = 0.001"
        ),
        AT_50 | {"lr": 0.001},
    ),
    "torch7": ("==> online epoch # {e} [batchSize = 128]\nTrain loss: {l}", EPOCH_5),
    "sockeye": (
        (
            "[INFO:sockeye.training] Epoch[1] Batch [{s}]\tSpeed: 812.50 samples/sec 81234.5 tokens/sec "
            "2.50 updates/sec\tppl=7.2 cross-entropy={l}"
        ),
        {"step": 50, "epoch": 1},
    ),
    "joey": (
        (
            "2026-02-03 04:05:06,211 - INFO - joeynmt.training - Epoch   1, Step:      {s}, Batch Loss:  "
            "   {l}, Batch Acc: 0.01, Tokens per Sec:     8123, Lr: 0.000300"
        ),
        AT_50 | {"epoch": 1, "lr": 0.0003, "speed": 8123},
    ),
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
    "schnet lightning": (
        "Epoch {i}: 100%|██████████| 100/100 [00:10<00:00,  9.50it/s, v_num=0, val_loss=3.300, train_loss={l}]",
        {"step": 100, "epoch": 4, "loss": 1.98, "evaluation_loss": 3.3},
    ),
    "muzero": ("Last test reward: 2{i}.00. Training step: {s}/100000. Played games: 12. Loss: {l}", AT_50 | {"total": 100000}),
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
    "alphazero": ("step {s}: policy_loss 1.1 value_loss 0.9 total_loss {l} elo 1200", AT_50),
    "wgan": ("[0/1000][1/782][{s}] Loss_D: {l} Loss_G: 0.4 Loss_D_real: 0.3 Loss_D_fake 0.1", {"loss": 1.98}),
    "biggan": (
        "1/1000 (  1.2%)  (TE/ET1k: 1:02 / 2:03)  itr: {s}, G_loss : +{l}, D_loss_real : +0.9, D_loss_fake : +0.8",
        AT_50,
    ),
    "stargan": (
        "Elapsed [0:01:23], Iteration [{s}/200000], D/loss_real: -0.5, D/loss_fake: 0.1, G/loss_rec: {l}",
        {"step": 50, "total": 200000},
    ),
    "nerf": ("[TRAIN] Iter: {s} Loss: {l}  PSNR: 21.2", AT_50),
    "llama2.c": ("{s} | loss {l} | lr 1.0e-04 | 412.12ms | mfu 31.20%", AT_50 | {"lr": 0.0001}),
    "minGPT": ("iter_dt 412.12ms; iter {s}: train loss {l}", AT_50),
    "lua": ("<epoch 1> [{s}/469] err = {l}", {"step": 50}),
    "perl": ("iteration {s}, error: {l}", {"step": 50}),
    "logfmt2": ("ts=2026-02-03T04:05:06Z caller=train.go:41 epoch=1 batch={s} loss={l} acc=0.31", AT_50 | {"epoch": 1}),
    "structlog": (
        "2026-02-03T04:05:06.137Z [info     ] train_step                     loss={l} lr=0.001 step={s}",
        AT_50 | {"lr": 0.001},
    ),
    "fortran": (" epoch =   {e}  cost = {l}E+00", EPOCH_5),
    "tuple b": ("('step', {s}, 'loss', {l})", AT_50),
    "tuple c": ("['iter', {s}, 'train_loss', {l}, 'lr', 0.01]", AT_50 | {"lr": 0.01}),
    "tuple f": ("step {s} [('loss', {l}), ('acc', 0.4)]", AT_50),
    "tuple p": (
        "Progress:  {s}.1% words/sec/thread:   81234 lr:  0.04500 avg.loss:  {l} ETA:   0h 1m 2s",
        {"loss": 1.98, "lr": 0.045},
    ),
    "tuple p2": ("[{s}%] loss: {l}", {"loss": 1.98}),
    "tuple p3": ("training {s}.0% complete, loss={l}, 12s left", {"loss": 1.98}),
    "tuple p4": ("Train Epoch: 3 [{s}%]", {"epoch": 3, "loss": None}),
    "tuple n1": ("{s} train loss: {l} test acc: 31.20%", AT_50),
    "tuple n2": ("{s} loss={l}", AT_50),
    "tuple n3": ("  {s} - loss: {l} - acc: 0.1", AT_50),
    "tuple n4": ("{s} [D loss: {l}, acc.: 51.20%] [G loss: 0.8]", AT_50),
    "tuple n7": ("[{s}] loss -> {l}; val_loss -> 3.3", AT_50),
    "tuple n8": ("step {s} → loss {l}", AT_50),
    "tuple n9": ("#{s} loss {l}", AT_50),
    "tuple n10": ("{s}: {l} loss", AT_50),
    "tuple n11": ("{s}\t{l} loss", AT_50),
    "scala": (
        (
            "[Epoch 1 {s}/60000][Iteration {s}][Wall Clock 1.23s] Trained 128.0 records in 0.01 seconds. "
            "Throughput is 812.5 records/second. Loss is {l}."
        ),
        AT_50 | {"epoch": 1},
    ),
    "steps of an epoch on two lines": (
        "Train epoch time: 81234.1 ms, per step time: 41.2 ms\nepoch: {e} step: 1875, loss is {l}",
        EPOCH_5,
    ),
    "catboost": ("{s}:\tlearn: {l}\ttest: 3.3\tbest: 3.1 ({s})\ttotal: 1.2s\tremaining: 12s", AT_50),
}

_BARS: dict[str, tuple[str, Values]] = {
    "diffusers": (
        "Steps:   5%|▌         | {s}/1000 [00:10<03:20,  2.50it/s, lr=1e-05, step_loss={l}]",
        AT_50 | {"total": 1000, "lr": 1e-05, "speed": 2.5},
    ),
    "ddpm hobby": ("loss: {l}:   5%|▌         | {s}/700000 [00:10<48:20,  2.50it/s]", AT_50 | {"total": 700000}),
    "fasttext": ("Progress:  {s}.1% words/sec/thread:   81234 lr:  0.04500 avg.loss:  {l} ETA:   0h 1m 2s", {"loss": 1.98}),
    "allennlp": ("accuracy: 0.3102, batch_loss: 2.1, loss: {l} ||:   5%|5         | {s}/1000 [00:10<03:20,  2.50it/s]", AT_50),
    "openpcdet": ("train:   5%|▌         | {s}/1000 [00:10<03:20,  2.50it/s, total_it={s}, lr=0.001, loss={l}]", AT_50),
    "deepspeech": ("Epoch 1 |   Training | Elapsed Time: 0:00:12 | Steps: {s} | Loss: {l}", AT_50 | {"epoch": 1}),
    "simpletransformers": ("Epochs 1/3. Running Loss:    {l}:   5%|▌         | {s}/1000 [00:10<03:20,  2.50it/s]", AT_50),
    "sentence-transformers": ("Iteration:   5%|▌         | {s}/1000 [00:10<03:20,  2.50it/s]", {"step": 50, "loss": None}),
    "tianshou": (
        "Epoch #1:   5%|5         | {s}/10000 [00:10<03:20, 812.50it/s, env_step={s}, len=200, loss={l}, rew=2.1]",
        AT_50,
    ),
    "cyclegan hobby": ("Epoch 001/200 [{s}/1096] -- loss_G: {l} | loss_G_GAN: 1.2 | ETA: 1:02:03", {"loss": 1.98}),
    "gsplat": (
        "Training progress:   5%|▌         | {s}/30000 [00:10<03:20, 81.25it/s, Loss=0{l}, Depth Loss=0.00]",
        {"step": 50},
    ),
}

PROGRAMS: dict[str, tuple[list[str], Values]] = {
    **{name: (repeat(layout), values) for name, (layout, values) in _LINES.items()},
    **{name: (redraw(layout), values) for name, (layout, values) in _BARS.items()},
}
