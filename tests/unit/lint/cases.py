"""For each rule, specs that violate it and similar specs that do not. Each is merged over BASE."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {"name": "job", "image": "registry.example/train:1", "nodes": 2, "command": "torchrun train.py"}
TRAIN: dict[str, Any] = {
    "command": None,
    "train": {"model": "micro-llama", "data": "/data/text", "max_steps": 1, "sequence_length": 64},
}
LLAMA = {"model": "llama-3-8b", "data": "/data/text", "max_steps": 1, "sequence_length": 8192}
ELASTIC = {"elastic": {"min": 2, "max": 4}}


def train(**fields):
    return {"command": None, "train": {**TRAIN["train"], **fields}}


def llama(**fields):
    return {"command": None, "train": {**LLAMA, **fields}}


def spawned(ranks):
    return {**train(spawn=ranks), "launcher": "python"}


DATA = {"name": "data", "empty_dir": True, "mount_path": "/data"}
"""Mounts without unique names."""


def over(**pod):
    """Return overrides for the pod template of the workers."""
    return {"overrides": {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}}}


def volume(kind, **more):
    return {"volumes": [{"name": "work", "mount_path": "/work", **kind, **more}]}


HOST_NETWORK = {"pod": {"host_network": True}}
BY_POD_NAME = {"rendezvous": {"local_addr": "pod-name"}}
HERE = {"backend": "local"}
PVC = volume({"pvc": "work"})
FAKE_TOKEN = "hf_" + "a" * 34

# id: ([(spec, path of the violation, part of its message)], [specs without a violation])
CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "elastic-bounds": (
        [
            ({"elastic": {"min": 4, "max": 2}}, "elastic.min", "`elastic.min` 4 is greater than `elastic.max` 2"),
            ({"nodes": 1, **ELASTIC}, "nodes", "the job has 1 node, but `elastic` allows 2 to 4 nodes"),
            ({"nodes": 5, **ELASTIC}, "nodes", "5 nodes"),
            ({"overrides": {"spec": {"elasticPolicy": {"minReplicas": 3}}}}, "elastic.min", "`elastic.min` 3 is greater"),
        ],
        [ELASTIC, {"nodes": 4, **ELASTIC}, {}, {"nodes": 3, "master": True}, {"launcher": "accelerate", "command": "train.py"}],
    ),
    "elastic-cancelled": (
        [
            ({**ELASTIC, "command": "torchrun --nnodes=2 train.py"}, "command", "`--nnodes=2` in the command overrides"),
            ({**ELASTIC, "command": "torchrun --nnodes 2 train.py"}, "command", "`--nnodes=2` in the command overrides"),
        ],
        [
            {**ELASTIC, "command": "torchrun train.py --nnodes=2"},
            {**ELASTIC, "command": "torchrun --nnodes=2:4 train.py"},
            {"command": "torchrun --nnodes=2 train.py"},
        ],
    ),
    "elastic-never": (
        [({**ELASTIC, "restarts": {"policy": "Never"}}, "restarts.policy", "one failed pod ends the elastic job")],
        [{}, ELASTIC, {"elastic": {"min": 2, "max": 2}, "restarts": {"policy": "Never"}}],
    ),
    "torchrun-flags": (
        [
            ({"command": "torchrun --rdzv-id=7 train.py"}, "command", "`--rdzv-id=7` in the command overrides `rendezvous.id`"),
            ({"command": "python -m torch.distributed.run --rdzv_backend etcd train.py"}, "command", "rendezvous.backend"),
            ({"command": "/opt/bin/torchrun --nproc_per_node=8 train.py"}, "command", "overrides `processes_per_node`"),
            ({"command": ["bash", "-c", "cd /src && torchrun --nnodes=8 -m train"]}, "command", "overrides `nodes`"),
        ],
        [
            {"command": "torchrun --nproc-per-node=1 --nnodes 2 train.py"},
            {"command": "torchrun --tee=3 -m train --rdzv-id=7"},
            {"command": "torchrun --no-python run.sh --nnodes=8"},
            {"command": "python train.py --nnodes=8"},
            TRAIN,
        ],
    ),
    "loglevel-unknown": (
        [
            ({"env": {"LOGLEVEL": "info"}}, "env.LOGLEVEL", "ends torchrun at once"),
            ({"env": {"LOGLEVEL": "20"}}, "env.LOGLEVEL", "ends torchrun at once"),
        ],
        [{}, {"env": {"LOGLEVEL": "DEBUG"}}, {"env": {"LOGLEVEL": "WARNING"}}],
    ),
    "loglevel-hides-agent": (
        [({"env": {"LOGLEVEL": "WARNING"}}, "env.LOGLEVEL", "hides the ranks of the agents")],
        [{}, {"env": {"LOGLEVEL": "DEBUG"}}, {"env": {"LOGLEVEL": "info"}}],
    ),
    "shared-store": (
        [({"env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}}, "env.TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "a restart fails")],
        [{}, {"env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}, "restarts": {"max": 0}}],
    ),
    "etcd-version": (
        [
            (
                {"rendezvous": {"backend": "etcd", "endpoint": "etcd.infra:2379"}},
                "rendezvous.endpoint",
                "`etcd.infra` etcd 3.4?",
            )
        ],
        [{}, {"rendezvous": "etcd"}, {"rendezvous": {"backend": "etcd-v2", "endpoint": "etcd.infra:2379"}}],
    ),
    "rendezvous-id-reused": (
        [
            (
                {"rendezvous": {"backend": "etcd-v2", "endpoint": "etcd.infra:2379", "id": "mine"}},
                "rendezvous.id",
                "under `mine`",
            )
        ],
        [{"rendezvous": {"id": "mine"}}, {"rendezvous": {"backend": "etcd", "id": "mine"}}],
    ),
    "host-network": (
        [
            ({**HOST_NETWORK, **BY_POD_NAME}, "pod.host_network", "collide at port 23456"),
            (
                {**HOST_NETWORK, "resources": {"gpus": 8}},
                "pod.host_network",
                "which decide on rank 0",
            ),
            ({**over(hostNetwork=True), "nodes": 1}, "overrides", "cannot resolve"),
        ],
        [{}, {**HOST_NETWORK, "nodes": 1}, {**HOST_NETWORK, **BY_POD_NAME, "resources": {"gpus": 8}}],
    ),
    "exceeds-instance": (
        [
            ({"instance": "p4d.24xlarge", "resources": {"efa": 8}}, "resources.efa", "8 EFA adapters, and p4d"),
            ({"instance": "g5.xlarge", "resources": {"efa": 1}}, "resources.efa", "has none"),
            ({"instance": "g5.xlarge", "resources": {"cpu": 16}}, "resources.cpu", "a pod requests 16 CPUs"),
            ({"instance": "g5.xlarge", "resources": {"memory": "64Gi"}}, "resources.memory", "a pod requests 64Gi of memory"),
        ],
        [
            {"instance": "p4d.24xlarge", "resources": {"efa": 4, "cpu": 90, "memory": "1000Gi"}},
            {"instance": "ml.p5.48xlarge"},
            {"instance": "g5.xlarge", "resources": {"cpu": 4, "memory": "16Gi"}},
            {"resources": {"gpus": 64, "efa": 64}},
        ],
    ),
    "processes-and-gpus": (
        [
            ({"resources": {"gpus": 1}, "processes_per_node": 2}, "processes_per_node", "each node has 2 processes, but 1 GPU"),
            ({"processes_per_node": "gpu"}, "processes_per_node", "the job requests no GPU"),
            (spawned(4) | {"resources": {"gpus": 2}}, "train.spawn", "each node has 4 processes, but 2 GPUs"),
        ],
        [
            {"resources": {"gpus": 2}, "processes_per_node": 2},
            spawned(2) | {"resources": {"gpus": 2}},
            {"resources": {"gpus": 2}, "processes_per_node": "gpu"},
            {"processes_per_node": 4},
        ],
    ),
    "idle-gpus": (
        [
            (
                {"instance": "p4d.24xlarge", "processes_per_node": 1},
                "processes_per_node",
                "8 GPUs, but 1 process ",
            ),
            (spawned(4) | {"instance": "p4d.24xlarge"}, "train.spawn", "8 GPUs, but 4 processes "),
        ],
        [
            spawned(8) | {"instance": "p4d.24xlarge"},
            {"instance": "p4d.24xlarge"},
            {"processes_per_node": 1},
            {"instance": "p4d.24xlarge", "launcher": "python", "command": "train.py"},
        ],
    ),
    "network-variables": (
        [
            ({"instance": "g5.12xlarge", "env": {"FI_PROVIDER": "efa"}}, "env.FI_PROVIDER", "request no adapter"),
            ({"env": {"FI_PROVIDER": "efa"}}, "env.FI_PROVIDER", "request no adapter"),
            ({"instance": "trn1.2xlarge", "env": {"FI_PROVIDER": "efa"}}, "env.FI_PROVIDER", "request no adapter"),
        ],
        [
            {"instance": "p4d.24xlarge", "env": {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}},
            {"instance": "p5.48xlarge", "env": {"FI_PROVIDER": "efa"}, "network_profile": "older"},
            {"env": {"FI_PROVIDER": "efa"}, "resources": {"gpus": 8, "efa": 4}},
            {"env": {"FI_PROVIDER": "efa"}, "resources": {"gpus": 8, "efa_claim": "all-efa"}},
            {"env": {"FI_PROVIDER": "efa"}, "resources": {"limits": {"vpc.amazonaws.com/efa": 4}}},
        ],
    ),
    "unknown-instance": (
        [
            ({"instance": "p9.48xlarge", "resources": {"gpus": 8}}, "instance", "`p9.48xlarge` is not in the catalogue"),
            ({"instance": "ml.p9.48xlarge", "resources": {"memory": "8Gi"}}, "instance", "only the numbers of `resources`"),
        ],
        [{"instance": "p5.48xlarge"}, {"resources": {"gpus": 8}}],
    ),
    "neuron-processes": (
        [
            (
                {"instance": "trn1.32xlarge", "processes_per_node": 16},
                "processes_per_node",
                "16 processes, but 32 Neuron cores",
            ),
            ({"instance": "trn2.48xlarge", "processes_per_node": 128}, "processes_per_node", "but 64 Neuron cores"),
            ({"resources": {"neuron": 16}}, "processes_per_node", "16 processes, but a Neuron device has several cores"),
        ],
        [
            {"instance": "trn1.32xlarge"},
            {"instance": "trn2.48xlarge", "processes_per_node": 128, "env": {"NEURON_LOGICAL_NC_CONFIG": "1"}},
            {"resources": {"neuron": 16}, "processes_per_node": 32},
        ],
    ),
    "unsupported-fp8": (
        [
            ({**train(precision="fp8"), "instance": "g4dn.xlarge"}, "train.precision", "the T4 of g4dn.xlarge does not"),
            ({**train(precision="fp8"), **HERE, "nodes": 1}, "train.precision", "the job requests no GPU"),
        ],
        [
            {**train(precision="fp8"), **HERE, "nodes": 1, "resources": {"gpus": 1}},
            {**train(precision="fp8"), **HERE, "nodes": 1, "env": {"CUDA_VISIBLE_DEVICES": "0"}},
            {**train(precision="fp8"), **HERE, "nodes": 1, "processes_per_node": "auto"},
            {**train(precision="fp8"), "instance": "p5.48xlarge"},
            {**train(precision="fp8"), "instance": "g6.xlarge"},
            {**train(precision="bf16"), "instance": "p4d.24xlarge"},
        ],
    ),
    "unsupported-precision": (
        [
            (
                {**train(precision="bf16"), "instance": "g4dn.xlarge"},
                "train.precision",
                "the T4 of g4dn.xlarge does not",
            ),
            ({"command": "torchrun train.py --bf16=1", "instance": "p3.8xlarge"}, "command", "`--bf16=1` is set, and the V100"),
            (
                {"command": "torchrun train.py --precision=bf16-true", "instance": "p3.8xlarge"},
                "command",
                "does not support bf16",
            ),
        ],
        [
            {**train(precision="bf16"), "instance": "g5.xlarge"},
            {**train(precision="fp32"), "instance": "g4dn.xlarge"},
            {"command": "torchrun train.py --bf16=0 --precision=fp16", "instance": "p3.8xlarge"},
            train(precision="bf16"),
        ],
    ),
    "shared-memory": (
        [
            ({"shared_memory": 0, "processes_per_node": 4}, "shared_memory", "64 MiB of shared memory"),
            ({"shared_memory": 0, "resources": {"gpus": 1}}, "shared_memory", "64 MiB of shared memory"),
        ],
        [
            {"processes_per_node": 4},
            {"shared_memory": 0},
            {
                "shared_memory": 0,
                "processes_per_node": 4,
                "volumes": [{"name": "shm", "mount_path": "/dev/shm", "empty_dir": True, "in_memory": True}],
            },
        ],
    ),
    "parameter-memory": (
        [
            (
                {**llama(), "resources": {"gpus": 8, "gpu_memory": "1Gi"}},
                "train.model",
                "the model has 8.0 billion parameters: each process holds",
            ),
            (
                {**llama(), "nodes": 1, "processes_per_node": 4, "resources": {"memory": "8Gi"}},
                "train.model",
                "each process holds 7.5 GiB of them, and its part of the pod's memory has 2.0 GiB",
            ),
        ],
        [
            {**llama(), "instance": "p4d.24xlarge", "nodes": 1},
            {**llama(), "resources": {"gpus": 8}},
            {**llama(cpu_offload=True), "nodes": 1, "resources": {"gpus": 8, "gpu_memory": "1Gi"}},
        ],
    ),
    "gpu-memory": (
        [
            (
                {**llama(activation_checkpointing=False), "instance": "p4d.24xlarge", "nodes": 1},
                "train.model",
                "on each GPU, and a GPU of p4d.24xlarge has 40.0 GiB",
            ),
            (
                {**llama(activation_checkpointing=False), "resources": {"gpus": 8, "gpu_memory": "48Gi"}},
                "train.model",
                "and a GPU has 48.0 GiB",
            ),
        ],
        [
            {**llama(), "resources": {"gpus": 8, "gpu_memory": "48Gi"}},
            {**llama(activation_checkpointing=True, sequence_length=2048), "instance": "p5.48xlarge"},
            {**llama(model="./weights"), "instance": "g5.xlarge"},
            llama(),
            {**train(), "instance": "g4dn.xlarge"},
        ],
    ),
    "host-memory": (
        [
            ({**train(), "resources": {"memory": "512Mi"}}, "resources.memory", "and a pod has 512Mi"),
            ({**llama(), "resources": {"memory": "16Gi"}}, "resources.memory", "the process needs about"),
        ],
        [{**train(), "resources": {"memory": "8Gi"}}, train(), {"resources": {"memory": "512Mi"}}],
    ),
    "checkpoint-storage": (
        [
            (train(checkpoint_dir="/ckpt"), "train.checkpoint_dir", "in each pod's own file system"),
            (
                {**train(checkpoint_dir="/work/c"), **volume({"host_path": "/mnt"})},
                "train.checkpoint_dir",
                "a folder of each node",
            ),
            (
                {**train(checkpoint_dir="/work/c"), **volume({"empty_dir": True}), "nodes": 1},
                "train.checkpoint_dir",
                "empty_dir",
            ),
            ({"command": "torchrun train.py --checkpoint_dir /ckpt"}, "command", "folder `/ckpt` is in each pod's own"),
            ({"command": "torchrun train.py --out-dir=runs/a"}, "command", "folder `runs/a` is in each pod's own"),
            ({"command": "torchrun train.py --log_dir /work/x --output_dir out"}, "command", "folder `out` is in each pod's"),
            ({"command": "torchrun train.py out_dir=out", "pod": {"working_dir": "/code"}, **PVC}, "command", "folder `out`"),
        ],
        [
            {**train(checkpoint_dir="/work/c"), **PVC},
            {**train(checkpoint_dir="/work/c"), **volume({"fsx": "lustre"})},
            {**train(checkpoint_dir="/work/c"), **volume({"host_path": "/mnt"}), "nodes": 1},
            {"command": "torchrun train.py --checkpoint_dir=/work/c", **PVC},
            {"command": "torchrun train.py --checkpoint_dir=relative", **PVC},
            {"command": "torchrun train.py --out_dir=out", "pod": {"working_dir": "/work"}, **PVC},
            {"command": "torchrun train.py --output_dir s3://bucket/out"},
            {"command": "torchrun train.py --save_dir --lr 3"},
            {**train(checkpoint_dir="/ckpt"), **over(volumes=[{"name": "x", "emptyDir": {}}])},
            TRAIN,
        ],
    ),
    "checkpoint-read-only": (
        [
            ({**train(checkpoint_dir="/work/c"), **volume({"pvc": "w"}, read_only=True)}, "train.checkpoint_dir", "read-only"),
            ({**train(checkpoint_dir="/work/c"), **volume({"config_map": "w"})}, "train.checkpoint_dir", "a config map"),
        ],
        [{**train(checkpoint_dir="/work/c"), **PVC}, {**TRAIN, **volume({"config_map": "w"})}],
    ),
    "volume-hides-program": (
        [
            ({"volumes": [{**DATA, "mount_path": "/usr"}]}, "volumes.0.mount_path", "volume `data` at `/usr` hides the system"),
            ({"volumes": [{**DATA, "mount_path": "/"}]}, "volumes.0.mount_path", "volume `data` at `/` hides the system"),
        ],
        [
            {"volumes": [DATA]},
            {"volumes": [{**DATA, "mount_path": "/dev/shm"}]},
            {"volumes": [{**DATA, "mount_path": "/workspace"}], "pod": {"working_dir": "/workspace"}},
            {"volumes": [{**DATA, "mount_path": "/workspace"}], "command": "torchrun /workspace/train.py"},
            {"volumes": [{**DATA, "mount_path": "/workspace"}], **train()},
            {"volumes": [{**DATA, "mount_path": "/workspace/data"}]},
        ],
    ),
    "resume-elsewhere": (
        [
            (train(checkpoint_dir="/work/b", resume="/work/a"), "train.resume", "writes checkpoints to `/work/b`"),
            (train(resume="/work/a"), "train.resume", "writes no checkpoints"),
            (
                {"command": "torchrun train.py --checkpoint_dir=/work/b --resume_from_checkpoint=/work/a"},
                "command",
                "resumes from `/work/a`",
            ),
        ],
        [
            train(checkpoint_dir="/work/a"),
            train(checkpoint_dir="/work/a", resume="/work/a/step-000100"),
            train(resume="none"),
            {"command": "torchrun train.py --checkpoint_dir=/work/a --resume_from_checkpoint=/work/a"},
            {"command": "torchrun train.py --out_dir=/work/a --resume --init_from=gpt2 --resume_from latest"},
            {"command": "torchrun train.py --resume output/train/last.pth.tar"},
            {"command": "torchrun train.py --resume_from_checkpoint=/work/a"},
        ],
    ),
    "single-process": (
        [
            (train(strategy="none"), "train.strategy", "the job has 2"),
            (train(strategy="dp"), "train.strategy", "strategy `dp` needs a single process"),
        ],
        [{**train(strategy="none"), "nodes": 1}, train(strategy="ddp")],
    ),
    "shard-groups": (
        [
            (train(sharding="hybrid", shard_size=3), "train.shard_size", "2 ranks cannot be divided into groups of 3"),
            ({**train(sharding="hybrid", shard_size=2), **ELASTIC}, "train.shard_size", "3 ranks cannot be divided"),
        ],
        [train(sharding="hybrid", shard_size=2), train(sharding="hybrid"), train(shard_size=3), train(strategy="ddp")],
    ),
    "context-groups": (
        [
            (train(context_parallel=4), "train.context_parallel", "2 ranks cannot be divided into groups of 4"),
            ({**train(context_parallel=2, lanes=6), **ELASTIC}, "train.context_parallel", "3 ranks cannot be divided"),
        ],
        [train(context_parallel=2), {**train(context_parallel=4), "processes_per_node": 8}],
    ),
    "log-rank": (
        [(train(log_rank=2), "train.log_rank", "`log_rank: 2` does not exist in a run of 2 ranks")],
        [train(log_rank=1), {**train(log_rank=15), "processes_per_node": 8}],
    ),
    "hub-tokenizer": (
        [
            (train(data="allenai/c4", data_config="en"), "train.data", "the text of `allenai/c4` needs a tokenizer"),
            (train(data="me/corpus", data_revision="main"), "train.data", "the text of `me/corpus` needs"),
        ],
        [
            train(data="allenai/c4", data_config="en", tokenizer="/t"),
            train(data="me/corpus"),
            train(data="/data/corpus", data_config="en"),
            train(data="me/corpus", data_config="en", model="me/model"),
        ],
    ),
    "lanes": (
        [
            (train(lanes=7), "train.lanes", "7 lanes cannot be divided among 2 ranks"),
            ({**train(), **ELASTIC}, "train.lanes", "among 3 ranks"),
        ],
        [train(lanes=8), {**train(lanes=12), **ELASTIC}, train(lanes=1, context_parallel=2)],
    ),
    "lost-updates": (
        [(train(precision="bf16-true", rounding="nearest", lr=2e-5), "train.rounding", "steps of `lr` 2e-05 do not change")],
        [
            train(precision="bf16-true", lr=2e-5),
            train(precision="bf16-true", rounding="nearest", lr=1e-3),
            train(precision="bf16", rounding="nearest", lr=2e-5),
        ],
    ),
    "constant-rate": (
        [
            (train(lr=1e-4, min_lr=1e-4, schedule="linear"), "train.min_lr", "both 0.0001, so the learning rate"),
        ],
        [train(lr=2e-5), train(lr=2e-5, min_lr=2e-6), train(lr=2e-5, min_lr=2e-5, schedule="constant")],
    ),
    "adapters-of-new-weights": (
        [(train(lora={}), "train.model", "has new random weights, which `lora` freezes")],
        [train(), train(lora={}, model="org/model")],
    ),
    "secret-in-text": (
        [
            ({"env": {"HF_TOKEN": FAKE_TOKEN}}, "env.HF_TOKEN", "a Hugging Face token"),
            ({"env": {"WANDB_API_KEY": "0123456789abcdef"}}, "env.WANDB_API_KEY", "by the variable's name"),
            ({"env": {"DATABASE": "postgres://me:hunter22@db/x"}}, "env.DATABASE", "a password in a URL"),
            ({"command": ["torchrun", "train.py", f"--token={FAKE_TOKEN}"]}, "command", "a Hugging Face token"),
            ({"annotations": {"note": "AKIA" + "A" * 16}}, "annotations.note", "an AWS access key"),
            (
                over(containers=[{"name": "pytorch", "env": [{"name": "DB_PASSWORD", "value": "hunter22"}]}]),
                "overrides.spec.pytorchReplicaSpecs.Worker.template.spec.containers.0.env.0.value",
                "by the variable's name",
            ),
        ],
        [
            {"env": {"TOKENIZERS_PARALLELISM": "false", "TOKENIZER": "EleutherAI/gpt-neox-20b", "MAX_TOKEN": "2048"}},
            {"env": {"HF_TOKEN": {"secret": "hub", "key": "token"}}},
            {"env": {"HF_TOKEN_PATH": "/run/secrets/hub/token", "API_KEY": "$(FROM_ELSEWHERE)"}},
            {"hub_token": "hub/token"},
        ],
    ),
    "image-name": (
        [
            ({"image": "Team/Train:1"}, "image", "`Team/Train:1` is not an image reference"),
            ({"image": "https://quay.io/a:1"}, "image", "is not an image reference"),
            ({"pod": {"init_containers": [{"name": "fetch", "image": "busybox:1:2"}]}}, "pod", "`busybox:1:2` is not"),
        ],
        [{}, {"image": "registry.example:5000/train:1"}, {"image": "train@sha256:" + "0" * 64}],
    ),
    "image-placeholder": (
        [
            ({"image": "your-account.dkr.ecr.us-west-2.amazonaws.com/fsdp:1"}, "image", "is not an AWS account of 12 digits"),
            ({"image": "docker.io/your_user/train:1"}, "image", "it contains `your`"),
            ({"image": "registry.example.com/train:1"}, "image", "nobody has a registry at `registry.example.com`"),
            ({"image": "team/train:IMAGE_TAG"}, "image", "its tag is the word `IMAGE_TAG`"),
            ({"image": "team/changeme:1"}, "image", "it contains `changeme`"),
        ],
        [{}, {"image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/fsdp:pytorch2.2"}, {"image": "team/yours-truly:V2"}],
    ),
    "no-rendezvous": (
        [({"overrides": {"spec": {"elasticPolicy": None}}}, "nodes", "no pod has a rendezvous address: the 2 agents")],
        [
            {},
            {"nodes": 1, "overrides": {"spec": {"elasticPolicy": None}}},
            {"master": True, "rendezvous": "static"},
            {"overrides": {"spec": {"elasticPolicy": None}}, "env": {"PET_RDZV_ENDPOINT": "store:29400"}},
            {"overrides": {"spec": {"elasticPolicy": None}}, "command": "torchrun --rdzv-endpoint=store:29400 train.py"},
            {"overrides": {"spec": {"elasticPolicy": None}}, "command": "bash run.sh"},
        ],
    ),
    "latest-image": (
        [
            ({"image": "train"}, "image", "has no tag, which means `latest`"),
            ({"image": "registry.example:5000/train:latest"}, "image", "is `latest`"),
            ({"image": "registry.example:5000/train"}, "image", "has no tag"),
            ({"pod": {"init_containers": [{"name": "fetch", "image": "busybox"}]}}, "pod", "`busybox` has no tag"),
        ],
        [{}, {"image": "registry.example:5000/train:1"}, {"image": "train@sha256:" + "0" * 64}],
    ),
    "readiness-gates-rendezvous": (
        [(over(containers=[{"name": "pytorch", "readinessProbe": {"tcpSocket": {"port": 1}}}]), "overrides", "readinessProbe")],
        [{}, over(containers=[{"name": "pytorch", "startupProbe": {"tcpSocket": {"port": 1}}}])],
    ),
    "unreliable-policy": (
        [
            ({"run": {"deadline": "1h"}}, "run.deadline", "`activeDeadlineSeconds` acts late or never, and leaves the running"),
            (
                {"run": {"backoff_limit": 3, "clean_pods": "All"}},
                "run.backoff_limit",
                "`backoffLimit` acts late or never, and can",
            ),
            ({"run": {"backoff_limit": 3}, "watchdog": {"crashes": 3}}, "run.backoff_limit", "which hold their GPUs"),
        ],
        [
            {},
            {"run": {"ttl": "1d"}},
            {"run": {"deadline": "1h", "clean_pods": "Running"}, "watchdog": {"deadline": "50m"}},
            {"run": {"backoff_limit": 3, "clean_pods": "All"}, "watchdog": {"crashes": 3}},
        ],
    ),
    "exit-code-policy": (
        [({"restarts": {"policy": "ExitCode"}}, "restarts.policy", "torchrun always returns 1")],
        [{"restarts": {"policy": "OnFailure"}}, {"restarts": {"policy": "ExitCode"}, "launcher": "python", "command": "a.py"}],
    ),
    "hyperpod-restarts": (
        [({"scheduling": {"hyperpod": {}}, "restarts": {"policy": "Never"}}, "restarts.policy", "the job has `Never`")],
        [
            {},
            {"scheduling": {"hyperpod": {}}},
            {"scheduling": {"hyperpod": {"auto_resume": False}}, "restarts": {"policy": "Never"}},
        ],
    ),
    "short-grace": (
        [
            ({"pod": {"grace": 30}}, "pod.grace", "the grace period is 30 s, and torchrun's shutdown timeout is 30 s"),
            ({"torchrun": {"shutdown_timeout": 100}}, "pod.grace", "shutdown timeout is 100 s"),
        ],
        [{}, {"pod": {"grace": 10}, "torchrun": {"shutdown_timeout": 5}}],
    ),
    "istio-sidecar": (
        [({"scheduling": {"istio_sidecar": True}}, "scheduling.istio_sidecar", "keeps the pods from ending")],
        [{}],
    ),
    "cluster-launcher": (
        [
            ({"command": command}, "command", f"kfjob starts `{program}` once per node, and 2 of them do not know each other")
            for command, program in (
                ("/opt/mpi/bin/mpirun -np 4 python train.py", "mpirun"),
                ("env A=1 mpiexec -n 4 python -m pkg", "mpiexec"),
                (["bash", "-c", "pip install x && srun --ntasks=4 python train.py"], "srun"),
            )
        ],
        [{}, {"nodes": 1, "command": "mpirun -np 4 python train.py"}, {"command": "torchrun train.py srun"}],
    ),
    "no-program": (
        [({"command": None}, "image", "the image's own entry point")],
        [{}, {"command": None, "args": "--lr 1"}, TRAIN],
    ),
    "replaced-command": (
        [
            (
                over(containers=[{"name": "pytorch", "command": ["python", "other.py"]}]),
                "overrides",
                "replaces `command` of the training container, `torchrun train.py`, by `python other.py`",
            ),
            (over(containers=[{"name": "pytorch", "command": None}]), "overrides", "by nothing"),
            (
                {"args": "--lr 1", **over(containers=[{"name": "pytorch", "args": ["--lr=2"]}])},
                "overrides",
                "replaces `args` of the training container, `--lr 1`, by `--lr=2`",
            ),
        ],
        [
            {},
            over(containers=[{"name": "pytorch", "command": ["torchrun", "train.py"]}]),
            over(containers=[{"name": "tail", "command": ["sleep", "1"]}]),
            {"args": "--lr 1", **over(containers=[{"name": "pytorch", "tty": True}])},
        ],
    ),
    "launcher-program": (
        [
            ({"command": command}, "command", message)
            for command, message in (
                ("torchrun python hello.py --lr 1", "`torchrun` starts Python itself, and reads `python` as a Python file"),
                ("torchrun --nproc-per-node 2 python3 -u hello.py", "reads `python3` as a Python file"),
                ("python -m torch.distributed.run python hello.py", "`torchrun` starts Python itself"),
                ("accelerate launch python -m pkg", "`accelerate launch` starts Python itself"),
                ("torchrun python -c 'print(1)'", "reads `python` as a Python file"),
                (["bash", "-c", "cd /code && torchrun python hello.py | tee log"], "`torchrun` starts Python itself"),
                ("torchrun", "`torchrun` has no program to start"),
                ("torchrun --nproc-per-node 2", "`torchrun` has no program to start"),
                ("accelerate launch", "`accelerate launch` has no program to start"),
                ("torchrun train.sh", "`torchrun` starts `train.sh` as a Python file"),
                ("torchrun bash train.sh", "`torchrun` starts `bash` as a Python file"),
                ("torchrun accelerate launch hello.py", "`torchrun` starts `accelerate`, which is a launcher of its own"),
                (
                    "torchrun -m torch.distributed.run hello.py",
                    "`torchrun` starts `torch.distributed.run`",
                ),
                ("torchrun -m hello.py", "`-m` takes a module, and `hello.py` is a file"),
                ("accelerate hello.py", "`accelerate` has no subcommand"),
                ("python torchrun hello.py", "`python` starts `torchrun`, which is a launcher of its own"),
                ("python -m torchrun hello.py", "`python` starts `torchrun`, which is a launcher of its own"),
                ("python python hello.py", "`python` starts `python` as a Python file"),
                ("python3 -u", "`python3` has no program to start"),
            )
        ],
        [
            {"command": command}
            for command in (
                "torchrun hello.py",
                "torchrun --nproc-per-node 2 hello.py python",
                "torchrun --no-python python hello.py",
                "torchrun --standalone hello",
                "torchrun -m pkg.hello",
                "torchrun --help",
                "accelerate launch --no_python bash run.sh",
                "accelerate config",
                "python -m torch.distributed.run hello.py",
                "python -u hello.py torchrun",
                "python --version",
                "python -c 'print(1)'",
                "bash run.sh",
                ["bash", "-c", "python --version; torchrun hello.py"],
                ["bash", "-c", "cat hello.py | python"],
            )
        ],
    ),
    "shell-variable": (
        [
            ({"command": "torchrun train.py --data $HOME/data"}, "command", "the program gets `$HOME` as text"),
            ({"command": ["torchrun", "train.py", "--lr=$LR"]}, "command", "the program gets `$LR` as text"),
            ({"command": ["torchrun", "train.py", "--lr", "${lr}"]}, "command", "the program gets `${lr}` as text"),
        ],
        [
            {"command": "torchrun train.py --data $(DATA)"},
            {"command": ["bash", "-c", "torchrun train.py --data $DATA"]},
            {"command": "torchrun train.py --regex ^a$ --price 5$"},
        ],
    ),
    "unused-processes": (
        [
            (
                {"nodes": 1, "processes_per_node": 4, "command": "python hello.py"},
                "processes_per_node",
                "`python hello.py` starts one process on each node, and not 4",
            ),
            ({"processes_per_node": 2, "command": "python hello.py", "launcher": "python"}, "processes_per_node", "and not 2"),
            (
                {"nodes": 1, "processes_per_node": 2, "command": "accelerate launch --cpu hello.py"},
                "command",
                "`accelerate launch --cpu` starts one process on each node, and not 2",
            ),
            (
                {"nodes": 1, "processes_per_node": 2, "command": "--cpu hello.py", "launcher": "accelerate"},
                "command",
                "`accelerate launch --cpu` starts one process",
            ),
        ],
        [
            {"nodes": 1, "processes_per_node": 4, "command": command}
            for command in (
                "torchrun hello.py",
                "accelerate launch hello.py",
                "accelerate launch hello.py --cpu",
                "accelerate launch --cpu --mpirun_hostfile=h hello.py",
                "./a",
                "python -c pass",
            )
        ]
        + [
            {"nodes": 1, "processes_per_node": 1, "command": "python hello.py"},
            {"nodes": 1, "command": "python hello.py", "resources": {"gpus": 4}},
            {"nodes": 1, "processes_per_node": 4, "command": "python hello.py", "launcher": "torchrun"},
        ],
    ),
    "unused-restarts": (
        [
            ({"launcher": "deepspeed", "command": "train.py", "restarts": {"max": 1}}, "restarts.max", "`launcher: deepspeed`"),
            ({"launcher": "python", "command": "train.py", "restarts": {"max": 3}}, "restarts.max", "has no torchrun agent"),
            (
                {"nodes": 1, "command": "accelerate launch train.py", "restarts": {"max": 3}},
                "restarts.max",
                "`accelerate launch`",
            ),
            ({**HERE, "nodes": 1, "command": "python train.py", "restarts": {"max": 3}}, "restarts.max", "`python train.py`"),
            (spawned(2) | {"nodes": 1, "restarts": {"max": 2}}, "restarts.max", "`launcher: python`"),
        ],
        [
            {"restarts": {"max": 3}},
            {"launcher": "accelerate", "command": "train.py", "restarts": {"max": 0}},
            {"launcher": "accelerate", "command": "train.py", "restarts": {"policy": "OnFailure"}},
            {"launcher": "launch", "command": "train.py", "restarts": {"max": 3}},
            {"nodes": 1, "command": "./start.sh", "restarts": {"max": 3}},
            {"nodes": 1, "command": "python -m torch.distributed.run train.py", "restarts": {"max": 3}},
            train() | {"restarts": {"max": 3}},
        ],
    ),
    "unknown-variable": (
        [
            ({"command": "torchrun train.py $(hostname)"}, "command", "the program gets `$(hostname)` as text"),
            ({"command": "torchrun train.py --data=$(DATA)/x"}, "command", "the program gets `$(DATA)` as text"),
        ],
        [
            {"command": "torchrun train.py $(DATA)", "env": {"DATA": "/data"}},
            {"command": "torchrun train.py $(TOKEN)", "env": {"TOKEN": {"secret": "hub", "key": "token"}}},
            {"command": "torchrun train.py $(PET_NNODES) $(HOSTNAME) $$(DATA) $(KUBERNETES_SERVICE_HOST)"},
            {"command": ["bash", "-c", "torchrun train.py --host $(hostname)"]},
            {
                "command": "torchrun train.py $(DATA)",
                **over(containers=[{"name": "pytorch", "envFrom": [{"configMapRef": {"name": "c"}}]}]),
            },
        ],
    ),
    "shell-operator": (
        [
            ({"command": ["python", "train.py", "|", "tee", "log"]}, "command", "the program gets `|` as text"),
            ({"command": ["torchrun", "train.py"], "args": ["&&", "echo", "done"]}, "command", "the program gets `&&` as text"),
        ],
        [{"command": ["bash", "-c", "torchrun train.py | tee log"]}, {"command": ["python", "train.py", "a|b", "lr>1"]}],
    ),
    "hidden-failure": (
        [
            ({"command": ["bash", "-c", script]}, "command", "succeeds if the program before the pipe fails")
            for script in (
                "torchrun train.py | tee log",
                "cd x\ntorchrun train.py 2>&1 | tee log;",
                "for a in 1 2; do b; done | cat",
            )
        ],
        [
            {"command": ["bash", "-c", script]}
            for script in (
                "set -eo pipefail; torchrun train.py | tee log",
                "ls | head; torchrun train.py",
                "torchrun train.py --host $(hostname -i | cut -d' ' -f1)",
                "torchrun train.py 'a|b' || exit 1",
            )
        ],
    ),
    "unconnected-nodes": (
        [
            ({"command": command}, "command", f"`{program}` runs 2 copies that do not know each other")
            for command, program in (
                ("python train.py --lr 1", "python train.py"),
                ("/usr/bin/python3.12 -u -X dev train.py", "/usr/bin/python3.12 train.py"),
                ("python -um pkg.train", "python -m pkg.train"),
                ("accelerate launch --mixed_precision bf16 train.py", "accelerate launch train.py"),
                ("python -m accelerate.commands.launch train.py", "python -m accelerate.commands.launch train.py"),
                ("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "deepspeed train.py"),
                (["bash", "-c", "pip install -e . && LR=1 exec python train.py | tee log"], "python train.py"),
                (["sh", "-ec", "cd /code\npython -m pip install x\nbash -c 'python3 train.py'"], "python3 train.py"),
                ("uv run --frozen python train.py", "python train.py"),
                ("uv run train.py", "train.py"),
                ("poetry run python -m pkg.train", "python -m pkg.train"),
                ("conda run -n x python train.py", "python train.py"),
                ("env A=1 timeout 60 python train.py", "python train.py"),
                ("./train.py --lr 1", "./train.py"),
                ("torchrun --standalone --nproc-per-node 2 train.py", "torchrun --standalone"),
                ("torchrun --nnodes 1 train.py", "torchrun --nnodes 1"),
                ("python -m torch.distributed.run --nnodes=1:1 train.py", "python -m torch.distributed.run --nnodes=1:1"),
                (["bash", "-o", "pipefail", "-c", "--", "python train.py"], "python train.py"),
                (["bash", "-c", "# don't\npython train.py"], "python train.py"),
                (["bash", "-c", "python train.py # it's one\necho 'a # b'"], "python train.py"),
                (["bash", "-c", "python prepare.py && python train.py"], "python train.py"),
                (["bash", "-c", "echo it\\'s # it\nA=\"# 'x'\" python train.py"], "python train.py"),
                ("/usr/bin/accelerate launch --num_machines 1 train.py", "/usr/bin/accelerate launch --num_machines 1"),
                ("fabric run --num_nodes=1 train.py", "fabric run --num_nodes=1"),
                (["bash", "-c", "# one\ntorchrun --standalone train.py"], "torchrun --standalone"),
                ("accelerate launch train.py --num_machines 2", "accelerate launch train.py"),
            )
        ],
        [
            {},
            {"nodes": 1, "command": "python hello.py"},
            {"command": "python hello.py", "launcher": "torchrun"},
            {"command": "accelerate launch hello.py", "launcher": "accelerate"},
            {"command": "python hello.py", "env": {"MASTER_ADDR": "a"}},
            *(
                {"command": command}
                for command in (
                    "./a",
                    "bash train.sh",
                    "python -c pass",
                    "python -m torch.distributed.run hello.py",
                    "uv run torchrun hello.py",
                    "poetry run accelerate launch --num_machines 2 --machine_rank 0 hello.py",
                    "deepspeed --hostfile hosts hello.py",
                    "srun python hello.py",
                    ["bash", "-c", "python prepare.py; torchrun hello.py"],
                    ["bash", "-c", "srun -n 2 python hello.py"],
                    ["bash", "-c", "export MASTER_ADDR=a RANK=0; python hello.py"],
                    ["bash", "-c", "echo 'open"],
                    ["bash", "entry.sh", "-c", "configs/train.py"],
                    ["bash", "-c", "python prepare.py # once\n# train\ntorchrun hello.py"],
                    ["bash", "-c", "python hello.py --rank ${HOSTNAME##*-}"],
                    "python hello.py --node $(HOSTNAME)",
                    "torchrun --nnodes 2 hello.py --nnodes 1",
                    "torchrun --nnodes=1:2 hello.py",
                    "fabric run --num-nodes 2 hello.py",
                )
            ),
        ],
    ),
    "lightning-nodes": (
        [
            (
                {"script": "import lightning as L\nL.Trainer()"},
                "command",
                "`Trainer` in `train.py` (line 2) trains on one node",
            ),
            ({"script": "import lightning as L\nL.Fabric(num_nodes=8)"}, "command", "trains on 8 nodes, and the job has 2"),
        ],
        [{"script": "import lightning as L\nL.Trainer(num_nodes=2)"}, {"script": "print(1)"}],
    ),
}
