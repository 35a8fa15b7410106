"""Texts of failures with their sources: one for each rule that has one.

"seen: CASE" is a recording in tests/data/agent-logs; "seen" alone is a real run, on the test cluster or in tests/local.
Other sources are the files that hold the text in these versions: accelerate 1.15.0, botocore 1.43.117, datasets 5.2.0,
deepspeed 0.19.8, huggingface_hub 2.4.0, numpy 2.4.6, peft 0.21.2, pyarrow 26.0.1, pydantic 2.14.3, safetensors 0.8.0,
tokenizers 0.23.3, torch 2.15.0, transformers 5.23.0, triton 3.9.0, urllib3 2.8.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kfjob.joblog.events import JobChanged, JobPhase, PodChanged, PodPhase


class Text(NamedTuple):
    rule: str
    text: str
    source: str


DATA = Path(__file__).parents[2] / "data" / "failure_lines.tsv"
LINES = [Text(rule, text, source) for rule, source, text in (row.split("\t") for row in DATA.read_text().splitlines())]

MESSAGES = [
    Text(
        "openmp-twice",
        "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\n"
        "OMP: Hint This means that multiple copies of the OpenMP runtime have been linked into the program.",
        "LLVM openmp/runtime/src/i18n/en_US.txt",
    ),
    Text(
        "nccl-no-interface",
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/w/train.py", line 9, in main\n'
        "[rank0]:     dist.barrier()\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2588, internal error, NCCL "
        "version 2.21.5\n"
        "[rank0]: ncclInternalError: Internal check failed.\n"
        "[rank0]: Last error:\n"
        "[rank0]: Bootstrap : no socket interface found",
        "torch csrc/distributed/c10d/NCCLUtils.cpp getNcclErrorDetailStr",
    ),
    Text(
        "thread-limit",
        "terminate called after throwing an instance of 'std::system_error'\n"
        "  what():  Resource temporarily unavailable\n"
        "Aborted (core dumped)",
        "libstdc++",
    ),
    Text(
        "illegal-memory-access",
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 Rank 1] watchdog thread terminated with exception: CUDA error: an illegal memory access "
        "was encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.",
        "torch csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    Text(
        "data-unreadable",
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/datasets/builder.py", line 1858, in _prepare_split_single\n'
        "    for _, table in generator:\n"
        "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/a) changed from string to number in row 1\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 3, in <module>\n'
        '    load_dataset("json", data_files="x.jsonl")\n'
        "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
        "datasets builder.py",
    ),
    Text(
        "batch-arithmetic",
        "╭──────────────── Traceback (most recent call last) ─────────────────╮\n"
        "│ /w/chat/train.py:353 in <module>                                   │\n"
        "│                                                                    │\n"
        "│   350     main()                                                   │\n"
        "╰────────────────────────────────────────────────────────────────────╯\n"
        "AssertionError: Check batch related parameters. train_batch_size is not\n"
        "equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 *\n"
        "8 * 1",
        "rich traceback.py, DeepSpeed runtime/config.py",
    ),
    Text(
        "shm-semaphores",
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 5, in <module>\n'
        "    queue = multiprocessing.Queue()\n"
        '  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__\n'
        "    sl = self._semlock = _multiprocessing.SemLock(\n"
        "OSError: [Errno 28] No space left on device",
        "CPython multiprocessing/synchronize.py",
    ),
    Text(
        "checkpoint-storage",
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 5, in <module>\n'
        '    torch.load("model.pt")\n'
        '  File "/usr/lib/python3.11/site-packages/torch/_utils.py", line 138, in _rebuild_tensor\n'
        "    t = torch.empty((0,), dtype=storage.dtype, device=storage._untyped_storage.device)\n"
        "RuntimeError: Trying to resize storage that is not resizable",
        "torch _utils.py",
    ),
    Text(
        "sample-empty",
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 9, in <module>\n'
        "    data = data.map(tokenize)\n"
        '  File "/usr/lib/python3.11/site-packages/datasets/arrow_dataset.py", line 3320, in apply_function\n'
        "    processed_inputs = function(*fn_args, *additional_args, **fn_kwargs)\n"
        '  File "/w/train.py", line 5, in tokenize\n'
        '    return "<image>" in row["text"]\n'
        "TypeError: argument of type 'NoneType' is not iterable",
        "datasets arrow_dataset.py",
    ),
    Text(
        "spawn-state",
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 9, in <module>\n'
        "    process.start()\n"
        '  File "/usr/lib/python3.11/multiprocessing/reduction.py", line 60, in dump\n'
        "    ForkingPickler(file, protocol).dump(obj)\n"
        "AttributeError: Can't pickle local object 'main.<locals>.collate'",
        "CPython multiprocessing/reduction.py",
    ),
    Text(
        "spawn-state",
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 158, in get_preparation_data\n'
        "    _check_not_importing_main()\n"
        '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 138, in _check_not_importing_main\n'
        "    raise RuntimeError(\n"
        "RuntimeError: An attempt has been made to start a new process before the current process has finished its "
        "bootstrapping phase.",
        "CPython multiprocessing/spawn.py",
    ),
    Text(
        "compiler-missing",
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 8, in <module>\n'
        "    model(x)\n"
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.\n"
        "\n"
        'Set TORCH_LOGS="+dynamo" and TORCHDYNAMO_VERBOSE=1 for more information',
        "torch _dynamo/exc.py",
    ),
    Text(
        "weights-only",
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 4, in <module>\n'
        '    torch.load("c.pt")\n'
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two "
        "options.\n"
        "\t(1) In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` from "
        "`False` to `True`.\n"
        "\tWeightsUnpickler error: Unsupported global: GLOBAL numpy._core.multiarray._reconstruct was not allowed.",
        "torch serialization.py",
    ),
    Text(
        "exception",
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/w/train.py", line 3, in <module>\n'
        '  |     raise ExceptionGroup("several", [ValueError("odd")])\n'
        "  | ExceptionGroup: several (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | ValueError: odd\n"
        "    +------------------------------------",
        "CPython",
    ),
    Text(
        "hub-gated",
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2)\n"
        "\n"
        "Cannot access gated repo for url https://huggingface.co/a/b/resolve/main/config.json.\n"
        "Access to model a/b is restricted and you are not in the authorized list.",
        "huggingface_hub utils/_http.py",
    ),
]
"""Messages of several lines."""


def _pod(reason: str = "", message: str = "", *, phase: PodPhase = PodPhase.PENDING, **more: int) -> PodChanged:
    return PodChanged(pod="a-worker-0", phase=phase, reason=reason, message=message, **more)  # type: ignore[arg-type]


_KUBELET = "kubelet v1.34"
_SCHEDULER = "kube-scheduler v1.34"
PODS: list[tuple[str, PodChanged, str]] = [
    (
        "pull-secret-expired",
        _pod(
            "ErrImagePull",
            'failed to pull image "1.dkr.ecr.eu-west-1.amazonaws.com/a:1": unexpected status '
            "from HEAD request: 403 Forbidden: denied: Your authorization token has expired. Reauthenticate and try again.",
        ),
        "ECR",
    ),
    (
        "image-wrong-architecture",
        _pod("ErrImagePull", 'failed to pull and unpack image "a:1": no match for platform in manifest: not found'),
        "containerd images/image.go",
    ),
    (
        "image-not-found",
        _pod(
            "ErrImagePull",
            'rpc error: code = NotFound desc = failed to pull and unpack image "r/a:none": failed '
            'to resolve reference "r/a:none": r/a:none: not found',
        ),
        "seen: tests/cluster",
    ),
    (
        "pull-denied",
        _pod(
            "ImagePullBackOff",
            'Back-off pulling image "r/a": ErrImagePull: failed to authorize: failed to fetch '
            "anonymous token: unexpected status from GET request: 401 Unauthorized",
        ),
        "containerd remotes/docker/authorizer.go",
    ),
    (
        "image-name-invalid",
        _pod("InvalidImageName", 'Failed to apply default image tag "A b": couldn\'t parse image name'),
        _KUBELET,
    ),
    (
        "registry-unreachable",
        _pod(
            "ErrImagePull", "failed to do request: Head https://r.test/v2/a/manifests/1: dial tcp: lookup r.test: no such host"
        ),
        "containerd, Go net; tests/cluster provokes its kin",
    ),
    ("image-pull", _pod("ImagePullBackOff", 'Back-off pulling image "r/a:1"'), _KUBELET),
    ("secret-missing", _pod("CreateContainerConfigError", 'secret "hub" not found'), "seen: tests/cluster"),
    ("config-map-missing", _pod("CreateContainerConfigError", 'configmap "settings" not found'), "kubelet_pods.go"),
    ("container-config", _pod("CreateContainerError", "failed to reserve container name"), _KUBELET),
    (
        "claim-missing",
        _pod("Unschedulable", '0/1 nodes are available: persistentvolumeclaim "ckpt" not found. preemption: 0/1'),
        "seen: tests/cluster",
    ),
    (
        "claim-pending",
        _pod("Unschedulable", "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        "kube-scheduler volumebinding/volume_binding.go:371",
    ),
    (
        "no-node-so-large",
        _pod(
            "Unschedulable",
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s). no new claims to "
            "deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
        "seen: tests/cluster",
    ),
    ("taint", _pod("Unschedulable", "0/2 nodes are available: 2 node(s) had untolerated taint(s)."), "taint_toleration.go:120"),
    (
        "no-node-matches",
        _pod("Unschedulable", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
        "node_affinity.go:64",
    ),
    (
        "gang-does-not-fit",
        _pod(
            "Unschedulable",
            "0/1 nodes are available: resource gap: map[cpu:{{500 -3} {<nil>}  DecimalSI}]. preemption: 0/1 nodes are "
            "available: 1 Preemption is not helpful for scheduling., PodGroup a/gang gets rejected due to Pod "
            "gang-node-0-0-5g9nf is unschedulable even after PostFilter",
        ),
        "seen: scheduler-plugins v0.33.5 on the test cluster",
    ),
    ("unschedulable", _pod("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"), _SCHEDULER),
    ("out-of-memory", _pod("OOMKilled", phase=PodPhase.FAILED, exit_code=137), "seen: tests/cluster"),
    (
        "ephemeral-storage-full",
        _pod("Evicted", "The node was low on resource: ephemeral-storage. ", phase=PodPhase.FAILED),
        "eviction/helpers.go:46",
    ),
    (
        "evicted",
        _pod("Evicted", "The node was low on resource: memory. ", phase=PodPhase.FAILED),
        "eviction/helpers.go:46",
    ),
    (
        "node-lost",
        _pod("NodeLost", "Node n which was running pod a is unresponsive", phase=PodPhase.UNKNOWN),
        "kube-controller-manager nodelifecycle",
    ),
    (
        "container-start",
        _pod(
            "StartError",
            'failed to create shim task: OCI runtime create failed: exec: "torchrnu": executable '
            "file not found in $PATH: unknown",
            phase=PodPhase.FAILED,
            exit_code=128,
        ),
        "seen: tests/cluster",
    ),
    (
        "local-not-started",
        _pod("NotStarted", "the job's own etcd did not start", phase=PodPhase.FAILED),
        "kfjob/local",
    ),
    (
        "crash-loop",
        _pod(
            "CrashLoopBackOff",
            "back-off 10s restarting failed container; ended before with Error (exit code 1)",
            phase=PodPhase.RUNNING,
            exit_code=1,
            restarts=2,
        ),
        "seen: tests/cluster",
    ),
    ("pod-killed", _pod("Signal 9", phase=PodPhase.FAILED, exit_code=137), "seen: tests/local"),
    ("pod-terminated", _pod("Error", phase=PodPhase.FAILED, exit_code=143), "128 + SIGTERM"),
    ("pod-not-executable", _pod("Error", phase=PodPhase.FAILED, exit_code=127), "POSIX shell"),
    ("pod-crashed", _pod("Error", phase=PodPhase.FAILED, exit_code=139), "128 + SIGSEGV"),
    ("pod-signalled", _pod("Error", phase=PodPhase.FAILED, exit_code=130), "128 + SIGINT"),
    ("pod-failed", _pod("Error", phase=PodPhase.FAILED, exit_code=1), "seen: tests/local"),
]

JOBS: list[tuple[str, JobChanged, str]] = [
    (
        "local-etcd-failed",
        JobChanged(phase=JobPhase.FAILED, reason="EtcdFailed", message="etcd ended with 1"),
        "kfjob/local",
    ),
    (
        "limit-exceeded",
        JobChanged(phase=JobPhase.STOPPED, reason="LimitExceeded", message="it has run for 12 s, and its watchdog allows 10 s"),
        "kfjob/api/lifecycle/wait.py",
    ),
    (
        "deadline",
        JobChanged(
            phase=JobPhase.FAILED,
            reason="PyTorchJobFailed",
            message="Job a has failed because it was active longer than specified deadline",
        ),
        "training-operator v1.9.3 pkg/controller.v1/common/job.go:212",
    ),
    (
        "backoff-limit",
        JobChanged(
            phase=JobPhase.FAILED,
            reason="PyTorchJobFailed",
            message="Job a has failed because it has reached the specified backoff limit",
        ),
        "training-operator v1.9.3 pkg/controller.v1/common/job.go:210",
    ),
    (
        "suspended",
        JobChanged(phase=JobPhase.SUSPENDED, reason="PyTorchJobSuspended"),
        "training-operator v1.9.3 util/status.go",
    ),
]
