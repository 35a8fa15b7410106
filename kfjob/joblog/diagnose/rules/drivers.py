"""The driver, its libraries and the state of the card do not let CUDA work, or a kernel failed."""

from kfjob.joblog.diagnose.rule import Rule

RULES = (
    Rule(
        id="gpu-busy",
        title="another process uses the GPU exclusively",
        cause="its compute mode allows one process, another process holds it, or MIG is being changed",
        remedy="`nvidia-smi` shows the process and the compute mode: end it, or start one process per GPU",
        pattern=r"devices?(?:\(s\))? (?:are|is|is/are) busy or unavailable",
    ),
    Rule(
        id="fabric-manager",
        title="the GPUs are not ready: the fabric manager does not run",
        cause="error 802: a machine with NVSwitch (HGX, DGX) needs nvidia-fabricmanager of the driver's version",
        remedy=(
            "start it on the node: `systemctl restart nvidia-fabricmanager`; install the version of the driver, and check "
            "`nvidia-smi -q` (Fabric)"
        ),
        pattern=r"Error 802|system not yet initialized|[Ff]abric [Mm]anager (?:is not|not) (?:running|installed)",
        in_warnings=True,
    ),
    Rule(
        id="driver-mismatch",
        title="the driver does not fit the CUDA of this program",
        cause=(
            "the image has a newer CUDA than the driver supports, and its forward compatibility libraries (cuda-compat) do not "
            "work with this GPU or this driver"
        ),
        remedy="update the nodes' driver, or use an image with an older CUDA, without cuda-compat in `LD_LIBRARY_PATH`",
        local_remedy="update the driver, or install torch for an older CUDA and remove cuda-compat from `LD_LIBRARY_PATH`",
        pattern=(
            r"Error 80[34]|forward compatibility was attempted|unsupported display driver"
            r"|PTX was compiled with an unsupported toolchain"
        ),
        in_warnings=True,
    ),
    Rule(
        id="nvml-mismatch",
        title="the driver was updated while the node ran",
        cause="the loaded kernel module and the NVIDIA libraries have different versions",
        remedy="reboot the node, or unload the old module; drain it first (`kubectl drain`)",
        local_remedy="reboot the machine, or unload the old kernel module",
        pattern=r"Driver/library version mismatch",
        in_warnings=True,
    ),
    Rule(
        id="gpu-access-lost",
        title="the container has lost its GPUs",
        cause=(
            "NVML no longer has access to the devices: `systemctl daemon-reload` on the node resets the device cgroup of "
            "containers that the NVIDIA runtime set up"
        ),
        remedy=(
            "restart the pod (`kfjob relaunch {job}`); on the nodes use the CDI mode of the NVIDIA container toolkit, or the "
            "systemd cgroup driver with device rules"
        ),
        local_remedy="restart the container, or the machine",
        pattern=r"[Ff]ailed to initialize NVML: (?:Unknown Error|Insufficient Permissions|GPU access blocked)"
        r"|couldn't communicate with the NVIDIA driver",
        in_warnings=True,
    ),
    Rule(
        id="cuda-in-fork",
        title="CUDA was used before the process was forked",
        cause="a child process cannot use the CUDA context of its parent; data loaders and pools fork by default",
        remedy='start processes with the method "spawn" (`multiprocessing_context="spawn"`), and keep CUDA out of the data set',
        pattern=r"re-initialize CUDA in forked subprocess",
    ),
    Rule(
        id="illegal-memory-access",
        title="a CUDA kernel used an invalid address",
        cause=(
            "a kernel read or wrote outside of its memory: a bug of a custom kernel, an extension or a library (flash-attn, "
            "Triton, xformers), or an index that nothing checks; the watchdog or a later call only reports it"
        ),
        remedy=(
            "`CUDA_LAUNCH_BLOCKING=1` names the kernel, and `compute-sanitizer` the access; update the library that it belongs "
            "to, or switch to another kernel (such as the sdpa attention)"
        ),
        pattern=r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|misaligned address|unspecified launch failure"
        r"|illegal instruction was encountered|invalid program counter|hardware stack error|Xid \([^)]*\): (?:13|31|43|45)\b",
    ),
    Rule(
        id="cuda-init",
        title="CUDA cannot be initialised",
        cause=(
            "the driver, the container runtime or the card is in a bad state ({what}): the kernel module is not loaded, the "
            "devices are missing in the container, or the card needs a reset"
        ),
        remedy=(
            "run `nvidia-smi` in the pod and on the node; check the device plugin and `CUDA_VISIBLE_DEVICES`; a reboot of the "
            "node resets the driver"
        ),
        local_remedy="run `nvidia-smi`, check `CUDA_VISIBLE_DEVICES`, and reload the driver (`modprobe nvidia_uvm`) or reboot",
        pattern=(
            r"(?P<what>CUDA unknown error|Error 999: unknown error|CUDA error: (?:initialization|unknown) error"
            r"|cudaErrorInitializationError)"
        ),
        in_warnings=True,
    ),
    Rule(
        id="cublas-failed",
        title="a library of CUDA (cuBLAS, cuDNN, cuSOLVER) failed",
        cause=(
            "usually an earlier kernel got an index out of range (a token id that is not below the vocabulary size of the "
            "embedding, a label outside of its table), or the card has no memory left for the library's workspace"
        ),
        remedy=(
            "run one step on the CPU or with `CUDA_LAUNCH_BLOCKING=1` to see the first error; compare the tokenizer with the "
            "model's `vocab_size`, and lower the batch size"
        ),
        pattern=r"CUBLAS_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE)|CUDNN_STATUS_\w+|cuDNN error"
        r"|unable to find an engine to execute this computation|Unable to find a valid cuDNN algorithm"
        r"|(?:CUSOLVER|CUSPARSE)_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|CUFFT_(?:ALLOC_FAILED|INTERNAL_ERROR|EXEC_FAILED|SETUP_FAILED)",
        unless=("CUBLAS_STATUS_ALLOC_FAILED",),
    ),
)
