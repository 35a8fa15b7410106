"""Limits of the container or the machine: memory, threads, open files, folders for caches."""

from kfjob.joblog.diagnose.rule import Rule

RULES = (
    Rule(
        id="host-oom-kill",
        title="the kernel killed a process: the host memory ran out",
        cause="the memory limit of the container (or all memory of the machine) was used up: the OOM killer ended it",
        remedy=(
            "raise `resources.memory`, use fewer loader workers, or load the model on the meta device or on rank 0 only "
            "instead of in every process"
        ),
        local_remedy="use fewer processes or loader workers, or load the model on the meta device or on rank 0 only",
        pattern=r"oom[-_]kill|Out of memory: Kill(?:ed)? process|out-of-memory handler|cgroup out of memory|OOM Killed",
    ),
    Rule(
        id="thread-limit",
        title="the limit of processes and threads is reached",
        cause="no thread can start: the pids limit of the pod, or the limit of the user (`ulimit -u`), is used up",
        remedy=(
            "start fewer threads (`OMP_NUM_THREADS` and `OPENBLAS_NUM_THREADS` in `env`) and fewer loader workers, or raise "
            "podPidsLimit of the kubelet"
        ),
        local_remedy="start fewer threads (`OMP_NUM_THREADS`, `OPENBLAS_NUM_THREADS`) and loader workers, or raise `ulimit -u`",
        pattern=r"pthread_create|can't start new thread|RLIMIT_NPROC|fork: (?:retry: )?Resource temporarily unavailable"
        r"|BlockingIOError: \[Errno 11\] Resource|Thread creation failed"
        r"|std::system_error.\n\s*what\(\):\s+Resource temporarily unavailable",
    ),
    Rule(
        id="open-files",
        title="the limit of open files is reached",
        cause="too many files are open (`ulimit -n`): loaders pass each tensor as a descriptor, and each shard is a file",
        remedy=(
            "raise `ulimit -n` (a larger LimitNOFILE for containerd), use fewer loader workers, or call "
            '`torch.multiprocessing.set_sharing_strategy("file_system")`'
        ),
        pattern=r"Too many open files|received \d+ items of ancdata|unable to open shared memory object </torch_",
        unless=("No space left",),
    ),
    Rule(
        id="cache-unwritable",
        title="a cache folder cannot be written: `{path}`",
        cause="the library keeps its cache in the home folder, and the container's user has none or may not write there",
        remedy="set `HF_HOME`, `TRITON_CACHE_DIR` or `HOME` in `env` to a folder on a volume that can be written",
        pattern=r"(?:Permission denied|Read-only file system): '(?P<path>[^']*(?:/\.(?:cache|triton|config|local|nv|keras"
        r"|matplotlib|torch|hf|"
        r"huggingface)\b|[Cc]ache|torch_extensions|torchinductor)[^']*)'"
        r"|trying to write in your cache folder \((?P<path2>[^)]*)\)",
        probed=True,
    ),
    Rule(
        id="user-unknown",
        title="the container's user has no entry in /etc/passwd",
        cause="a library asks for the name of the user id, and /etc/passwd has no entry for it",
        remedy="set `USER`, `LOGNAME` and `HOME` in `env`, or add the user to the image",
        local_remedy="set `USER`, `LOGNAME` and `HOME` in `env`",
        pattern=r"getpwuid\(\): uid not found",
    ),
)
