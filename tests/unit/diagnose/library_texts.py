"""Messages of libraries, the driver and the system, written from memory of what they print; no test provokes them here.

`source` names the library, and the file that prints the message as far as we remember; nobody compared the texts with it.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.unit.diagnose import framework_texts, launcher_texts, trainer_texts


class Text(NamedTuple):
    rule: str
    text: str
    source: str


_ALLOCATOR = "torch c10/cuda/CUDACachingAllocator.cpp"
_CUDA = "CUDA runtime, cudaGetErrorString"
_NCCL = "a-worker-0:12:34 [3]"

TEXTS = [
    Text(
        "nccl-gpu-memory", f"{_NCCL} include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'", "NCCL src/include/alloc.h"
    ),
    Text(
        "nccl-gpu-memory",
        f"{_NCCL} include/alloc.h:185 NCCL WARN Failed to CUDA calloc 4194304 bytes",
        "NCCL src/include/alloc.h",
    ),
    Text(
        "nccl-memlock",
        f"{_NCCL} misc/ibvwrap.cc:190 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        "NCCL src/misc/ibvwrap.cc",
    ),
    Text("nccl-memlock", "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.", "rdma-core libibverbs/init.c"),
    Text(
        "nccl-ib-setup",
        f"{_NCCL} misc/ibvwrap.cc:222 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110",
        "NCCL src/misc/ibvwrap.cc",
    ),
    Text(
        "nccl-ib-completion",
        f"{_NCCL} transport/net_ib.cc:2231 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<44321> with status=12 "
        f"opcode=0 len=0 "
        "vendor err 129",
        "NCCL src/transport/net_ib.cc",
    ),
    Text(
        "nccl-connect",
        f"{_NCCL} misc/socket.cc:485 NCCL WARN socketStartConnect: Connect to fe80::a8:3eff:fe0c:1%ib0<45123> failed : "
        "Network is unreachable",
        "NCCL src/misc/socket.cc",
    ),
    Text("nccl-versions", "ncclInvalidUsage: Mismatched NCCL version detected : rank 1 version 21805", "NCCL src/init.cc"),
    Text(
        "ofi-error",
        f"{_NCCL} nccl_net_ofi_rdma:1100 NCCL WARN NET/OFI Couldn't open CQ. RC: -12",
        "aws-ofi-nccl nccl_ofi_rdma.c",
    ),
    Text(
        "gloo-hostname",
        "RuntimeError: [enforce fail at third_party/gloo/gloo/transport/tcp/device.cc:127] rp != nullptr. Unable to find "
        "address "
        "for: node-a.lan",
        "gloo/transport/tcp/device.cc",
    ),
    Text(
        "gloo-loopback",
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
        "remote=[127.0.1.1]:19373",
        "gloo/transport/tcp/pair.cc",
    ),
    Text(
        "privileged-port",
        "RuntimeError: The server socket has failed to bind to 0.0.0.0:80 (errno: 13 - Permission denied).",
        "torch 2.2 csrc/distributed/c10d/socket.cpp",
    ),
    Text(
        "address-not-local",
        "torch.distributed.DistNetworkError: The server could not be initialized on any address for port=29500, code: -99, "
        "name: "
        "EADDRNOTAVAIL, message: address not available",
        "torch csrc/distributed/c10d/TCPStoreLibUvBackend.cpp",
    ),
    Text(
        "rendezvous-unreachable",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. "
        "See inner "
        "exception for details.",
        "torch elastic/rendezvous/c10d_rendezvous_backend.py",
    ),
    Text(
        "certificate",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate "
        "(_ssl.c:1006)",
        "CPython ssl",
    ),
    Text(
        "proxy-refused",
        "urllib3.exceptions.ProxyError: ('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden'))",
        "urllib3 connectionpool.py",
    ),
    Text(
        "mesh-proxy",
        "OSError: upstream connect error or disconnect/reset before headers. reset reason: connection termination",
        "Envoy",
    ),
    Text("name-unresolvable", "socket.gaierror: [Errno -2] Name or service not known", "CPython, glibc getaddrinfo"),
    Text(
        "gpu-used-by-others",
        "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 23.69 GiB total capacity; 3.10 GiB already "
        "allocated; "
        "100.00 MiB free; 3.50 GiB reserved in total by PyTorch)",
        "torch 2.0 c10/cuda/CUDACachingAllocator.cpp",
    ),
    Text(
        "gpu-used-by-others",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.11 GiB of "
        "which 1.03 "
        "GiB is free. Process 4711 has 60.00 GiB memory in use. Of the allocated memory 16.00 GiB is allocated by PyTorch, "
        "and 512.00 "
        "MiB is reserved by PyTorch but unallocated.",
        _ALLOCATOR,
    ),
    Text("gpu-busy", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", _CUDA),
    Text(
        "fabric-manager",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "torch c10/cuda/CUDAFunctions.cpp, cudaErrorSystemNotReady",
    ),
    Text(
        "driver-mismatch",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda "
        "driver "
        "combination",
        "torch c10/cuda/CUDAFunctions.cpp, cudaErrorSystemDriverMismatch",
    ),
    Text("nvml-mismatch", "Failed to initialize NVML: Driver/library version mismatch", "nvidia-smi"),
    Text("gpu-access-lost", "Failed to initialize NVML: Unknown Error", "nvidia-smi"),
    Text(
        "cuda-in-fork",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
        "'spawn' start "
        "method",
        "torch cuda/__init__.py; tests/local",
    ),
    Text("illegal-memory-access", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered", _CUDA),
    Text("illegal-memory-access", "NVRM: Xid (PCI:0000:5b:00): 31, pid=99, MMU Fault", "NVIDIA Xid errors, 31"),
    Text(
        "cublas-failed",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`",
        "torch aten/src/ATen/cuda/Exceptions.h",
    ),
    Text("cuda-error", "RuntimeError: CUDA error: the launch timed out and was terminated", _CUDA),
    Text(
        "device-mismatch",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:1!",
        "torch aten/src/ATen/TensorUtils.cpp",
    ),
    Text(
        "device-mismatch",
        "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
        "torch aten/src/ATen/native/Convolution.cpp",
    ),
    Text(
        "fsdp-mixed-parameters",
        "ValueError: Must flatten tensors with uniform dtype but got torch.float32 and torch.bfloat16",
        "torch distributed/fsdp/_flat_param.py",
    ),
    Text("dtype-mismatch", "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16", "torch"),
    Text("dtype-mismatch", "RuntimeError: expected scalar type Float but found Half", "torch aten/src/ATen"),
    Text(
        "flash-attention-gpu",
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        "flash-attn csrc/flash_attn/flash_api.cpp",
    ),
    Text(
        "ddp-model-differs",
        "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 12 params, while rank 0 has inconsistent 10 "
        "params.",
        "torch csrc/distributed/c10d/reducer.cpp",
    ),
    Text(
        "ddp-marked-twice",
        "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons",
        "torch csrc/distributed/c10d/reducer.cpp",
    ),
    Text(
        "ddp-nothing-to-train",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        "torch csrc/autograd",
    ),
    Text(
        "inplace-change",
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
        "torch csrc/autograd/saved_variable.cpp",
    ),
    Text(
        "batch-arithmetic",
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * "
        "world_size 32 != 4 * 4 * 1",
        "DeepSpeed runtime/config.py",
    ),
    Text(
        "sequence-parallel-length",
        "AssertionError: First dimension of the tensor should be divisible by tensor parallel size",
        "Megatron-LM core/tensor_parallel/mappings.py",
    ),
    Text(
        "parallel-sizes",
        "RuntimeError: world_size (8) is not divisible by tensor_model_parallel_size (4) x pipeline_model_parallel_size (3)",
        "Megatron-LM core/parallel_state.py",
    ),
    Text(
        "loss-scale-minimum",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "DeepSpeed runtime/fp16/loss_scaler.py",
    ),
    Text(
        "tensor-shapes",
        "RuntimeError: stack expects each tensor to be equal size, but got [7] at entry 0 and [9] at entry 1",
        "torch aten/src/ATen/native/TensorShape.cpp",
    ),
    Text(
        "process-group-missing",
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
        "torch distributed/distributed_c10d.py",
    ),
    Text(
        "cuda-toolkit-mismatch",
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.4).",
        "torch utils/cpp_extension.py",
    ),
    Text(
        "cuda-toolkit-missing",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "torch utils/cpp_extension.py",
    ),
    Text("ninja-missing", "RuntimeError: Ninja is required to load C++ extensions", "torch utils/cpp_extension.py"),
    Text(
        "compiler-missing",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",
        "Triton runtime/build.py",
    ),
    Text("headers-missing", "/tmp/tmp4l/main.c:4:10: fatal error: Python.h: No such file or directory", "gcc"),
    Text(
        "triton-missing",
        "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.",
        "torch _inductor/exc.py",
    ),
    Text(
        "triton-resources",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
        "Triton runtime/errors.py",
    ),
    Text("ptx-assembler", "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "CUDA toolkit, ptxas"),
    Text("extension-build", "RuntimeError: Error building extension 'cpu_adam'", "torch utils/cpp_extension.py"),
    Text(
        "compile-failed",
        "torch._dynamo.exc.TorchRuntimeError: Graph break in user code",
        "torch _dynamo/exc.py",
    ),
    Text(
        "cuda-libraries-mixed",
        "ImportError: /opt/venv/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
        "__nvJitLinkComplete_12_4",
        "glibc, dlopen",
    ),
    Text(
        "extension-abi",
        "ImportError: /opt/venv/fused_dense.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN3c105ErrorC2ENS_14SourceLocationESs",
        "glibc, dlopen",
    ),
    Text(
        "libstdcxx-too-old",
        "ImportError: /opt/conda/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /root/x.so)",
        "glibc, dlopen",
    ),
    Text(
        "glibc-too-old",
        "OSError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by x.so)",
        "glibc, dlopen",
    ),
    Text(
        "bitsandbytes-binary",
        "RuntimeError: CUDA Setup failed despite GPU being available. Please run: python -m bitsandbytes",
        "bitsandbytes cextension.py",
    ),
    Text(
        "shared-library-missing",
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "glibc, dlopen",
    ),
    Text(
        "numpy-abi",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from "
        "PyObject",
        "Cython",
    ),
    Text(
        "model-type-unknown",
        "ValueError: The checkpoint you are trying to load has model type `nova9` but Transformers does not recognize this "
        "architecture.",
        "transformers models/auto/configuration_auto.py",
    ),
    Text(
        "remote-code",
        "ValueError: The repository nobody/x contains custom code which must be executed to correctly load the model.",
        "transformers dynamic_module_utils.py",
    ),
    Text(
        "package-version",
        "ImportError: tokenizers>=0.22.0,<=0.23.0 is required for a normal functioning of this module, but found "
        "tokenizers==0.19.1.",
        "transformers utils/versions.py",
    ),
    Text("library-interface", "AttributeError: module 'torch' has no attribute 'float9'", "CPython"),
    Text(
        "optimizer-unbuilt",
        "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
        "DeepSpeed ops/adam/cpu_adam.py",
    ),
    Text("host-oom-kill", "slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch.", "Slurm, slurmstepd"),
    Text("host-oom-kill", "Memory cgroup out of memory: Killed process 4711 (python) total-vm:9000kB", "Linux mm/oom_kill.c"),
    Text("thread-limit", "RuntimeError: can't start new thread", "CPython"),
    Text(
        "thread-limit",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 8: Resource temporarily unavailable",
        "OpenBLAS driver/others/blas_server.c",
    ),
    Text("open-files", "OSError: [Errno 24] Too many open files: '/data/shard-1'", "CPython"),
    Text("open-files", "RuntimeError: received 0 items of ancdata", "CPython multiprocessing/reduction.py"),
    Text(
        "cache-unwritable",
        "PermissionError: [Errno 13] Permission denied: '/.cache/huggingface'",
        "CPython, errno EACCES",
    ),
    Text("user-unknown", "KeyError: 'getpwuid(): uid not found: 1234'", "CPython pwd"),
    Text(
        "hangup",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 40 got signal: 1",
        "torch elastic/multiprocessing/api.py",
    ),
    Text(
        "queue-cancelled",
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***",
        "Slurm, slurmstepd",
    ),
    Text(
        "launcher-failed",
        "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' returned non-zero exit status 3.",
        "accelerate commands/launch.py, CPython",
    ),
    Text("child-raised", "torch.multiprocessing.spawn.ProcessRaisedException: ", "torch multiprocessing/spawn.py"),
    Text("worker-killed", "python exits with return code = -9", "DeepSpeed launcher/launch.py"),
    Text("worker-killed", "Loading checkpoint shards:  50%|█████     | 2/4 [00:02<00:02]Killed", "bash"),
    Text(
        "weights-only",
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options.",
        "torch serialization.py",
    ),
    Text(
        "torch-load-blocked",
        "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now require "
        "users to upgrade",
        "transformers utils/import_utils.py",
    ),
    Text(
        "weights-not-downloaded",
        "safetensors_rust.SafetensorError: Error while deserializing header: header too large",
        "safetensors",
    ),
    Text("weights-not-downloaded", "_pickle.UnpicklingError: invalid load key, 'v'.", "CPython pickle"),
    Text(
        "checkpoint-plan",
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])",
        "torch distributed/checkpoint/api.py",
    ),
    Text(
        "checkpoint-world-size",
        "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 16 but the "
        "current "
        "world size is 8.",
        "DeepSpeed runtime/zero/stage_1_and_2.py",
    ),
    Text(
        "data-unreadable",
        "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/text) changed from string to number in row 2",
        "pyarrow",
    ),
    Text("file-damaged", "EOFError: Ran out of input", "CPython pickle"),
    Text("file-damaged", "OSError: image file is truncated (12 bytes not processed)", "Pillow ImageFile.py"),
    Text("file-damaged", "OSError: broken data stream when reading image file", "Pillow ImageFile.py"),
    Text(
        "tokenizer-format",
        "Exception: data did not match any variant of untagged enum PreTokenizerWrapper at line 69 column 3",
        "tokenizers, serde",
    ),
    Text("json-text", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "CPython"),
    Text("dtype-float64", "RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float", "torch"),
    Text("dtype-float64", "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Double", "torch"),
    Text("dtype-float64", "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != double", "torch"),
    Text("dtype-float64", "RuntimeError: expected scalar type Float but found Double", "torch"),
    Text("dtype-float64", "RuntimeError: Found dtype Double but expected Float", "torch"),
    Text("dtype-float64", "RuntimeError: Input type (double) and bias type (float) should be the same", "torch"),
    Text("matrix-shapes", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x16 and 32x1)", "torch"),
    Text("gloo-timeout", "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors", "torch"),
    Text("gloo-timeout", "RuntimeError: [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation", "gloo"),
    Text("queue-cancelled", "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***", "Slurm"),
    Text(
        "dataset-generation",
        "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
        "datasets builder.py",
    ),
    Text(
        "import-wrapped",
        "RuntimeError: Failed to import transformers.models.llama because of the following error (look up to see its "
        "traceback):",
        "transformers utils/import_utils.py",
    ),
    Text(
        "wandb-login", "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])", "wandb"
    ),
    Text("wandb-failed", "wandb: ERROR Error while calling W&B API: internal error (<Response [500]>)", "wandb sdk/internal"),
    Text("cloud-credentials", "botocore.exceptions.NoCredentialsError: Unable to locate credentials", "botocore"),
    Text(
        "bucket-object-missing",
        "botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the GetObject operation",
        "botocore",
    ),
    Text(
        "local-rank-argument",
        "train.py: error: unrecognized arguments: --local-rank=0",
        "CPython argparse, torch distributed/launch.py",
    ),
    Text("gpu-full", "RuntimeError: CUDA error: out of memory", _CUDA),
    Text("cuda-init", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 999: unknown error", _CUDA),
    Text("no-kernel-image", "RuntimeError: CUDA error: invalid device function", _CUDA),
    Text("backend-device", "RuntimeError: No backend type associated with device type cpu", "torch distributed_c10d.py"),
    Text("torch-without-nccl", "RuntimeError: Distributed package doesn't have NCCL built in", "torch distributed_c10d.py"),
    Text(
        "quantized-placement",
        "ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",
        "accelerate accelerator.py",
    ),
    Text("sharded-parameter", "RuntimeError: 'weight' must be 2-D", "torch aten/src/ATen/native/Embedding.cpp"),
    Text("loss-diverged", "ValueError: the loss is nan, training stops", "many programs"),
    Text(
        "loader-worker-crashed",
        "RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault. ",
        "torch DataLoader.cpp",
    ),
    Text(
        "checkpoint-device",
        "RuntimeError: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 4.",
        "torch serialization.py",
    ),
    Text(
        "checkpoint-write",
        "RuntimeError: PytorchStreamWriter failed writing file data/3: file write failed",
        "torch inline_container.cc",
    ),
    Text("storage-lost", "OSError: [Errno 116] Stale file handle: '/data/a'", "Linux, errno ESTALE"),
    Text(
        "model-files-missing",
        "OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory /m.",
        "transformers modeling_utils.py",
    ),
    Text(
        "data-empty",
        "ValueError: num_samples should be a positive integer value, but got num_samples=0",
        "torch sampler.py",
    ),
    Text("connection-refused", "ConnectionRefusedError: [Errno 111] Connection refused", "CPython"),
    Text("nccl-error", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "NCCL src/init.cc"),
    Text(
        "nccl-warning",
        f"{_NCCL} graph/xml.cc:300 NCCL WARN Could not find real path of /sys/class/net/x",
        "NCCL src/graph/xml.cc",
    ),
    Text(
        "ipv6-unavailable",
        "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not "
        "supported by "
        "protocol).",
        "torch 2.1 csrc/distributed/c10d/socket.cpp",
    ),
    Text("launcher-environment", "KeyError: 'LOCAL_RANK'", "CPython os.environ"),
]

MESSAGES = [
    Text(
        "openmp-twice",
        """OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.
OMP: Hint This means that multiple copies of the OpenMP runtime have been linked into the program.""",
        "LLVM openmp/runtime/src/i18n/en_US.txt",
    ),
    Text("openmp-error", "OMP: Error #179: Function Can't open SHM failed:", "LLVM openmp/runtime/src/i18n/en_US.txt"),
    Text(
        "triton-assertion",
        "python3: /project/lib/Analysis/Allocation.cpp:43: f mlir::triton::g(mlir::Attribute): Assertion `!(a && b) && "
        '"mma -> mma layout conversion is only supported on Ampere"\' failed.',
        "Triton lib/Analysis/Allocation.cpp",
    ),
    Text(
        "assertion-failed",
        'kernel: kernel.c:2: plan: Assertion `heads % ranks == 0 && "heads must be divisible by ranks"\' failed.',
        "seen: tests/data/crashes",
    ),
    Text("heap-corrupted", "double free or corruption (!prev)", "seen: tests/data/crashes"),
    Text("heap-corrupted", "corrupted size vs. prev_size", "glibc malloc/malloc.c"),
    Text("illegal-instruction", "run.sh: line 1: 22430 Illegal instruction     ./ill", "seen: tests/data/crashes"),
    Text("arithmetic-signal", "run.sh: line 1: 22433 Floating point exception./fpe", "seen: tests/data/crashes"),
    Text(
        "wrong-architecture",
        "run.sh: line 1: ./arm: cannot execute binary file: Exec format error",
        "seen: tests/data/crashes",
    ),
    Text("read-only", "OSError: [Errno 30] Read-only file system: 'ro/checkpoints'", "seen: tests/data/crashes"),
    Text(
        "json-file",
        """Traceback (most recent call last):
  File "/w/train.py", line 7, in main
    config = json.load(file)
  File "/usr/lib/python3.11/json/__init__.py", line 293, in load
    return loads(fp.read(),
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)""",
        "CPython",
    ),
    Text(
        "nccl-no-interface",
        """[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 9, in main
[rank0]:     dist.barrier()
[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2588, internal error, NCCL version 2.21.5
[rank0]: ncclInternalError: Internal check failed.
[rank0]: Last error:
[rank0]: Bootstrap : no socket interface found""",
        "torch csrc/distributed/c10d/NCCLUtils.cpp getNcclErrorDetailStr",
    ),
    Text(
        "thread-limit",
        """terminate called after throwing an instance of 'std::system_error'
  what():  Resource temporarily unavailable
Aborted (core dumped)""",
        "libstdc++",
    ),
    Text(
        "illegal-memory-access",
        """terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 Rank 1] watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.""",
        "torch csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    Text(
        "native-crash",
        "terminate called without an active exception",
        "libstdc++",
    ),
    Text(
        "data-unreadable",
        """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/datasets/builder.py", line 1858, in _prepare_split_single
    for _, table in generator:
pyarrow.lib.ArrowInvalid: JSON parse error: Column(/a) changed from string to number in row 1

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/w/train.py", line 3, in <module>
    load_dataset("json", data_files="x.jsonl")
datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset""",
        "datasets builder.py",
    ),
    Text(
        "wandb-login",
        """Traceback (most recent call last):
  File "/w/train.py", line 16, in <module>
    mp.spawn(work, nprocs=2)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/w/train.py", line 10, in work
    wandb.init(project="x")
wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])""",
        "torch multiprocessing/spawn.py",
    ),
    Text(
        "batch-arithmetic",
        """╭──────────────── Traceback (most recent call last) ─────────────────╮
│ /w/chat/train.py:353 in <module>                                   │
│                                                                    │
│   350     main()                                                   │
╰────────────────────────────────────────────────────────────────────╯
AssertionError: Check batch related parameters. train_batch_size is not
equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 *
8 * 1""",
        "rich traceback.py, DeepSpeed runtime/config.py",
    ),
    Text(
        "shm-semaphores",
        """Traceback (most recent call last):
  File "/w/train.py", line 5, in <module>
    queue = multiprocessing.Queue()
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__
    sl = self._semlock = _multiprocessing.SemLock(
OSError: [Errno 28] No space left on device""",
        "CPython multiprocessing/synchronize.py",
    ),
    Text(
        "compiler-missing",
        """Traceback (most recent call last):
  File "/w/train.py", line 8, in <module>
    model(x)
torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:
RuntimeError: Failed to find C compiler. Please specify via CC environment variable.

Set TORCH_LOGS="+dynamo" and TORCHDYNAMO_VERBOSE=1 for more information""",
        "torch _dynamo/exc.py",
    ),
    Text(
        "model-type-key",
        """Traceback (most recent call last):
  File "/w/train.py", line 4, in <module>
    AutoConfig.from_pretrained("m")
  File "/opt/venv/lib/python3.11/site-packages/transformers/models/auto/configuration_auto.py", line 833, in __getitem__
    raise KeyError(key)
KeyError: 'nova9'""",
        "transformers models/auto/configuration_auto.py",
    ),
    Text(
        "weights-only",
        """Traceback (most recent call last):
  File "/w/train.py", line 4, in <module>
    torch.load("c.pt")
_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options.
\t(1) In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` from `False` to `True`.
\tWeightsUnpickler error: Unsupported global: GLOBAL numpy._core.multiarray._reconstruct was not allowed.""",
        "torch serialization.py",
    ),
    Text(
        "rendezvous-unreachable",
        """ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{
  "message": {
    "message": "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
    "extraInfo": {
      "py_callstack": "Traceback (most recent call last):\\n  File \\"x.py\\", line 1, in f\\n    g()\\nRuntimeError: late"
""",
        "torch elastic/multiprocessing/errors/error_handler.py",
    ),
    Text(
        "exception",
        """  + Exception Group Traceback (most recent call last):
  |   File "/w/train.py", line 3, in <module>
  |     raise ExceptionGroup("several", [ValueError("odd")])
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: odd
    +------------------------------------""",
        "CPython",
    ),
]

MESSAGES += [Text(*item) for item in (*framework_texts.TEXTS, *launcher_texts.TEXTS, *trainer_texts.TEXTS)]
