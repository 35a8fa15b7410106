"""Layouts of public programs, with the values of their last lines, and lines of other work that look like them.

The layouts are written after the sources of the programs, most of them named by repository, with values of our own. The others
are variants of them. `general_formats` explains the placeholders.
"""

from __future__ import annotations

from tests.unit.joblog.general_formats import Values, redraw, repeat

_LINES: dict[str, tuple[str, Values]] = {
    "openai/gpt-2 finetuning": ("[{s} | {s}1.20] loss={l} avg=2.40", {"step": 50, "loss": 1.98}),
    "facebookresearch/XLM trainer": (
        (
            "INFO - 02/03/26 04:05:06 - 0:01:2{i} -      {s} -  154.21 sent/s -  3957.94 words/s - MLM-en:  9.1 "
            "|| loss:  {l} - Transformer LR = 1.0e-05"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "spro/practical-pytorch seq2seq": ("0m {s}s (- 15m 9s) ({s}00 {s}%) loss {l}", {"step": 5000, "loss": 1.98}),
    "dmlc/dgl-ke train_pytorch": (
        "[proc 0][Train]({s}/900) average loss: {l}\n[proc 0][Train]({s}/900) average pos_loss: 9.1",
        {"step": 50, "loss": 1.98, "total": 900},
    ),
    "Lightning rich bar, wrapped after its first values": (
        (
            "Epoch 3/9 ━━━━━━━━━━━━━━ {s}/900 0:00:11 • 0:03:20 11.84it/s v_num: 0.000 \n{w}val/loss: 9.1\n"
            "{w}train/loss:      \n{w}{l}       "
        ).replace("{w}", " " * 30),
        {"step": 50, "loss": 1.98, "epoch": 3, "speed": 11.84},
    ),
    "Lightning rich bar, wrapped within the values of training": (
        "Epoch 3/9 ━━━━━━━━━━━━━━ {s}/900 0:00:11 • 0:03:20 11.84it/s val/loss: 9.1\n   train/loss:   \n   {l}",
        {"step": 50, "loss": 1.98, "epoch": 3, "speed": 11.84},
    ),
    "Lightning rich bar that ends with a name": (
        "Epoch 3/9 ━━━━━━━━━━━━━━ {s}/900 0:00:11 • 0:03:20 11.84it/s loss: \n   {l} acc: \n   0.3",
        {"step": 50, "loss": 1.98, "epoch": 3, "speed": 11.84},
    ),
    "abbreviated learning rate": (
        "Ep. {e}/30: Train loss: {l}, Train acc.: 0.3, L.r.: 0.001",
        {"epoch": 5, "loss": 1.98, "lr": 0.001},
    ),
    "abbreviated capitals": ("It. {s} | Tr. loss {l} | L.R. 1.0e-04 | 1.2 s", {"step": 50, "loss": 1.98, "lr": 0.0001}),
    "word2vec in C": ("Alpha: 0.02  Progress: {s}.20%  Words/thread/sec: 210.1k  Loss: {l}", {"step": None, "loss": 1.98}),
    "percentage with a space": ("progress {s}.2 % loss {l}", {"step": None, "loss": 1.98}),
    "rl_games print_statistics": (
        "fps step: 574{i} fps step and policy inference: 520{i} fps total: 480{i} epoch: {e}/60 frames: 2{s}",
        {"step": 250, "total": None, "epoch": 5, "loss": None, "speed": 5744.0},
    ),
    "rl_games in older versions": (
        "epoch: {e} fps step: 574{i}.1 fps total: 480{i}.2",
        {"step": None, "epoch": 5, "loss": None},
    ),
    "flashlight Train.cpp": (
        "epoch: 1 | nupdates: {s} | lr: 0.4 | lrcriterion: 0.000000 | loss: {l} | train-LER: 39.1",
        {"step": 50, "loss": 1.98, "lr": 0.4, "epoch": 1},
    ),
    "episode lengths": ("Episode {s}\tLast length: 2{i}\tAverage length: 18.{i}", {"step": 50, "loss": None}),
    "unknown name": ("trainer | it_no={s} | bs=32 | loss={l}", {"step": 50, "loss": 1.98}),
    "mlcommons step_num": ("INFO: step_num: {s}, train_loss: {l}", {"step": 50, "loss": 1.98}),
    "float step": ("step: {s}.0 loss: {l} lr: 0.001", {"step": 50, "loss": 1.98, "lr": 0.001}),
    "exponent step": ("step: {s}e+00 loss: {l}", {"step": 50, "loss": 1.98}),
    "VainF/DeepLabV3Plus": ("Epoch 1, Itrs {s}/30000, Loss={l}", {"step": 50, "loss": 1.98}),
    "n_updates": ("n_upd {s} loss {l} gn 1.2", {"step": 50, "loss": 1.98}),
    "jiesutd/NCRFpp": ("     Instance: {s}00; Time: 1.23s; loss: {l}; acc: 300/400=0.75", {"step": 5000, "loss": 1.98}),
    "leela-zero tfprocess": (
        "step {s}, lr=0.02 policy=2.3 value=0.2 mse=0.1 reg=0.2 total={l} (123.4 pos/s)",
        {"step": 50, "loss": 1.98, "lr": 0.02},
    ),
    "of a total": ("Seq {s} of 9000 | mean loss {l}", {"step": 50, "loss": 1.98}),
    "sample counter": ("nsamp = {s}000, loss = {l}", {"step": 50000, "loss": 1.98}),
    "games": ("Last test reward: 10.00. Training step: {s}/10000. Played games: 12. Loss: {l}", {"step": 50, "loss": 1.98}),
    "google/trax": ("Step    {s}: train CrossEntropyLoss |  {l}", {"step": 50, "loss": 1.98}),
    "trax block": (
        (
            "Step     {s}: Ran 10 train steps in 12.02 secs\nStep     {s}: train CrossEntropyLoss |  {l}\nStep   "
            "  {s}: eval  CrossEntropyLoss |  9.1"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "loss is": ("loss at iteration {s} is {l}", {"step": 50, "loss": 1.98}),
    "princeton-vl/CornerNet": ("training loss at iteration {s}: {l}", {"step": 50, "loss": 1.98}),
    "iteration ended with": ("iteration {s} ended with loss of {l}", {"step": 50, "loss": 1.98}),
    "dash pairs": ("step - {s} loss - {l} lr - 0.001", {"step": 50, "loss": 1.98, "lr": 0.001}),
    "tilde": ("step ~ {s} loss ~ {l}", {"step": 50, "loss": 1.98}),
    "arrows": ("step -> {s} | loss -> {l}", {"step": 50, "loss": 1.98}),
    "double arrows": ("step => {s}, loss => {l}", {"step": 50, "loss": 1.98}),
    "pipes between": ("step | {s} | loss | {l}", {"step": 50, "loss": 1.98}),
    "commas between": ("step, {s}, loss, {l}", {"step": 50, "loss": 1.98}),
    "dots": ("step ...... {s} loss ...... {l}", {"step": 50, "loss": 1.98}),
    "angle": ("step <{s}> loss <{l}>", {"step": 50, "loss": 1.98}),
    "qubvel/segmentation_models.pytorch": (
        "\rtrain:  50%|█████     | {s}/100 [00:16<01:03,  4.76it/s, dice_loss - {l}, iou_score - 0.5]",
        {"step": 50, "loss": 1.98},
    ),
    "sanghoon/keras style": ("{s}/367 - 12s - dice_loss - {l} - iou_score - 0.5", {"step": 50, "loss": 1.98}),
    "logger named test": ("2026-02-03 04:05:06,211 - resnet-test - INFO - step={s} loss={l}", {"step": 50, "loss": 1.98}),
    "level and test": ("INFO:mi-test:step={s} loss_disc={l}", {"step": 50, "loss": 1.98}),
    "cluster": ("dev-cluster | step {s} | loss {l}", {"step": 50, "loss": 1.98}),
    "val in path": ("[exp/val-run3] step {s} loss {l}", {"step": 50, "loss": 1.98}),
    "proc": ("[proc 0][Train] Epoch 2 step {s} loss {l}", {"step": 50, "loss": 1.98, "epoch": 2}),
    "process of": ("Process 0/3: step {s}, loss {l}", {"step": 50, "loss": 1.98}),
    "gpu id": ("GPU 0 | step {s} | loss {l}", {"step": 50, "loss": 1.98}),
    "udacity/deep-reinforcement-learning": ("Episode {s}\tAverage Score: -5{i}.20", {"step": 50, "loss": None}),
    "seungeunrho/minimalRL": ("n_episode :{s}, score : 2{i}.4, n_buffer : 432, eps : 8.0%", {"step": 50, "loss": None}),
    "pytorch/examples reinforce": ("Episode {s}\tLast reward: 1{i}.00\tAverage reward: 10.46", {"step": 50, "loss": None}),
    "ml-agents": (
        "[INFO] 3DBall. Step: {s}000. Time Elapsed: 20.123 s. Mean Reward: 1.{i}. Std of Reward: 0.7. Training.",
        {"step": 50000, "loss": None},
    ),
    "IntelLabs/coach": (
        (
            "Training> Name=main/agent, Worker=0, Episode={i}, Total reward={l}, Exploration=0.5, Steps={s}, "
            "Training iteration={i}"
        ),
        {"loss": None},
    ),
    "deepmind/acme": ("[Learner] Learner Steps = {s} | Loss = {l} | Walltime = 12.3", {"step": 50, "loss": 1.98}),
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
        {"step": 50, "loss": 1.98},
    ),
    "tag and value": ('{{"tag": "train/loss", "value": {l}, "step": {s}}}', {"step": 50, "loss": 1.98}),
    "name and value": ("metric name=loss value={l} step={s}", {"step": 50, "loss": 1.98}),
    "determined": ("INFO: report_training_metrics(steps_completed={s}, metrics={{'loss': {l}}})", {"step": 50, "loss": 1.98}),
    "karpathy/llama2.c": ("{s} | loss {l} | lr 1.000000e-04 | 123.45ms | mfu 12.30%", {"step": 50, "loss": 1.98, "lr": 0.0001}),
    "karpathy/llm.c": (
        "step   {s}/1000 | loss {l} (+1.20z)| norm 1.2000 (+0.31z)| lr 3.00e-04 | 120.11 ms | 40.1% bf16 MFU | 123456 tok/s",
        {"step": 50, "loss": 1.98, "lr": 0.0003, "speed": 123456},
    ),
    "kellerjordan/modded-nanogpt": (
        "step:{s}/1750 train_loss:{l} train_time:12345ms step_avg:123.45ms",
        {"step": 50, "loss": 1.98},
    ),
    "google/maxtext": (
        "completed step: {s}, seconds: 1.23, TFLOP/s/device: 100.1, Tokens/s/device: 1234.5, total_weights: 65536, loss: {l}",
        {"step": 50, "loss": 1.98},
    ),
    "stanford-crfm/levanter": (
        "Progress on:train {s}.0it/100it rate:1.2it/s remaining:01:10 elapsed:00:05 postfix:loss={l}",
        {"step": 50, "loss": 1.98},
    ),
    "fatchord/WaveRNN": ("| Epoch: 1/10 ({s}/200) | Loss: {l} | 1.2 steps/s | Step: 1k | ", {"loss": 1.98, "epoch": 1}),
    "Rayhane-mamah/Tacotron-2": ("Step    {s} [1.234 sec/step, loss={l}, avg_loss=5.1]", {"step": 50, "loss": 1.98}),
    "annotated transformer": (
        "Epoch Step:     {s} | Accumulation Step:   5 | Loss:   {l} | Tokens / Sec:  2345.1 | Learning Rate: 5.4e-07",
        {"step": 50, "loss": 1.98},
    ),
    "xingyizhou/CenterNet": (
        (
            "ctdet/default train: [1][{s}/7330]|Tot: 0:01:00 |ETA: 1:00:00 |loss {l} |hm_loss 4.0 |wh_loss 1.0 "
            "|Data 0.1s |Net 0.5s "
        ),
        {"step": 50, "loss": 1.98},
    ),
    "hszhao/semseg": (
        (
            "Epoch: [1/200][{s}/3712] Data 0.001 (0.01) Batch 0.6 (0.6) Remain 01:02:03 MainLoss 1.2 AuxLoss 0.5 "
            "Loss {l} Accuracy 0.7."
        ),
        {"step": 50, "loss": 1.98},
    ),
    "deepinsight/insightface": (
        (
            "Training: 2026-02-03 04:05:06,211-Speed 1234.56 samples/sec   Loss {l}   LearningRate 0.0999   "
            "Epoch: 0   Global Step: {s}   Fp16 Grad Scale: 65536   Required: 10 hours"
        ),
        {"step": 50, "loss": 1.98, "lr": 0.0999, "speed": 1234.56},
    ),
    "yang-song/score_sde": (
        "I0203 04:05:06.137 1401 run_lib.py:130] step: {s}, training_loss: {l}e+00",
        {"step": 50, "loss": 1.98},
    ),
    "ermongroup/ddim": (
        "INFO - diffusion.py - 2026-02-03 04:05:06,211 - step: {s}, loss: {l}, data time: 0.01",
        {"step": 50, "loss": 1.98},
    ),
    "fxia22/pointnet.pytorch": ("[0: {s}/100] train loss: {l} accuracy: 0.5", {"step": 50, "loss": 1.98}),
    "SaoYan/DnCNN": ("[epoch 1][{s}/100] loss: {l} PSNR_train: 20.1", {"step": 50, "loss": 1.98}),
    "tf-agents": ("step = {s}: loss = {l}", {"step": 50, "loss": 1.98}),
    "pytorch/ignite": ("Epoch[1] Iteration[{s}/938] Loss: {l}", {"step": 50, "loss": 1.98}),
    "MIC-DKFZ/nnUNet": (
        (
            "2026-02-03 04:05:06.211: Epoch {i}\n2026-02-03 04:05:06.211: Current learning rate: "
            "0.00{i}1\n2026-02-03 04:05:07.211: train_loss -{l}\n2026-02-03 04:05:07.211: val_loss "
            "-0.6\n2026-02-03 04:05:07.211: Pseudo dice [0.8, 0.9]\n2026-02-03 04:05:07.211: Epoch time: 80.1 s"
        ),
        {"epoch": 4, "loss": -1.98},
    ),
    "stanza": (
        "2026-02-03 04:05:06 INFO: Finished STEP {s}/50000, loss = {l} (0.123 sec/batch), lr: 0.003",
        {"step": 50, "loss": 1.98, "lr": 0.003},
    ),
    "stanfordnlp/GloVe": ("02/03/26 - 04:05.06PM, iter: 0{s}, cost: {l}", {"step": 50, "loss": 1.98}),
    "facebookresearch/fastText": (
        "\rProgress:  {s}.3% words/sec/thread:   12345 lr:  0.040000 avg.loss:  {l} ETA:   0h10m",
        {"loss": 1.98, "lr": 0.04},
    ),
    "rosinality/stylegan2": (
        (
            "\rd: {l}; g: 0.9{i}11; r1: 0.0123; path: 0.1000; mean path: 0.0100; augment: 0.0000:   1%|  | "
            "{s}/800000 [00:10<10:00:00,  2.00it/s]"
        ),
        {"step": 50},
    ),
    "rosinality/vq-vae-2": (
        "\repoch: 1; mse: {l}; latent: 0.003; avg mse: 0.01234; lr: 0.00030:  10%|█   | {s}/800 [00:10<01:30,  2.00it/s]",
        {"step": 50, "loss": 1.98},
    ),
    "lucidrains/denoising-diffusion": ("\rloss: {l}:   1%|  | {s}/70000 [00:10<10:00,  2.00it/s]", {"step": 50, "loss": 1.98}),
    "clu": (
        "I0203 04:05:06.137 1401 logging_writer.py:48] [{s}] accuracy=0.5, loss={l}, steps_per_second=3.2",
        {"step": 50, "loss": 1.98},
    ),
    "facebookresearch/dinov2": (
        (
            "I20260203 04:05:06 1 dinov2 helpers.py:103] Training  [   {s}/125000]  eta: 1 day, 2:00:00  lr: "
            "0.0001 (0.0001)  total_loss: {l} (2.1000)  koleo_loss: 0.1 (0.1)  time: 0.5  data: 0.01  max mem: "
            "1200"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "salesforce/LAVIS": (
        (
            "Train: data epoch: [0]  [   {s}/1000]  eta: 0:10:11  lr: 0.000001  loss: {l}  time: 0.6345  data: "
            "0.0000  max mem: 8000"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "dmlc/xgboost": ("[{s}]\ttrain-logloss:{l}\teval-logloss:2.25", {"step": 50, "loss": 1.98}),
    "apache/mxnet": (
        "INFO:root:Epoch[1] Batch [{s}]\tSpeed: 1010.10 samples/sec\tcross-entropy={l}",
        {"step": 50, "loss": 1.98, "speed": 1010.1},
    ),
    "open-mmlab 0.x": (
        (
            "2026-02-03 04:05:06,211 - mmdet - INFO - Epoch [1][{s}/7330]\tlr: 1.978e-03, eta: 4:30:00, time: "
            "0.3, data_time: 0.04, memory: 3887, loss_cls: 0.5, loss: {l}"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "OpenNMT/OpenNMT-py": (
        (
            "[2026-02-03 04:05:06,211 INFO] Step {s}/100000; acc:   3.54; ppl: 56694.67; xent: {l}; lr: 0.00001; "
            "sents: 3200; bsz: 1234/1100/40; 1234/1234 tok/s;     12 sec;"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "awslabs/sockeye": (
        (
            "[INFO:sockeye.training] Epoch[0] Batch [{s}]\tSpeed: 1234.56 samples/sec 23456.7 tokens/sec 3.1 "
            "updates/sec\tperplexity=1234.5"
        ),
        {"step": 50},
    ),
    "flashlight": (
        (
            "epoch:        1 | nupdates:         {s} | lr: 0.400000 | lrcriterion: 0.000000 | runtime: 00:01:00 "
            "| bch(ms): 123.45 | loss:   {l} | train-TER: 20.1"
        ),
        {"step": 50, "loss": 1.98, "lr": 0.4},
    ),
    "NVIDIA DLE resnet": (
        "DLL 2026-02-03 04:05:06.211 - Epoch: 0 Iteration: {s}  train.loss : {l}  train.total_ips : 123.4 img/s",
        {"step": 50, "loss": 1.98},
    ),
    "snakers4/open_stt": (
        "Epoch: [1][{s}/1000]\tTime 0.5 (0.6)\tData 0.01 (0.02)\tLoss {l} (2.3)\t",
        {"step": 50, "loss": 1.98},
    ),
    "OpenPCDet": (
        (
            "2026-02-03 04:05:06,211   INFO  Train:    1/80 (  1%) [  {s}/3712 (  1%)]  Loss: {l} (2.31)  LR: "
            "1.000e-03  Time cost: 00:10/10:20 [00:10/13:00:00]  Acc_iter {s}  Data time: 0.01(0.02)  Forward "
            "time: 0.1(0.1)  Batch time: 0.2(0.2)"
        ),
        {"step": 50, "loss": 1.98},
    ),
    "facebookresearch/maskrcnn": (
        (
            "2026-02-03 04:05:06,211 maskrcnn_benchmark.trainer INFO: eta: 1:00:00  iter: {s}  loss: {l} (2.3)  "
            "loss_classifier: 0.5 (0.6)  time: 0.5 (0.5)  data: 0.01 (0.02)  lr: 0.002500  max mem: 3000"
        ),
        {"step": 50, "loss": 1.98, "lr": 0.0025},
    ),
    "parentheses": ("({s}) loss {l}", {"step": 50, "loss": 1.98}),
    "yunjey/stargan": (
        "Elapsed [0:00:1{i}], Iteration [{s}/200000], D/loss_real: -{l}, D/loss_fake: 0.3, D/loss_cls: 2.0, D/loss_gp: 0.1",
        {"step": 50},
    ),
    "lerobot": (
        "step:{s} smpl:3K ep:31 epch:0.2 loss:{l} grdn:9.8 lr:1.0e-05 updt_s:0.149 data_s:0.002",
        {"step": 50, "loss": 1.98, "lr": 1e-05},
    ),
    "jcjohnson/neural-style": (
        "Iteration {s} / 1000\n  Content 1 loss: 0.5\n  Style 1 loss: 0.7\n  Total loss: {l}",
        {"step": 50, "loss": 1.98},
    ),
    "batch and total": ("batch {s}/900  ETA 0:10  train_loss {l}  gpu_mem 1234MB", {"step": 50, "loss": 1.98}),
    "eriklindernoren/PyTorch-YOLOv3": (
        "---- [Epoch 0/100, Batch {s}/7330] ----\nTotal loss {l}\n---- ETA 1:00:00",
        {"step": 50, "loss": 1.98},
    ),
    "eval arrow": (
        "Epoch {e} train_loss {l}\nValidation loss decreased (0.69 --> 0.67).  Saving model ...",
        {"epoch": 5, "loss": 1.98, "evaluation_loss": 0.67},
    ),
    "eval total": (
        "step {s} loss {l}\nvalidation: cls_loss 0.2 box_loss 0.1 total_loss 0.3",
        {"step": 50, "loss": 1.98, "evaluation_loss": 0.3},
    ),
    "dict of epoch": ("epoch {e}: {{'train_loss': {l}, 'val_loss': 2.5, 'val_acc': 0.3}}", {"epoch": 5, "loss": 1.98}),
    "gcn": ("Epoch: 000{e} loss_train: {l} acc_train: 0.2 loss_val: 1.9 acc_val: 0.3 time: 0.01s", {"epoch": 5, "loss": 1.98}),
    "pyg": ("Epoch: 00{e}, Loss: {l}, Train: 0.9, Val: 0.8, Test: 0.81", {"epoch": 5, "loss": 1.98}),
    "dgl": ("Epoch 0000{e} | Time(s) 0.0123 | Loss {l} | Accuracy 0.6 | ETputs(KTEPS) 123.45", {"epoch": 5, "loss": 1.98}),
    "vae": ("====> Epoch: {e} Average loss: {l}", {"epoch": 5, "loss": 1.98}),
    "superres": ("===> Epoch[1]({s}/50): Loss: {l}", {"step": 50, "loss": 1.98}),
    "neural style torch": (
        "Tue Feb  3 04:05:06 2026\tEpoch 1:\t[{s}/82783]\tcontent: 1.2\tstyle: 2.3\ttotal: {l}",
        {"step": 50, "loss": 1.98},
    ),
    "recbole": ("Tue 03 Feb 2026 04:06:12 INFO  epoch {e} training [time: 0.47s, train loss: {l}]", {"epoch": 5, "loss": 1.98}),
    "hand-written: text2len": (
        "epoch: 001 inner_iter:    {s} 1m 3s (- 10m 5s) niter: 00000{s} completed:   1%)\ntrain_loss: {l}",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: gesture": (
        "Epoch {e}/9\n- 12s - loss:{l} - acc:0.3000 - val_loss:2.5000 - val_acc:0.2000",
        {"epoch": 5, "loss": 1.98},
    ),
    "hand-written: log_train": (
        "Train Epoch:   1  Step:  {s}  [ {s}0/5000 (  1.0%)]  Loss: {l}  lr_0: 0.0001  [0.123s every   32 data]",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: pairs comma": ("[1/200, {s}/938] Loss = {l}", {"step": 50, "loss": 1.98}),
    "hand-written: time/epoch": (
        "epoch     {e}/  100 | time/epoch    12.10 ms | loss {l} | val_loss 2.500000",
        {"epoch": 5, "loss": 1.98},
    ),
    "hand-written: paren losses": (
        "(epoch: 1, iters: {s}/4000, lr: 0.000200, t_data: 0.003) total: {l}",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: avg_loss": (
        "epoch =    {e} , avg_loss = {l} , time = 12.10 s , lr = 1.000000e-04",
        {"epoch": 5, "loss": 1.98, "lr": 0.0001},
    ),
    "hand-written: zh end": ("epoch  {e} 训练结束 : avg_loss = {l}", {"epoch": 5, "loss": 1.98}),
    "hand-written: gan steps": ("[{s}/9000] steps. D_loss: 0.500, G_loss: {l}", {"step": 50}),
    "hand-written: niter": ("[{s}] train_loss: {l}, image_nums: 1280, spend: 12.10", {"step": 50, "loss": 1.98}),
    "hand-written: test acc": ("[1,    {s}] train_loss: {l}  test_accuracy: 0.500", {"step": 50, "loss": 1.98}),
    "hand-written: EPOCH scores": (
        "EPOCH: {e} train_loss: {l} train_acc: 0.5 test_loss: 2.5 test_acc 0.4",
        {"epoch": 5, "loss": 1.98},
    ),
    "hand-written: sample cond": ("[sample 3][base] step={s}/500: recon_loss={l}", {"step": 50, "loss": 1.98}),
    "hand-written: sigma": (
        "Epoch  1 Step   {s} | loss={l} | lr=1.000000e-03 | mu=0.900 | sigma=1.00e-02 | frozen=0.1",
        {"step": 50, "loss": 1.98, "lr": 0.001},
    ),
    "hand-written: train tag": ("  [train] step {s}/900 loss={l} elapsed=12.1s", {"step": 50, "loss": 1.98}),
    "hand-written: acc paren": ("epoch {e} LR: 0.000100, Acc: 0.5000 (500/1000), Loss: {l}", {"epoch": 5, "loss": 1.98}),
    "hand-written: spent": ("Epoch {e} took 12.3s, mean loss was {l}", {"epoch": 5, "loss": 1.98}),
    "hand-written: finished epoch": ("Finished epoch {e} with loss {l} in 12.3 seconds", {"epoch": 5, "loss": 1.98}),
    "hand-written: after iterations": ("After {s} iterations, training loss = {l}", {"step": 50, "loss": 1.98}),
    "hand-written: minibatch": ("Minibatch loss at step {s}: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: iteration cost": ("Cost after iteration {s}: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: objective": ("{s}: objective={l}", {"step": 50, "loss": 1.98}),
    "hand-written: k-step": ("steps={s}k loss={l}", {"step": 50000, "loss": 1.98}),
    "hand-written: n=": ("n={s} | t=12.3s | loss={l}", {"step": 50, "loss": 1.98}),
    "hand-written: t= total": ("t={s}/900 | loss={l} | dt=12.3ms", {"step": 50, "loss": 1.98}),
    "hand-written: chunk": ("chunk {s}/90: loss {l} ({i}.2 s)", {"step": 50, "loss": 1.98}),
    "hand-written: shards seen": ("seen {s} shards, loss: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: world": ("rank=0 world=8 step={s} loss={l} mem=12.3GB", {"step": 50, "loss": 1.98}),
    "hand-written: node: rank": ("[node-0|rank-0] step={s} loss={l}", {"step": 50, "loss": 1.98}),
    "hand-written: r0": ("r0 | iter {s} | loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: P0": ("P0: step {s} loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: json t": ('{{"t": {s}, "train": {{"loss": {l}, "acc": 0.5}}}}', {"step": 50, "loss": 1.98}),
    "hand-written: json progress": (
        '{{"progress": {{"completed": {s}, "total": 900}}, "loss": {l}}}',
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: json event": (
        '{{"event": "train_step", "global_step": {s}, "metrics": {{"loss": {l}, "lr": 0.001}}}}',
        {"step": 50, "loss": 1.98, "lr": 0.001},
    ),
    "hand-written: json levelname": (
        '{{"level": "info", "ts": 1770000000.{s}, "msg": "train step", "step": {s}, "loss": {l}}}',
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: tuple": ("('step', {s}, 'loss', {l})", {"step": 50, "loss": 1.98}),
    "hand-written: list": ("['step', {s}, 'loss', {l}]", {"step": 50, "loss": 1.98}),
    "hand-written: yaml block": ("step: {s}\nloss: {l}\nlr: 0.001\n---", {"step": 50, "loss": 1.98}),
    "hand-written: indent block": (
        "=== Step {s} ===\n    loss ........ {l}\n    lr .......... 0.001",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: xml": ("<step>{s}</step><loss>{l}</loss>", {"step": 50, "loss": 1.98}),
    "hand-written: under epoch": (
        "Epoch {e}\n-------------------------------\nloss: {l}  [  640/60000]",
        {"loss": 1.98, "epoch": 5},
    ),
    "hand-written: keras bar text": (
        "{s}/900 [=>............................] - ETA: 1:10 - loss: {l} - accuracy: 0.5",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: jax host": (
        "I0203 04:05:06.137 1401 train.py:99] host 0 step {s} loss {l} steps/sec 3.2",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: gpt fast": (
        "Step {s} | Loss: {l} | Grad: 1.20 | LR: 3.0e-04 | Tok/s: 12,345 | MFU: 40.1%",
        {"step": 50, "loss": 1.98, "lr": 0.0003},
    ),
    "hand-written: mem first": ("mem 12.3G | step {s} | loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: time first": ("12.3s | step {s} | loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: percent first": ("{i}% | step {s} | loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: loss first": ("loss {l} @ step {s}", {"step": 50, "loss": 1.98}),
    "hand-written: loss at": ("loss {l} ({s} steps)", {"step": 50, "loss": 1.98}),
    "hand-written: loss then it": ("train loss {l} after {s} updates", {"step": 50, "loss": 1.98}),
    "hand-written: upd": ("update {s}: pg_loss -0.01, v_loss 0.4, loss {l}, kl 0.01", {"step": 50, "loss": 1.98}),
    "hand-written: grpo": ("step {s} | reward 0.3 | kl 0.01 | loss {l} | len 512", {"step": 50, "loss": 1.98}),
    "hand-written: rlhf": ("[iter {s}] policy_loss: {l} reward_mean: 0.3 response_len: 512", {"step": 50}),
    "hand-written: ppo reward": ("Iter {s} | ep_rew_mean 1{i}.2 | ep_len_mean 200", {"step": 50, "loss": None}),
    "hand-written: dqn": ("Ep {s} | score {i}.0 | eps 0.9 | loss {l}", {"loss": 1.98}),
    "hand-written: dqn2": ("episode: {s}/1000, score: 1{i}, e: 0.9", {"step": 50}),
    "hand-written: timesteps": ("Timesteps: {s}000, Return: 1{i}.2, FPS: 1234", {"step": 50000}),
    "hand-written: sac": ("| total_steps {s}000 | ep_reward 1{i}.2 | actor_loss -0.3 | critic_loss {l}", {"step": 50000}),
    "hand-written: recon": ("Iter {s} recon={l} kl=0.1 elbo=2.5", {"step": 50}),
    "hand-written: bpc": ("step {s} bpc {l}", {"step": 50, "loss": 1.98}),
    "hand-written: train_nll": ("epoch {e} train_nll={l} valid_nll=2.5", {"epoch": 5, "loss": 1.98}),
    "hand-written: mse": ("Epoch {e} - MSE: {l}", {"epoch": 5, "loss": 1.98}),
    "hand-written: diff": ("step {s} mse {l} vb 0.01 grad_norm 0.1", {"step": 50, "loss": 1.98}),
    "hand-written: tqdm custom": (
        "\rEpoch 1 | loss {l}:  10%|█   | {s}/900 [00:10<01:30,  2.00it/s]",
        {"step": 50, "loss": 1.98, "epoch": 1},
    ),
    "hand-written: tqdm postfix str": (
        "\r10%|█   | {s}/900 [00:10<01:30,  2.00it/s, Loss: {l} LR: 1e-3]",
        {"step": 50, "loss": 1.98},
    ),
    "hand-written: rich": ("Training ━━━━━━━━━━━━━━━━━━━━  {s}/900 0:00:10 0:01:30 loss: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: alive": ("on {s}: |████    | {s}/900 [10%] in 10.2s (2.0/s) loss={l}", {"step": 50, "loss": 1.98}),
    "hand-written: click": ("Training  [####----]  {s}/900  00:10:00  loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: fire": ("🔥 step {s} — loss {l} — lr 1e-3", {"step": 50, "loss": 1.98, "lr": 0.001}),
    "hand-written: emdash": ("Step {s} — Loss: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: semicolons": ("epoch;1;step;{s};loss;{l}", {"step": 50, "loss": 1.98}),
    "hand-written: double colon": ("step:: {s} loss:: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: bars": ("step = {s} || loss = {l} || lr = 0.001", {"step": 50, "loss": 1.98, "lr": 0.001}),
    "hand-written: brackets name": ("[step {s}] [loss {l}] [lr 0.001]", {"step": 50, "loss": 1.98, "lr": 0.001}),
    "hand-written: hash": ("#{s} loss={l}", {"step": 50, "loss": 1.98}),
    "hand-written: train on": ("Training on batch {s} of 900... loss={l}", {"step": 50, "loss": 1.98}),
    "hand-written: global": ("gs: {s}, loss: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: optim": ("opt_step {s} micro 4 loss {l}", {"step": 50, "loss": 1.98}),
    "hand-written: tokens": ("tokens: {s}M loss: {l}", {"step": 50000000, "loss": 1.98}),
    "hand-written: img": ("imgs {s}k loss {l}", {"loss": 1.98}),
    "hand-written: sec it": ("iter {s} ({i}.3 s/iter) loss: {l}", {"step": 50, "loss": 1.98}),
    "hand-written: val in same": ("step {s}: train loss {l}, val loss 2.5", {"step": 50, "loss": 1.98, "evaluation_loss": 2.5}),
    "hand-written: smooth": ("step {s} loss {l} (ema 2.41) lr 1e-3", {"step": 50, "loss": 1.98, "lr": 0.001}),
    "hand-written: mean std": ("iter {s}: loss = {l} ± 0.1", {"step": 50, "loss": 1.98}),
    "hand-written: thousands": ("Batch {s},000 of 900,000 loss: {l}", {"step": 50000, "loss": 1.98}),
}

SOURCES: dict[str, tuple[list[str], Values]] = {
    f"source: {name}": (redraw(layout[1:]) if layout.startswith("\r") else repeat(layout), values)
    for name, (layout, values) in _LINES.items()
}

OTHER_SOURCES = {
    "source: bar d": redraw("Generating:  10%|█   | {s}/100 [00:10<00:10, 10.00it/s, d={l}]"),
    "source: bar l": redraw("Reading:  10%|█   | {s}/100 [00:10<00:10, 10.00it/s, l=48{i}]"),
    "source: ram": redraw("Evaluate   :  10%|█   | {s}/100 [00:10<00:10, 10.00it/s, GPU RAM: 0.02 G/11.91 G]"),
    "source: rows": repeat("{s} {i}"),
    "source: timings": repeat("{s}\t12.{i}"),
    "source: latency": repeat("size {s} latency {l} us"),
    "source: vmstat": repeat(" {i}  0      0 123{s} 4567 89012    0    0     {i}   12   34   56  1  0 99  0  0"),
    "source: monitor": repeat("gpu 0 util 4{i} mem 12.{i} temp 5{i} t={s}"),
    "source: packet loss": repeat("seq={s} packet loss {l}%"),
    "source: build": repeat("[{s}/100] Building CXX object src/loss_{i}.cpp.o"),
    "source: requests": repeat("served {s} requests, p50 {l} ms, loss of connections 0"),
    "source: test loop": repeat("Test: [{s}/100]\tTime 0.1 (0.1)\tLoss {l} (2.1)\tAcc@1 50.0"),
    "source: countdown": repeat("{s}: {l} MB/s"),
    "source: disk": repeat("{s} 1{l} GB free"),
    "source: progress copy": redraw("  {s},000  {i}0%  12.{i}MB/s  0:00:10"),
    "source: temperature log": repeat("{s}:\t4{l}"),
    "source: beam": repeat("hypothesis {s} score -{l}"),
    "source: eval samples": repeat("sample {s} ppl {l}"),
    "source: calib": repeat("layer {s} quantization error {l}"),
    "source: gptq": repeat("Quantizing layer {s}, loss {l}"),
    "source: ckpt": repeat("saved shard {s} of 90 in {l}s"),
    "other: pytest": repeat("tests/test_loss.py::test_{s} PASSED [ {i}0%]"),
    "other: nccl": repeat("h:1:2 [0] NCCL INFO Channel {s}/0 : 0[0] -> 1[1] via P2P/loss {i}"),
    "other: eval bpb": repeat("eval batch {s} loss {l}"),
    "other: validation": repeat("Validation step {s}/90 | val_loss {l}"),
    "other: infer": repeat("request {s} took {l}s, tokens 512, 34.2 tok/s"),
    "other: search": repeat("trial {s} finished with loss {l}"),
    "other: params": repeat("layer.{s}.weight mean {l} std 0.02"),
    "other: k-means": repeat("worker {s} heartbeat {l}"),
    "other: audio": repeat("file {s} of 90 loudness {l} LUFS"),
    "other: table": repeat("loss_{s} weight {l}"),
    "other: calib": repeat("calibration {s}/90 scale {l}"),
    "other: bench": repeat("n={s} time={l} ms"),
    "other: rsync": repeat("{s} files, {l} GB, loss 0"),
    "other: packets": repeat("{s} packets, {i}% loss, rtt {l} ms"),
    "other: lrfinder": repeat("candidate {s} score {l}"),
    "other: compile": repeat("Compiling graph {s}, cost {l}"),
    "other: ckpt": repeat("Loading checkpoint shards:  {i}0% {s}/90 loss"),
    "other: queue": repeat("position {s} in queue, cost {l}"),
    "other: sim": repeat("layer {s} mse {l}"),
    "other: block": repeat("block {s} loss before {l} after 0.{i}"),
}
