"""Texts of failures with their sources: one for each rule that has one.

"seen: CASE" is a recording in tests/data/agent-logs; "seen" alone is a real run, on the test cluster or in tests/local. Other
sources are the file of the library that prints the text.
"""

from __future__ import annotations

from typing import NamedTuple

from kfjob.joblog.events import JobChanged, JobPhase, PodChanged, PodPhase


class Text(NamedTuple):
    rule: str
    text: str
    source: str


LINES = [
    Text(
        "omp-banner",
        "W1121 06:20:37.9 1 torch/distributed/run.py:984] Setting OMP_NUM_THREADS environment variable for each "
        "process to be 1 in default, to avoid your system being overloaded",
        "seen: 2.15.0-c10d-tee-logdir",
    ),
    Text(
        "shutdown-of-a-closed-store",
        "W1121 06:37:49.644000 1 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1314] The node "
        "'a-worker-0_1_0' has failed to shutdown the rendezvous 'job' due to an error of type "
        "RendezvousConnectionError.",
        "seen: 2.15.0-c10d-store-host-dies",
    ),
    Text(
        "no-error-file",
        "E1121 06:55:31.033000 1 torch/distributed/elastic/multiprocessing/errors/error_handler.py:194] no error file "
        "defined for parent, to copy child error file (/tmp/e/0/error.json)",
        "seen: 2.15.0-c10d-gloo-bogus-ifname",
    ),
    Text(
        "keep-alive-missed",
        "W1121 06:37:49.644000 1 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1362] The node "
        "'a-worker-0_1_0' has failed to send a keep-alive heartbeat to the rendezvous 'job' due to an error of type "
        "RendezvousConnectionError.",
        "seen: 2.15.0-c10d-store-host-dies",
    ),
    Text(
        "rendezvous-unresolvable",
        "[W1121 06:45:03.6 socket.cpp:764] [c10d] The IPv6 network addresses of (nosuch-master-0, 29400) cannot be "
        "retrieved (gai error: -2 - Name or service not known).",
        "seen: 2.15.0-c10d-endpoint-unresolvable-rt10",
    ),
    Text(
        "rendezvous-no-route",
        "[W1121 07:05:51.1 socket.cpp:764] [c10d] The client socket has failed to connect to [::ffff:10.77.0.98]:29400 "
        "(errno: 113 - No route to host).",
        "seen: 2.15.0-c10d-endpoint-noroute-rt10",
    ),
    Text(
        "rendezvous-refused",
        "[E1121 06:46:52.4 socket.cpp:1028] [c10d] The client socket has timed out after 10000ms while trying to "
        "connect to (fsdp-worker-1, 29400).",
        "seen: 2.15.0-c10d-endpoint-refused-rt10",
    ),
    Text(
        "too-few-nodes",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "seen: 2.15.0-c10d-too-few-nodes-jt15",
    ),
    Text(
        "stale-rendezvous-id",
        "INFO 2026-11-21 06:54:52,920 Rendezvous for run_id=f2 was observed to be closed",
        "seen: 2.15.0-etcd-rerun-same-id",
    ),
    Text(
        "rendezvous-closed",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        "seen: 2.15.0-etcd-rerun-same-id",
    ),
    Text(
        "python-etcd-missing",
        "torch.distributed.elastic.rendezvous._etcd_stub.EtcdStubError: The 'etcd' module is required but not installed.",
        "seen: 2.15.0-etcd-no-python-etcd",
    ),
    Text("etcd-v2-disabled", "etcd.EtcdException: Bad response : 404 page not found", "seen: 2.15.0-etcd-server-without-v2"),
    Text("etcd-lease-dead", "etcd.EtcdException: Raft Internal Error : etcdserver: Not a file", "seen with etcd 3.5 (facts)"),
    Text("loglevel-lower-case", "ValueError: Unknown level: 'info'", "seen: 2.15.0-c10d-loglevel-info-lower"),
    Text(
        "launcher-environment",
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
        "but not set",
        "torch 2.15 torch/distributed/rendezvous.py:265",
    ),
    Text("no-gpu", "RuntimeError: nccl2 requires at least one CUDA device", "seen: 2.15.0-c10d-nccl-nogpu"),
    Text(
        "gloo-no-interface",
        "RuntimeError: [enforce fail at third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to "
        "find address for: eth9",
        "seen: 2.15.0-c10d-gloo-bogus-ifname",
    ),
    Text("data-missing", "error: no data at `/data/c4`", "kfjob/trainer/data/sources.py:37"),
    Text(
        "tokenizer-missing",
        "OSError: Can't load tokenizer for 'my/model'. If you were trying to load it from "
        "'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
        "transformers 5.23 tokenization_utils_base.py:1757",
    ),
    Text(
        "checkpoint-shape",
        "ValueError: Size mismatch between saved torch.Size([4]) and current: torch.Size([8]) for model.w",
        "torch 2.15 distributed/checkpoint/default_planner.py:512",
    ),
    Text("checkpoint-damaged", "error: checkpoint `step-10` is damaged", "kfjob/trainer/checkpoint.py:89"),
    Text(
        "text-encoding",
        "UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9' in position 3: ordinal",
        "seen: CPython",
    ),
    Text(
        "script-not-found",
        "/usr/bin/python: can't open file '/workspace/trian.py': [Errno 2] No such file or directory",
        "CPython; tests/local",
    ),
    Text("read-only", "OSError: [Errno 30] Read-only file system: 'ro/checkpoints'", "seen: tests/data/crashes"),
    Text("fp16-unscale", "ValueError: Attempting to unscale FP16 gradients.", "torch 2.15 torch/amp/grad_scaler.py:275"),
    Text(
        "hub-auth",
        "Cannot access gated repo for url https://huggingface.co/meta-llama/Meta-Llama-3-8B/resolve/main/config.json.",
        "huggingface_hub 2.4 utils/_http.py:890",
    ),
    Text(
        "dataset-not-found",
        "datasets.exceptions.DatasetNotFoundError: Dataset 'allenai/c5' doesn't exist on the Hub or cannot be accessed.",
        "datasets 5.2 load.py:1134",
    ),
    Text(
        "model-not-found",
        "OSError: meta/lama is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        "transformers 5.23 utils/hub.py:570",
    ),
    Text(
        "hub-unreachable",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
        "cached files.",
        "transformers 5.23 utils/hub.py:621",
    ),
    Text("heap-corrupted", "double free or corruption (!prev)", "seen: tests/data/crashes"),
    Text(
        "assertion-failed",
        'kernel: kernel.c:2: plan: Assertion `heads % ranks == 0 && "heads must be divisible by ranks"\' failed.',
        "seen: tests/data/crashes",
    ),
    Text("illegal-instruction", "run.sh: line 1: 22430 Illegal instruction     ./ill", "seen: tests/data/crashes"),
    Text("arithmetic-signal", "run.sh: line 1: 22433 Floating point exception./fpe", "seen: tests/data/crashes"),
    Text(
        "wrong-architecture",
        "run.sh: line 1: ./arm: cannot execute binary file: Exec format error",
        "seen: tests/data/crashes",
    ),
    Text(
        "worker-killed",
        "E1121 07:10:17.9 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 0 "
        "(pid: 11) of binary: /opt/venv/bin/python",
        "seen: 2.15.0-c10d-kill9-worker-rank0",
    ),
    Text(
        "worker-terminated",
        "W1121 06:41:43.6 1 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 9 closing signal SIGTERM",
        "seen: 2.15.0-c10d-kill9-worker-rank0",
    ),
    Text(
        "worker-failed",
        "E1121 06:32:54.7 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 "
        "(pid: 9) of binary: /opt/venv/bin/python",
        "seen: 2.15.0-c10d-worker-exception-norestart",
    ),
    Text(
        "child-failed",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "seen: 2.15.0-c10d-worker-exception-norestart",
    ),
    Text(
        "nccl-timeout",
        "[rank0]:[E1121 06:37:49.6 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
        "torch ProcessGroupNCCL.cpp",
    ),
    Text(
        "peer-closed",
        "[rank0]: RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
        "[10.77.0.12]:54475.",
        "seen: 2.15.0-c10d-worker-exception-norestart",
    ),
    Text(
        "store-lost",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash?",
        "seen: 2.15.0-c10d-store-host-dies",
    ),
    Text(
        "store-wait-timeout",
        "torch.distributed.DistStoreError: wait timeout after 25000ms, keys: /default_pg/0//cpu//0/1",
        "seen: 2.15.0-c10d-elastic-kill-rank0-rejoin",
    ),
    Text("command-permission", "touch: cannot touch '/models/a': Permission denied", "seen: coreutils"),
    Text("command-file-missing", "start.sh: line 7: cd: /code: No such file or directory", "seen: bash"),
]

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
    ("taint", _pod("Unschedulable", "0/2 nodes are available: 2 node(s) had untolerated taint(s)."), "taint_toleration.go:120"),
    (
        "no-node-matches",
        _pod("Unschedulable", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
        "node_affinity.go:64",
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
