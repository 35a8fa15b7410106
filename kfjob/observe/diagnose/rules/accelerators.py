"""GPUs, their drivers, and the networks between them."""

from kfjob.observe.diagnose.rule import Role, Rule, Severity

RULES = (
    Rule(
        id="cuda-oom",
        title="a GPU has run out of memory",
        cause="parameters, gradients, optimiser state and activations do not fit; {size} more were asked for",
        remedy="lower the micro-batch or the sequence length, switch on activation checkpointing, shard more "
        "(`strategy: fsdp`), or use larger GPUs; with much memory reserved but unused: "
        "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`",
        markers=("CUDA out of memory", "HIP out of memory", "CUBLAS_STATUS_ALLOC_FAILED"),
        pattern=r"(?:CUDA|HIP) out of memory(?:\. Tried to allocate (?P<size>[\d.]+ \w+))?|CUBLAS_STATUS_ALLOC_FAILED",
        link="https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    ),
    Rule(
        id="invalid-device-ordinal",
        title="a process asked for a GPU that its machine does not have",
        cause="there are more processes than GPUs, or the program takes the *global* rank as the device index, which breaks "
        "from the second node on",
        remedy="use `LOCAL_RANK` as the device index, and `processes_per_node` = GPUs of the pod",
        markers=("nvalid device ordinal",),
        pattern=r"nvalid device ordinal",
    ),
    Rule(
        id="gpu-lost",
        title="a GPU has failed",
        cause="the driver reports {what}: the card, its power or its slot is at fault, not the program",
        remedy="cordon the node `kubectl cordon <node>`, reboot or replace it, and relaunch; the last checkpoint is good",
        markers=("fallen off the bus", "Xid", "GPU is lost", "ECC error", "device is unavailable", "hardware error"),
        pattern=r"(?P<what>fallen off the bus|Xid \([^)]*\): \d+|GPU is lost|uncorrectable ECC error\w*"
        r"|all CUDA-capable devices are busy or unavailable|NVLink error\w*)",
        link="https://docs.nvidia.com/deploy/xid-errors/",
    ),
    Rule(
        id="libcuda-missing",
        title="libcuda.so is not in the container",
        cause="the driver's library comes from the node: the pod asked for no GPU, the device plugin or the NVIDIA runtime "
        "is "
        "missing, or the loader looks elsewhere",
        remedy="ask for GPUs (`resources`/`instance`), check the NVIDIA device plugin; on a bare node add the driver's "
        "folder "
        "to `LD_LIBRARY_PATH`",
        markers=("libcuda.so",),
        pattern=r"libcuda\.so\S*(?::| ).*(?:cannot open shared object file|not found|No such file)"
        r"|(?:cannot|could not|Could not|unable to|Unable to) (?:find|load|open).*libcuda\.so",
    ),
    Rule(
        id="driver-too-old",
        title="the node's NVIDIA driver is too old for this torch",
        cause="the image's CUDA needs a newer driver than the node has (found version {version})",
        remedy="update the driver (a newer node image), or use an image with torch for an older CUDA",
        markers=("driver on your system is too old", "driver version is insufficient"),
        pattern=r"driver on your system is too old(?: \(found version (?P<version>\d+)\))?|driver version is insufficient",
    ),
    Rule(
        id="no-gpu",
        title="the pod has no GPU",
        cause="NCCL or CUDA was asked for, and no device is there: the pod requests none, or it runs on a node without",
        remedy="set `instance` or `resources.gpus`; on CPUs use the gloo backend",
        markers=(
            "no GPUs found",
            "requires at least one CUDA device",
            "no NVIDIA driver",
            "no CUDA-capable device",
            "No CUDA GPUs are available",
            "not compiled with CUDA",
        ),
        pattern=r"ProcessGroupNCCL is only supported with GPUs, no GPUs found|requires at least one CUDA device"
        r"|Found no NVIDIA driver|no CUDA-capable device is detected|No CUDA GPUs are available"
        r"|Torch not compiled with CUDA enabled",
    ),
    Rule(
        id="no-kernel-image",
        title="this torch was not built for this GPU",
        cause="the image's torch has no code for the card's compute capability",
        remedy="use a torch build whose `torch.cuda.get_arch_list()` has the card's capability",
        markers=("no kernel image", "is not compatible with the current PyTorch installation"),
        pattern=r"no kernel image is available for execution on the device"
        r"|is not compatible with the current PyTorch installation",
    ),
    Rule(
        id="collectives-differ",
        title="ranks called different collectives",
        cause="ranks took different paths through the program (a condition on rank or data, a different number of batches or "
        "of parameters), so that they wait for different things",
        remedy="make every rank call the same collectives in the same order; `TORCH_DISTRIBUTED_DEBUG=DETAIL` names the call",
        markers=("mismatch between collectives",),
        pattern=r"Detected mismatch between collectives on ranks",
    ),
    Rule(
        id="duplicate-gpu",
        title="two processes use the same GPU",
        cause="NCCL found rank {one} and rank {two} on one device: the device index is not `LOCAL_RANK`, or there are more "
        "processes than GPUs",
        remedy="`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before the process group, and `processes_per_node` = "
        "GPUs",
        markers=("Duplicate GPU detected",),
        pattern=r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<two>\d+)",
    ),
    Rule(
        id="nccl-no-interface",
        title="NCCL finds no network interface to use",
        cause="`NCCL_SOCKET_IFNAME` names an interface that the pod does not have, or leaves none",
        remedy="remove `NCCL_SOCKET_IFNAME`, or set it to what `ip link` shows in the pod (usually `eth0`, or `^lo,docker`)",
        markers=("no socket interface found", "No usable listening interface", "No interface found"),
        pattern=r"no socket interface found|No usable listening interface found|NCCL WARN .*No interface found",
    ),
    Rule(
        id="gloo-no-interface",
        title="gloo finds no address for the interface `{name}`",
        cause="`GLOO_SOCKET_IFNAME` names an interface that the pod does not have",
        remedy="remove `GLOO_SOCKET_IFNAME`, or set it to what `ip link` shows in the pod",
        markers=("Unable to find address for",),
        pattern=r"Unable to find address for: (?P<name>\S+)",
    ),
    Rule(
        id="efa-missing",
        title="NCCL does not use EFA: the network is many times slower than it could be",
        cause="the plugin found no EFA device in the pod: `vpc.amazonaws.com/efa` is not requested, the device plugin is "
        "missing, the security group forbids it, or the instance has none",
        remedy="set `instance` (which requests its EFA devices), and check the EFA device plugin and the security group",
        markers=(
            "No eligible providers",
            "aws-ofi-nccl initialization failed",
            "provider efa output empty list",
            "Failed to initialize OFI",
        ),
        pattern=r"No eligible providers were found|aws-ofi-nccl initialization failed"
        r"|fi_getinfo: provider efa output empty list|NET/OFI .*initialization failed",
        severity=Severity.WARNING,
        permanent=True,
        link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",
    ),
    Rule(
        id="shm-too-small",
        title="shared memory (/dev/shm) is too small",
        cause="data loaders and NCCL share memory through /dev/shm, of which a container has 64 MiB unless a volume is mounted",
        remedy="set `shared_memory` (kfjob mounts a memory-backed /dev/shm), or lower the number of loader workers",
        markers=("shared memory", "file </torch_", "dev/shm"),
        pattern=r"out of shared memory|insufficient shared memory"
        r"|unable to (?:write to|open|allocate shared memory\(shm\) for) file </torch_"
        r"|(?:while|Error|rror).*/dev/shm/|/dev/shm.*No space left on device|No space left on device.*/dev/shm",
    ),
    Rule(
        id="device-assert",
        title="a CUDA kernel met a value that is out of range",
        cause="mostly an index beyond a table: a token id that is not below the model's vocabulary, a label not below the "
        "number of classes",
        remedy="compare the tokenizer's vocabulary with the model's `vocab_size`; `CUDA_LAUNCH_BLOCKING=1` shows the line",
        markers=("device-side assert", "srcSelectDimSize", "Assertion `t >= 0"),
        pattern=r"device-side assert triggered|Assertion `(?:srcIndex < srcSelectDimSize|t >= 0 && t < n_classes)",
    ),
    Rule(
        id="nccl-system-error",
        title="NCCL met a system or network error",
        cause="a call of the operating system or of the driver failed beneath NCCL; with `NCCL_DEBUG=WARN` the line before "
        "says "
        "which",
        remedy="set `NCCL_DEBUG=WARN` and relaunch; look for a network interface, /dev/shm or driver fault",
        markers=("unhandled system error", "unhandled cuda error", "ncclUnhandledCudaError", "ncclSystemError"),
        pattern=r"unhandled (?:system|cuda) error|nccl(?:UnhandledCuda|System)Error",
        role=Role.SUSPECT,
    ),
)
