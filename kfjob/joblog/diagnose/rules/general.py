"""Words that many libraries share."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity

_UNRESOLVED = (
    r"Name or service not known|(?:Temporary )?failure in name resolution|getaddrinfo failed|nodename nor servname provided"
    r"|No address associated with hostname"
)
"""What the C library says of a name without an address."""

RULES = (
    Rule(
        id="shm-semaphores",
        title="shared memory (/dev/shm) is too small for what processes share",
        cause="multiprocessing and joblib keep locks and data in /dev/shm, which is full: a container has 64 MiB by default",
        remedy="set `shared_memory` (kfjob then mounts a memory-backed /dev/shm), or lower the number of loader workers",
        local_remedy="enlarge /dev/shm (`mount -o remount,size=16G /dev/shm`), or lower the number of loader workers",
        pattern=r"\[Errno 28\] No space left on device$",
        stack=(
            "SemLock",
            "multiprocessing/heap.py",
            "multiprocessing/synchronize.py",
            "shared_memory.py",
            "pandarallel/",
            "joblib/_memmapping",
        ),
    ),
    Rule(
        id="name-unresolvable",
        title="a host name has no address: {host}",
        cause=(
            "the name cannot be resolved: it is misspelt, there is no DNS for it, its service does not exist, or the program "
            "downloads something and has no way to the internet"
        ),
        remedy=(
            "check the name, the cluster's DNS and network policies: `nslookup NAME` in the pod; without internet, put what "
            "the program downloads into the image or a volume"
        ),
        local_remedy=(
            "check the name: this machine must be able to resolve it (`getent hosts NAME`); without internet, download before "
            "what the program needs"
        ),
        pattern=(
            r"Failed to resolve '(?P<host>[^']+)'|[Cc]ould not resolve (?:host|proxy)(?:name)?:? (?P<host2>[^\s:]+)"
            r"|[Uu]nable to resolve host (?:address )?\W?(?P<host3>[\w.-]*\w)|Temporary failure resolving '(?P<host4>[^']+)'"
            r"|dial tcp: lookup (?P<host5>[^\s:]+).*no such host"
            rf"|\bhost='(?P<host6>[^']+)'.*(?:{_UNRESOLVED}|NameResolutionError)"
            rf"|\b(?:host name|host|connecting to|address of) [\"'`]?(?P<host7>[\w-]+(?:\.[\w-]+)*)\b.*?(?:{_UNRESOLVED})"
            rf"|(?P<host8>{_UNRESOLVED})|NameResolutionError"
        ),
        role=Role.SUSPECT,
    ),
    Rule(
        id="cuda-error",
        title="CUDA reports `{what}`",
        cause="kernels run asynchronously, so the error belongs to an earlier call than the traceback shows",
        remedy="`CUDA_LAUNCH_BLOCKING=1` shows the call; `nvidia-smi` and `dmesg` show whether the card is healthy",
        pattern=r"(?:CUDA|HIP) error: (?P<what>[^\n.(]*)|cudaGetDeviceCount\(\)[^\n]*(?P<what2>Error \d+: [^\n(]*)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="library-interface",
        title="two packages do not fit together: {what}",
        cause="the code was written for another version of the library that it calls",
        remedy="pin the versions that the program was tested with (`pip freeze` where it works)",
        pattern=r"TypeError: (?P<what>[^\n]*unexpected keyword argument '\w+')",
        role=Role.SUSPECT,
    ),
    Rule(
        id="module-attribute",
        title="the installed `{module}` has no `{missing}`, which another package or the program uses",
        cause=(
            "the code was written for another version of `{module}` (newer ones remove names, older ones lack them), or a file "
            "or folder of that name hides the package"
        ),
        remedy=(
            "pin `{module}` to a version that has it (`pip freeze` where the program works), or update the package whose file "
            "the traceback shows last"
        ),
        pattern=r"AttributeError: (?:partially initialized )?module '(?P<module>[^']*)' has no attribute '(?P<missing>[^']*)'",
        role=Role.SUSPECT,
    ),
    Rule(
        id="model-type-key",
        title="this version of transformers does not know the model",
        cause="the model type of its configuration is missing in the installed transformers: it is too old",
        remedy="`pip install -U transformers`, or pass `trust_remote_code=True` for a model with its own code",
        pattern=r"^KeyError: '[\w.-]+'",
        stack=("CONFIG_MAPPING", "configuration_auto"),
    ),
    Rule(
        id="connection-refused",
        title="a connection was refused",
        cause="nothing listens at the address: the service has not started or has ended, or the address is wrong",
        remedy="check the address in the message, and whether its service runs",
        pattern=r"ConnectionRefusedError|ConnectError: .*Connection refused|NewConnectionError.*Connection refused",
        role=Role.SUSPECT,
    ),
    Rule(
        id="nccl-error",
        title="NCCL reports an error: {what}",
        cause="the message of NCCL gives the reason; `NCCL_DEBUG=INFO` shows what it did before",
        remedy="set `NCCL_DEBUG=INFO` in `env` and relaunch; compare the rank that failed first with the others",
        pattern=r"(?:NCCL error in: [^\n,]*, (?P<what>[^\n,]*)|(?P<what2>nccl(?:Internal|Invalid)\w+)"
        r"|NCCL error: (?P<what3>[^\n(]*))(?:[\s\S]{0,400}?Last error:\s*\n(?P<what4>[^\n]+))?",
        unless=("remote process exited", "ncclRemoteError"),
        role=Role.SUSPECT,
    ),
    Rule(
        id="nccl-warning",
        title="NCCL warns: {what}",
        cause="NCCL found something in its environment that it could not use",
        remedy="`NCCL_DEBUG=INFO` shows what it did instead",
        pattern=r"NCCL WARN (?P<what>[^\n]*)",
        severity=Severity.WARNING,
    ),
)
