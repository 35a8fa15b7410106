"""A GPU has no memory, is missing, broken, too old or used twice, or NCCL finds no network."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity

RULES = (
    Rule(
        id="cuda-oom",
        title="a GPU has run out of memory",
        cause="parameters, gradients, optimiser state and activations do not fit, or another process holds memory of the card",
        remedy=(
            "lower the micro-batch size or the sequence length, enable activation checkpointing, shard more (`strategy: "
            "fsdp`), or use larger GPUs; `nvidia-smi` shows other processes; if much memory is reserved but unused, set "
            "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`"
        ),
        pattern=r"(?:CUDA|HIP) (?:error: )?out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|Triton Error \[CUDA\]: out of memory|hipErrorOutOfMemory",
    ),
    Rule(
        id="invalid-device-ordinal",
        title="a process uses a GPU that its machine does not have",
        cause=(
            "there are more processes than GPUs, or the program uses the *global* rank as the device index, which fails from "
            "the second node on"
        ),
        remedy="use `LOCAL_RANK` as the device index, and set `processes_per_node` to the number of GPUs per node",
        pattern=r"nvalid device ordinal|You requested gpu: \[[^\]]*\]",
    ),
    Rule(
        id="accelerator-oom",
        title="a computation does not fit into the memory of an accelerator",
        cause="XLA, TensorFlow or another framework cannot allocate a buffer on the device: {what}",
        remedy=(
            "lower the batch size, rematerialise activations (`jax.checkpoint()`), or use more or larger devices; JAX reserves "
            "75 % of a GPU: `XLA_PYTHON_CLIENT_MEM_FRACTION=0.9` raises it, unless other processes share the card"
        ),
        pattern=r"(?P<what>RESOURCE_EXHAUSTED: (?:Out of memory|OOM|XLA:TPU|Attempting to allocate)[^\n]*)"
        r"|(?P<what2>errors_impl\.ResourceExhaustedError[^\n]*)|(?P<what3>cudaMalloc (?:retry )?failed: out of memory)",
    ),
    Rule(
        id="gpu-lost",
        title="a GPU has failed",
        cause="the driver reports {what}: the card, its power or its slot is faulty, not the program",
        remedy=(
            "cordon the node (`kubectl cordon <node>`), reboot or replace it, and relaunch; the last checkpoint is valid; "
            "https://docs.nvidia.com/deploy/xid-errors/ explains the numbers"
        ),
        local_remedy="reboot the machine or replace the card, then run `kfjob relaunch {job}`; the last checkpoint is valid",
        pattern=r"(?P<what>fallen off the bus|Xid \([^)]*\): \d+|GPU is lost|uncorrectable ECC error\w*|NVLink error\w*)",
    ),
    Rule(
        id="libcuda-missing",
        title="libcuda.so cannot be loaded",
        cause=(
            "the library comes from the node's driver: the pod requests no GPU, the device plugin or the NVIDIA runtime is "
            "missing, or the loader searches elsewhere"
        ),
        remedy=(
            "request GPUs (`resources` or `instance`) and check the NVIDIA device plugin; on a bare node add the driver's "
            "folder to `LD_LIBRARY_PATH`"
        ),
        local_remedy="install the NVIDIA driver, or add its folder to `LD_LIBRARY_PATH`",
        pattern=r"libcuda\.so\S*(?::| ).*(?:cannot open shared object file|not found|No such file)"
        r"|(?:cannot|could not|Could not|unable to|Unable to) (?:find|load|open).*libcuda\.so",
    ),
    Rule(
        id="driver-too-old",
        title="the NVIDIA driver is too old for this torch",
        cause="torch's CUDA needs a newer driver than the machine has (found version {version})",
        remedy="update the driver (a newer node image), or use an image with torch for an older CUDA",
        local_remedy="update the driver, or install torch for an older CUDA",
        pattern=r"driver on your system is too old(?: \(found version (?P<version>\d+)\))?|driver version is insufficient"
        r"|nvidia-container-cli: requirement error: unsatisfied condition: cuda(?:>=|\S)(?P<version2>[\d.]+)?",
    ),
    Rule(
        id="no-gpu",
        title="the program found no GPU",
        cause="NCCL or CUDA needs a device: the pod requests none, or its machine has none",
        remedy="set `instance` or `resources.gpus`; on CPUs use the gloo backend",
        local_remedy="check the output of `nvidia-smi`; on CPUs use the gloo backend",
        futile_after=2,
        pattern=r"ProcessGroupNCCL is only supported with GPUs, no GPUs found|requires at least one CUDA device"
        r"|Found no NVIDIA driver|no CUDA-capable device is detected|No CUDA GPUs are available"
        r"|Torch not compiled with CUDA enabled"
        r"|(?:Error|Exception|Exit): .*(?:no cuda capable devices|CUDA (?:is )?not available|CUDA is required"
        r"|[Rr]equires (?:CUDA|an? (?:CUDA|GPU)|at least one GPU)\b"
        r"|[Nn]o (?:supported )?(?:GPU|gpu)s? (?:backend )?(?:available|found))",
    ),
    Rule(
        id="no-kernel-image",
        title="this torch was not built for this GPU",
        cause="the installed torch, or an extension, was not built with code for the card's compute capability",
        remedy="use builds of torch and its extensions whose `torch.cuda.get_arch_list()` has the card's capability",
        pattern=r"no kernel image is available for execution on the device|invalid device function|not compiled with (?:GPU"
        r"|CUDA) support"
        r"|is not compatible with the current PyTorch installation",
    ),
    Rule(
        id="collectives-differ",
        title="ranks called different collectives",
        cause=(
            "ranks take different paths through the program (a condition on rank or data, different numbers of batches or "
            "parameters), or their tensors or NCCL settings differ, so the messages of one do not fit those of another"
        ),
        remedy="call the same collectives with the same shapes and order on all ranks; `TORCH_DISTRIBUTED_DEBUG=DETAIL` checks",
        pattern=r"Detected mismatch between collectives on ranks|NCCL WARN [^\n]*(?:[Mm]essage truncated ?: receiv"
        r"|collective mismatch error|Mismatched collective detected)",
    ),
    Rule(
        id="duplicate-gpu",
        title="two processes use the same GPU",
        cause="ranks {one} and {two} use one device: its index is not `LOCAL_RANK`, or there are more processes than GPUs",
        remedy=(
            "call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before `init_process_group`, and set "
            "`processes_per_node` to the number of GPUs"
        ),
        pattern=r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<two>\d+)",
    ),
    Rule(
        id="nccl-no-interface",
        title="NCCL finds no network interface to use",
        cause="`NCCL_SOCKET_IFNAME` names an interface that the pod does not have, or excludes all of them",
        remedy="remove `NCCL_SOCKET_IFNAME`, or set it to an interface that `ip link` shows in the pod (usually `eth0`)",
        local_remedy="remove `NCCL_SOCKET_IFNAME`, or set it to an interface that `ip link` shows",
        pattern=r"no socket interface found|No usable listening interface found|NCCL WARN .*No interface found",
    ),
    Rule(
        id="gloo-no-interface",
        title="gloo finds no address for the interface `{name}`",
        cause="`GLOO_SOCKET_IFNAME` names an interface that does not exist here",
        remedy="remove `GLOO_SOCKET_IFNAME`, or set it to an interface that `ip link` shows",
        pattern=r"Unable to find address for: (?P<name>\S+)",
    ),
    Rule(
        id="efa-missing",
        title="NCCL does not use EFA, so the network is many times slower",
        cause=(
            "the plugin found no EFA device in the pod: `vpc.amazonaws.com/efa` is not requested, the device plugin is "
            "missing, the security group blocks it, or the instance type has none"
        ),
        remedy=("set `instance` (kfjob then requests its EFA devices), and check the EFA device plugin and the security group"),
        pattern=r"No eligible providers were found|aws-ofi-nccl initialization failed"
        r"|fi_getinfo: provider efa output empty list|NET/OFI .*initialization failed",
        severity=Severity.WARNING,
        permanent=True,
    ),
    Rule(
        id="shm-too-small",
        title="shared memory (/dev/shm) is too small",
        cause="data loaders and NCCL share memory through /dev/shm, which has 64 MiB in a container unless a volume is mounted",
        remedy="set `shared_memory` (kfjob then mounts a memory-backed /dev/shm), or lower the number of loader workers",
        local_remedy="enlarge /dev/shm (`mount -o remount,size=16G /dev/shm`), or lower the number of loader workers",
        pattern=r"out of shared memory|unable to open shared memory object </torch_\S+ in read-write mode: No space"
        r"|insufficient shared memory|is killed by signal: Bus error"
        r"|unable to (?:write to|open|allocate shared memory\(shm\) for) file </torch_"
        r"|(?:while|Error|rror).*/dev/shm/|/dev/shm.*No space left on device|No space left on device.*/dev/shm",
    ),
    Rule(
        id="device-assert",
        title="a CUDA kernel got a value that is out of range",
        cause=(
            "usually an index beyond a table: a token id that is not below the model's vocabulary size, or a label that is not "
            "below the number of classes"
        ),
        remedy=("compare the tokenizer's vocabulary with the model's `vocab_size`; `CUDA_LAUNCH_BLOCKING=1` shows the line"),
        pattern=r"device-side assert triggered|Assertion `(?:srcIndex < srcSelectDimSize|t >= 0 && t < n_classes)",
    ),
    Rule(
        id="nccl-system-error",
        title="NCCL reports a system or network error: {what}",
        cause="a call to the operating system or the driver failed; with `NCCL_DEBUG=WARN` the previous line names it",
        remedy="set `NCCL_DEBUG=WARN` and relaunch; check the network interface, /dev/shm and the driver",
        pattern=r"(?P<what>unhandled (?:system|cuda) error|nccl(?:UnhandledCuda|System)Error)"
        r"(?:[\s\S]*?Last error:\s*\n(?P<what2>[^\n]+))?",
        role=Role.SUSPECT,
    ),
)
