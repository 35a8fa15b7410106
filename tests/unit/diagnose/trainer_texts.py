"""Messages about the set-up of a training, the hub and scripts, from memory: rule, text, and the library that prints it."""

from __future__ import annotations

TEXTS = (
    (
        "trainer-nodes",
        "ValueError: You set `--nnodes=2` in torchrun but `Trainer(num_nodes=1)`. HINT: Set `Trainer(num_nodes=2)`",
        "lightning",
    ),
    (
        "monitored-metric",
        "MisconfigurationError: `ModelCheckpoint(monitor='val_loss')` could not find the monitored key in the returned metrics",
        "lightning callbacks/model_checkpoint.py",
    ),
    (
        "monitored-metric",
        "RuntimeError: Early stopping conditioned on metric `val_loss` which is not available. Pass in or modify your callback",
        "lightning callbacks/early_stopping.py",
    ),
    ("not-registered", "RuntimeError: Unknown model (vit_huge_9)", "timm models/_factory.py"),
    ("not-registered", "KeyError: 'MyHead is not in the mmdet::model registry. Please check it'", "mmengine"),
    ("not-registered", "KeyError: \"No object named 'MyHead' found in 'ROI_HEADS' registry!\"", "fvcore"),
    (
        "deepspeed-differs",
        """ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:
- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=8""",
        "transformers integrations/deepspeed.py",
    ),
    ("wrap-class", "ValueError: Could not find the transformer layer class NovaLayer in the model.", "accelerate"),
    ("device-not-set", "ValueError: Inconsistent compute device and `device_id` on rank 1: cuda:0 vs cuda:1", "torch fsdp"),
    ("gpus-too-few", "ValueError: Total available GPUs 8 is less than total desired GPUs 16", "verl"),
    (
        "gpus-too-few",
        "(autoscaler +1m0s) Error: No available node types can fulfill resource request {'GPU': 8.0}. Add suitable types",
        "ray",
    ),
    ("gpu-generation", "AssertionError: Device compute capability 8.9 or higher required for FP8 execution.", "TE"),
    (
        "gpu-generation",
        "RuntimeError: Found Tesla P100-PCIE-16GB which is too old to be supported by the triton GPU compiler",
        "torch _inductor",
    ),
    (
        "engine-memory",
        "ValueError: Free memory on device (12.4/79.1 GiB) on startup is less than desired GPU memory utilization (0.9).",
        "vllm",
    ),
    ("engine-server", "ConnectionError: The vLLM server can't be reached at http://v:8000 after 240.0 seconds.", "trl"),
    (
        "parallel-sizes",
        "ValueError: Total number of attention heads (32) must be divisible by tensor parallel size (3).",
        "vllm",
    ),
    ("optimizer-state", "ValueError: loaded state dict contains a parameter group that doesn't match the size", "torch optim"),
    ("loader-timeout", "RuntimeError: DataLoader timed out after 120 seconds", "torch utils/data"),
    (
        "data-pipe",
        "OSError: (('pipe:aws s3 cp s3://b/0.tar -',), {'shell': True}): exit 127 (read) {}",
        "webdataset gopen.py",
    ),
    ("streaming-local", "ValueError: Reused local directory: ['/t/x'] vs ['/t/x']. Provide a different one.", "streaming"),
    (
        "indexed-data",
        "AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix /d/text",
        "megatron core/datasets/indexed_dataset.py",
    ),
    ("socket-path", "OSError: AF_UNIX path too long", "CPython socketmodule.c"),
    ("efa-fork", "          RDMAV_FORK_SAFE=1", "libfabric prov/efa"),
    ("deepspeed-pdsh", "RuntimeError: launcher 'pdsh' not installed.", "deepspeed launcher/runner.py"),
    (
        "endpoint-invalid",
        "ValueError: The hostname of the rendezvous endpoint ':29500' must be a dot-separated list of labels, an IPv4 address",
        "torch elastic/rendezvous/utils.py",
    ),
    ("script-variable", "/w/launch.sh: line 7: MASTER_ADDR: unbound variable", "bash"),
    ("script-variable", "sh: 7: NODES: parameter not set", "dash"),
    ("script-syntax", "bash: -c: line 1: unexpected EOF while looking for matching `\"'", "bash"),
    ("script-syntax", "sh: 1: Syntax error: Unterminated quoted string", "dash"),
    (
        "conda-activate",
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
        "conda",
    ),
    ("hub-token-invalid", "HfHubHTTPError: Invalid credentials in Authorization header", "hub"),
    (
        "hub-gated",
        """huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2)

Cannot access gated repo for url https://huggingface.co/a/b/resolve/main/config.json.
Access to model a/b is restricted and you are not in the authorized list.""",
        "huggingface_hub utils/_http.py",
    ),
    (
        "hub-auth",
        """huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-2)

Cannot access gated repo for url https://huggingface.co/a/b/resolve/main/config.json.
Access to model a/b is restricted. You must have access to it and be authenticated to access it. Please log in.""",
        "huggingface_hub utils/_http.py",
    ),
    (
        "hub-token-scope",
        """huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2)

Cannot access gated repo for url https://huggingface.co/a/b/resolve/main/config.json.
Please enable access to public gated repositories in your fine-grained token settings to view this repository.""",
        "huggingface_hub utils/_http.py",
    ),
    (
        "hub-forbidden",
        """huggingface_hub.errors.HfHubHTTPError: (Request ID: Root=1-2)

403 Forbidden: You don't have the rights to create a model under the namespace "a".
Cannot access content at: https://huggingface.co/api/repos/create.""",
        "huggingface_hub utils/_http.py",
    ),
    ("nccl-timeout", "[E1121 06:20:00.1 ProcessGroupNCCL.cpp:17] [PG ID 0] Heartbeat monitor timed out! It ends", "torch c10d"),
    (
        "sharded-parameter",
        """RuntimeError: Error(s) in loading state_dict for Linear:
\tsize mismatch for weight: copying a param with shape torch.Size([8, 8]) from checkpoint, the shape in current model is \
torch.Size([0]).""",
        "torch nn/modules/module.py",
    ),
    (
        "checkpoint-shape",
        "CheckpointingException: Global shape mismatch for loaded (torch.Size([8])) and expected ((9,))",
        "megatron",
    ),
    ("compiler-missing", "make: g++: No such file or directory", "GNU make"),
    ("shared-library-missing", "RuntimeError: CUDA SETUP ERROR: Missing dependency: libcusparse.so.12", "bitsandbytes"),
    ("package-version", "AssertionError: MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0, <2.2.0.", "mmdet"),
    (
        "driver-too-old",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update",
        "libnvidia-container",
    ),
    (
        "cublas-failed",
        "RuntimeError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(h)`",
        "torch",
    ),
    (
        "file-damaged",
        "decord._ffi.base.DECORDError: x.cc:151: Check failed: st_nb >= 0 ERROR cannot find video stream",
        "decord",
    ),
    ("data-empty", "RuntimeError: Stream contains no samples: /d/index.json", "streaming"),
)
