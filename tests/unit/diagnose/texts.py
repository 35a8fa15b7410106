"""An example text for every rule, with its source.

"seen" means that a real run printed it (in tests/data/agent-logs, or in a test of tests/local or tests/cluster). Otherwise the
text is from memory of the named file, and nothing here provokes it.
"""

from __future__ import annotations

from kfjob.joblog.events import JobChanged, JobPhase, PodChanged, PodPhase
from tests.unit.diagnose.library_texts import TEXTS, Text

_GLOG = "W1121 06:37:49.644000 1 torch/distributed/elastic"

LINES = [
    Text(
        "omp-banner",
        "W1121 06:20:37.9 1 torch/distributed/run.py:984] Setting OMP_NUM_THREADS environment variable for each "
        "process to be 1 in default, to avoid your system being overloaded",
        "seen: 2.15.0-c10d-tee-logdir",
    ),
    Text(
        "client-hostname",
        "[W1121 06:20:54.848759195 socket.cpp:204] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
        "torch 2.15 csrc/distributed/c10d/socket.cpp",
    ),
    Text(
        "shard-checkpoint-import",
        "/opt/venv/lib/python3.11/site-packages/torch/distributed/_shard/checkpoint/__init__.py:8: "
        "DeprecationWarning: `torch.distributed._shard.checkpoint` will be deprecated, use `torch.distributed.checkpoint` "
        "instead",
        "torch 2.15 torch/distributed/_shard/checkpoint/__init__.py",
    ),
    Text(
        "shutdown-of-a-closed-store",
        f"{_GLOG}/rendezvous/dynamic_rendezvous.py:1314] The node 'a-worker-0_1_0' has failed to "
        "shutdown the rendezvous 'job' due to an error of type RendezvousConnectionError.",
        "seen: 2.15.0-c10d-store-host-dies",
    ),
    Text(
        "process-group-not-destroyed",
        "[rank0]:[W1121 06:20:54.8 ProcessGroupNCCL.cpp:1496] Warning: WARNING: "
        "destroy_process_group() was not called before program exit, which can leak resources.",
        "torch 2.6 csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    Text(
        "no-error-file",
        "E1121 06:55:31.033000 1 torch/distributed/elastic/multiprocessing/errors/error_handler.py:194] no error "
        "file defined for parent, to copy child error file (/tmp/e/0/error.json)",
        "seen: 2.15.0-c10d-gloo-bogus-ifname",
    ),
    Text(
        "keep-alive-missed",
        f"{_GLOG}/rendezvous/dynamic_rendezvous.py:1362] The node 'a-worker-0_1_0' has failed to send a "
        "keep-alive heartbeat to the rendezvous 'job' due to an error of type RendezvousConnectionError.",
        "seen: 2.15.0-c10d-store-host-dies",
    ),
    Text(
        "network-unreachable",
        "[W1121 06:37:49.6 socket.cpp:764] [c10d] The client socket has failed to connect to "
        "[localhost]:12345 (errno: 101 - Network is unreachable).",
        "torch socket.cpp; S1's healthy run prints it",
    ),
    Text(
        "rendezvous-unresolvable",
        "[W1121 06:45:03.6 socket.cpp:764] [c10d] The IPv6 network addresses of (nosuch-master-0, "
        "29400) cannot be retrieved (gai error: -2 - Name or service not known).",
        "seen: 2.15.0-c10d-endpoint-unresolvable-rt10",
    ),
    Text(
        "rendezvous-no-route",
        "[W1121 07:05:51.1 socket.cpp:764] [c10d] The client socket has failed to connect to "
        "[::ffff:10.77.0.98]:29400 (errno: 113 - No route to host).",
        "seen: 2.15.0-c10d-endpoint-noroute-rt10",
    ),
    Text(
        "rendezvous-refused",
        "[E1121 06:46:52.4 socket.cpp:1028] [c10d] The client socket has timed out after 10000ms while "
        "trying to connect to (fsdp-worker-1, 29400).",
        "seen: 2.15.0-c10d-endpoint-refused-rt10",
    ),
    Text(
        "rendezvous-refused",
        "[W1121 06:46:52.4 socket.cpp:663] [c10d] The client socket has failed to connect to "
        "[fsdp-worker-1]:29400 (errno: 111 - Connection refused).",
        "torch 2.2 socket.cpp",
    ),
    Text(
        "address-in-use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "torch 2.15 csrc/distributed/c10d/TCPStoreLibUvBackend.cpp",
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
        "rendezvous-closed", "torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "seen: 2.15.0-etcd-rerun-same-id"
    ),
    Text(
        "python-etcd-missing",
        "torch.distributed.elastic.rendezvous._etcd_stub.EtcdStubError: The 'etcd' module is required but not installed.",
        "seen: 2.15.0-etcd-no-python-etcd",
    ),
    Text("python-etcd-missing", "ModuleNotFoundError: No module named 'urllib3'", "seen with etcd-v2 (facts, section 6)"),
    Text("etcd-v2-disabled", "etcd.EtcdException: Bad response : 404 page not found", "seen: 2.15.0-etcd-server-without-v2"),
    Text(
        "etcd-v2-disabled",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to etcd has failed. "
        "See inner exception for details.",
        "torch elastic/rendezvous/etcd_rendezvous_backend.py",
    ),
    Text("etcd-lease-dead", "etcd.EtcdException: Raft Internal Error : etcdserver: Not a file", "seen with etcd 3.5 (facts)"),
    Text("etcd-unreachable", "etcd.EtcdConnectionFailed: No more machines in the cluster", "python-etcd 0.4.5 client.py"),
    Text("loglevel-lower-case", "ValueError: Unknown level: 'info'", "seen: 2.15.0-c10d-loglevel-info-lower"),
    Text(
        "standalone-empty", "ValueError: invalid literal for int() with base 10: ''", "torch run.py, argparse_util.py check_env"
    ),
    Text(
        "wrong-nproc",
        "ValueError: Unsupported nproc_per_node value: gpus",
        "torch 2.15 torch/distributed/run.py:885; tests/local",
    ),
    Text(
        "launcher-environment",
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
        "RANK expected, but not set",
        "torch 2.15 torch/distributed/rendezvous.py:265",
    ),
    Text(
        "cuda-oom",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity "
        "of 79.11 GiB of which 1.03 GiB is free.",
        "torch c10/cuda/CUDACachingAllocator.cpp",
    ),
    Text(
        "invalid-device-ordinal",
        "[rank8]: torch.AcceleratorError: CUDA error: invalid device ordinal",
        "cudaErrorInvalidDevice, CUDA runtime; S3's sketch",
    ),
    Text("gpu-lost", "NVRM: Xid (PCI:0000:5b:00): 79, pid=1234, GPU has fallen off the bus.", "NVIDIA Xid errors, 79"),
    Text(
        "gpu-lost", "RuntimeError: CUDA error: uncorrectable ECC error encountered", "cudaErrorECCUncorrectable, CUDA runtime"
    ),
    Text(
        "libcuda-missing",
        "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "glibc dlopen; S0",
    ),
    Text("libcuda-missing", "AssertionError: libcuda.so cannot found!", "triton common/build.py; S0's note"),
    Text(
        "driver-too-old",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        "torch c10/cuda/CUDAFunctions.cpp",
    ),
    Text("no-gpu", "RuntimeError: nccl2 requires at least one CUDA device", "seen: 2.15.0-c10d-nccl-nogpu"),
    Text("no-gpu", "RuntimeError: Nccl backend is required but no cuda capable devices", "pytorch-ignite"),
    Text("no-gpu", "AssertionError: CUDA is not available", "programs"),
    Text("no-gpu", "RuntimeError: training requires a GPU", "programs"),
    Text("no-gpu", "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "torch ProcessGroupNCCL.cpp"),
    Text(
        "no-kernel-image", "RuntimeError: CUDA error: no kernel image is available for execution on the device", "CUDA runtime"
    ),
    Text(
        "collectives-differ",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE)",
        "torch ProcessGroupWrapper.cpp; tests/local",
    ),
    Text(
        "duplicate-gpu",
        "a-worker-0:12:34 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50",
        "NCCL src/init.cc",
    ),
    Text(
        "nccl-no-interface",
        "a-worker-0:12:34 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        "NCCL 2.30 (its text is in libnccl.so)",
    ),
    Text(
        "gloo-no-interface",
        "RuntimeError: [enforce fail at third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
        "Unable to find address for: eth9",
        "seen: 2.15.0-c10d-gloo-bogus-ifname",
    ),
    Text(
        "efa-missing",
        "libfabric:85:1747438790::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa output empty list",
        "libfabric src/fabric.c, in a log of aws/aws-ofi-nccl issue 889",
    ),
    Text(
        "efa-missing", "a-worker-0:12:34 [0] NCCL WARN NET/OFI No eligible providers were found", "aws-ofi-nccl nccl_ofi_net.c"
    ),
    Text(
        "shm-too-small",
        "RuntimeError: unable to write to file </torch_12_345_6>: No space left on device (28)",
        "torch ATen/MapAllocator.cpp, to 2.8",
    ),
    Text(
        "shm-too-small",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_6192_3877265522_0>: No space left on device (28)",
        "torch 2.15; tests/local",
    ),
    Text(
        "shm-too-small",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "torch csrc/DataLoader.cpp",
    ),
    Text(
        "shm-too-small",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)",
        "NCCL misc/shmutils.cc",
    ),
    Text(
        "device-assert",
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [1,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.",
        "torch ATen/native/cuda/Indexing.cu",
    ),
    Text(
        "nccl-system-error",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system "
        "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3",
        "NCCL src/init.cc ncclGetErrorString",
    ),
    Text("module-not-found", "ModuleNotFoundError: No module named 'flash_attn'", "CPython; tests/local"),
    Text("module-not-found", "/usr/bin/python: No module named kfjob.trainer", "CPython runpy; tests/local"),
    Text(
        "import-error",
        "ImportError: cannot import name 'shard' from 'torch' (/opt/venv/torch/__init__.py)",
        "CPython; tests/local",
    ),
    Text("no-terminal", "OSError: [Errno 25] Inappropriate ioctl for device", "CPython os.get_terminal_size"),
    Text("python-syntax", "SyntaxError: invalid syntax", "CPython; tests/local"),
    Text("argument-error", "train.py: error: unrecognized arguments: --lrr", "CPython argparse; tests/local"),
    Text(
        "script-not-found",
        "/usr/bin/python: can't open file '/workspace/trian.py': [Errno 2] No such file or directory",
        "CPython; tests/local",
    ),
    Text("command-not-found", "sh: 1: torchrnu: not found", "dash; tests/local"),
    Text("command-not-found", "bash: line 1: torchrnu: command not found", "bash"),
    Text("host-memory", "MemoryError", "CPython; tests/local"),
    Text(
        "host-memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 4096000000 bytes.",
        "torch c10/core/impl/alloc_cpu.cpp",
    ),
    Text(
        "loader-worker-killed",
        "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed.",
        "torch csrc/DataLoader.cpp",
    ),
    Text("disk-full", "OSError: [Errno 28] No space left on device", "CPython, errno ENOSPC; tests/local"),
    Text("permission-denied", "PermissionError: [Errno 13] Permission denied: '/checkpoints/step-10'", "CPython, errno EACCES"),
    Text(
        "precision-unsupported",
        "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU: bf16 requires it",
        "transformers training_args.py",
    ),
    Text(
        "ddp-unused-parameters",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        "torch csrc/distributed/c10d/reducer.cpp",
    ),
    Text("fp16-unscale", "ValueError: Attempting to unscale FP16 gradients.", "torch 2.15 torch/amp/grad_scaler.py:275"),
    Text(
        "hub-auth",
        "Cannot access gated repo for url https://huggingface.co/meta-llama/Meta-Llama-3-8B/resolve/main/config.json.",
        "huggingface_hub 2.4 utils/_http.py:890",
    ),
    Text("hub-auth", "You are trying to access a gated repo.", "transformers 5.23 utils/hub.py:611"),
    Text(
        "hub-auth",
        "datasets.exceptions.DatasetNotFoundError: Dataset 'nobody/gated' is a gated dataset on the Hub. "
        "You must be authenticated to access it.",
        "datasets 5.2; tests/local",
    ),
    Text(
        "hub-rate-limit",
        "HTTP Error 429 thrown while requesting HEAD https://huggingface.co/datasets/nobody/busy/resolve/main/README.md",
        "huggingface_hub 2.4, seen with a stand-in for the hub",
    ),
    Text(
        "model-not-found",
        "Repository Not Found for url: https://huggingface.co/api/models/nobody/missing/revision/main.",
        "huggingface_hub 2.4, seen with a stand-in for the hub",
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
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them "
        "in the cached files.",
        "transformers 5.23 utils/hub.py:621",
    ),
    Text(
        "hub-rate-limit",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
        "https://huggingface.co/api/datasets/allenai/c4",
        "huggingface_hub; HTTP 429",
    ),
    Text("text-without-tokenizer", "error: text needs a tokenizer", "kfjob/trainer/data/sources.py"),
    Text("data-missing", "error: no data at `/data/c4`", "kfjob/trainer/data/sources.py:37"),
    Text(
        "tokenizer-missing",
        "OSError: Can't load tokenizer for 'my/model'. If you were trying to load it from "
        "'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
        "transformers 5.23 tokenization_utils_base.py:1757",
    ),
    Text("tokenizer-mismatch", "IndexError: index out of range in self", "torch ATen/native/EmbeddingBag.cpp; tests/local"),
    Text(
        "checkpoint-shape",
        "\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 64]) from "
        "checkpoint, the shape in current model is torch.Size([50432, 64]).",
        "torch 2.15 nn/modules/module.py:2452; tests/local",
    ),
    Text(
        "checkpoint-shape",
        "ValueError: Size mismatch between saved torch.Size([4]) and current: torch.Size([8]) for model.w",
        "torch 2.15 distributed/checkpoint/default_planner.py:512",
    ),
    Text(
        "checkpoint-damaged",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "torch caffe2/serialize/inline_container.cc; tests/local",
    ),
    Text("checkpoint-damaged", "error: checkpoint `step-10` is damaged", "kfjob/trainer/checkpoint.py:89"),
    Text("file-not-found", "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'", "CPython; tests/local"),
    Text(
        "forward-order",
        "/opt/venv/torch/distributed/fsdp/_exec_order_utils.py:299: UserWarning: Forward order differs from "
        "that of the first iteration on rank 3. Collectives are unchecked and may give incorrect results or hang.",
        "torch 2.15 torch/distributed/fsdp/_exec_order_utils.py:299; S0",
    ),
    Text(
        "outcome-failed",
        '2026-11-21 06:37:50 E [run.py:64] Outcome failed step 3 loss 2.5 checkpoint none reason "no data"',
        "kfjob/trainer/metrics.py",
    ),
    Text(
        "bus-error",
        "E1121 06:32:54.7 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -7) local_rank: "
        "0 (pid: 9) of binary: /opt/venv/bin/python",
        "torch elastic/multiprocessing/api.py; tests/local sends SIGBUS",
    ),
    Text(
        "worker-killed",
        "E1121 07:10:17.9 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) "
        "local_rank: 0 (pid: 11) of binary: /opt/venv/bin/python",
        "seen: 2.15.0-c10d-kill9-worker-rank0",
    ),
    Text(
        "worker-crashed",
        "E1121 07:10:17.9 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -11) "
        "local_rank: 0 (pid: 11) of binary: /opt/venv/bin/python",
        "the same; tests/local sends SIGSEGV",
    ),
    Text(
        "worker-aborted",
        "E1121 07:10:17.9 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) "
        "local_rank: 0 (pid: 11) of binary: /opt/venv/bin/python",
        "the same; NCCL's watchdog aborts",
    ),
    Text(
        "worker-signalled",
        "E1121 07:10:17.9 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -10) "
        "local_rank: 0 (pid: 11) of binary: /opt/venv/bin/python",
        "the same; SIGUSR1",
    ),
    Text(
        "worker-terminated",
        "W1121 06:41:43.6 1 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 9 closing signal SIGTERM",
        "seen: 2.15.0-c10d-kill9-worker-rank0",
    ),
    Text(
        "worker-failed",
        "E1121 06:32:54.7 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 0 (pid: 9) of binary: /opt/venv/bin/python",
        "seen: 2.15.0-c10d-worker-exception-norestart",
    ),
    Text(
        "child-failed",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "seen: 2.15.0-c10d-worker-exception-norestart",
    ),
    Text(
        "nccl-timeout",
        "[rank0]:[E1121 06:37:49.6 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
        "torch ProcessGroupNCCL.cpp",
    ),
    Text(
        "peer-closed",
        "[rank0]: RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
        "[10.77.0.12]:54475.",
        "seen: 2.15.0-c10d-worker-exception-norestart",
    ),
    Text(
        "peer-closed",
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection "
        "refused, remote=[10.77.0.11]:19373",
        "seen: 2.15.0-c10d-kill9-worker-rank0",
    ),
    Text(
        "store-lost",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the "
        "remote server shutdown or crash?",
        "seen: 2.15.0-c10d-store-host-dies",
    ),
    Text(
        "store-wait-timeout",
        "torch.distributed.DistStoreError: wait timeout after 25000ms, keys: /default_pg/0//cpu//0/1",
        "seen: 2.15.0-c10d-elastic-kill-rank0-rejoin",
    ),
    *TEXTS,
]


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
        "pull-secret-expired",
        _pod(
            "ImagePullBackOff",
            'Back-off pulling image "1.dkr.ecr.eu-west-1.amazonaws.com/a:1": ErrImagePull: pulling from host '
            "1.dkr.ecr.eu-west-1.amazonaws.com failed with status code [manifests 1]: 403 Forbidden",
        ),
        "the form was seen on the test cluster: containerd 1.6 drops the body of the answer",
    ),
    (
        "image-wrong-architecture",
        _pod("ErrImagePull", 'failed to pull and unpack image "a:1": no match for platform in manifest: not found'),
        "containerd images/image.go",
    ),
    ("image-wrong-architecture", _pod("CrashLoopBackOff", "exec /usr/bin/torchrun: exec format error"), "Linux, ENOEXEC"),
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
        "pull-denied",
        _pod(
            "ErrImagePull",
            "pull access denied, repository does not exist or may require authorization: server "
            "message: insufficient_scope: authorization failed",
        ),
        "containerd remotes/docker/resolver.go",
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
    ("secret-missing", _pod("CreateContainerConfigError", "couldn't find key token in Secret team/hub"), "kubelet_pods.go:911"),
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
        "no-gpu-free",
        _pod(
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are "
            "available: 1 No preemption victims found for incoming pod.",
        ),
        "seen: tests/cluster",
    ),
    ("no-gpu-free", _pod("Unschedulable", "0/8 nodes are available: 8 Insufficient vpc.amazonaws.com/efa."), _SCHEDULER),
    ("no-capacity", _pod("Unschedulable", "0/2 nodes are available: 2 Insufficient memory."), _SCHEDULER),
    ("taint", _pod("Unschedulable", "0/2 nodes are available: 2 node(s) had untolerated taint(s)."), "taint_toleration.go:120"),
    (
        "no-node-matches",
        _pod("Unschedulable", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
        "node_affinity.go:64",
    ),
    ("unschedulable", _pod("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"), _SCHEDULER),
    ("out-of-memory", _pod("OOMKilled", phase=PodPhase.FAILED, exit_code=137), "seen: tests/cluster"),
    (
        "out-of-memory",
        _pod(
            "CrashLoopBackOff",
            "back-off 10s restarting failed container=pytorch; ended before with OOMKilled (exit code 137)",
            phase=PodPhase.RUNNING,
            exit_code=137,
        ),
        "kfjob/cluster/pods.py `_with_last_end`",
    ),
    (
        "ephemeral-storage-full",
        _pod("Evicted", "The node was low on resource: ephemeral-storage. ", phase=PodPhase.FAILED),
        "eviction/helpers.go:46",
    ),
    (
        "ephemeral-storage-full",
        _pod(
            "Evicted",
            "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
            phase=PodPhase.FAILED,
        ),
        "eviction/helpers.go:56",
    ),
    (
        "evicted",
        _pod("Evicted", "The node was low on resource: memory. ", phase=PodPhase.FAILED),
        "eviction/helpers.go:46",
    ),
    (
        "out-of-memory",
        PodChanged(pod="a-worker-0", phase=PodPhase.RUNNING, ready=True, restarts=1, exit_code=137, last_reason="OOMKilled"),
        "seen: tests/cluster",
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
