"""Python modules, arguments, paths, permissions, disks, and exceptions without a rule of their own."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

_NAMESPACES = (
    "'azure.", "'google.", "'hydra_plugins.", "'mpl_toolkits.", "'nvidia.", "'opentelemetry.", "'ruamel.", "'sphinxcontrib.",
    "'zope.",
)  # fmt: skip
"""Names that several packages share: one of these packages may be missing."""

RULES = (
    Rule(
        id="submodule-missing",
        futile_after=1,
        title="package `{module}` is there, but has no module `{rest}`",
        cause=(
            "the code that imports it was written for another version of `{module}` (newer ones remove modules, older ones "
            "lack them), or another package or folder with this name is found first"
        ),
        remedy=(
            "install versions of `{module}` and of the importing package that fit together (upgrade the package whose file "
            "the traceback shows last, or pin `{module}`); `python -c 'import {module}; print({module}.__path__)'` shows "
            "which one is found"
        ),
        # the import of the parent comes first, and names the parent if it fails (importlib/_bootstrap.py)
        pattern=r"(?:ModuleNotFoundError|ImportError): No module named '(?P<module>\w+)\.(?P<rest>[\w.]+)'",
        unless=_NAMESPACES,
    ),
    Rule(
        id="module-not-found",
        futile_after=1,
        title="module `{name}` is not installed",
        cause="Python cannot import `{name}`",
        remedy=(
            "add it to the image (`pip install {package}` in the Dockerfile, then `kfjob push-image`); for your own code, set "
            "`PYTHONPATH` or the working directory"
        ),
        local_remedy="install it with `pip install {package}`; for your own code, set `PYTHONPATH` or the working directory",
        pattern=r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)"
        r"|: No module named (?P<name2>[\w.]+)$",
    ),
    Rule(
        id="name-missing",
        futile_after=1,
        title="the installed `{module}` has no `{missing}`, which another package or the program imports",
        cause=(
            "two packages do not fit together: the importing code was written for another version of `{module}`, or a file or "
            "folder of that name hides the package"
        ),
        remedy=(
            "install versions that fit together: upgrade the package whose file the traceback shows last, or pin `{module}` to "
            "a version that has the name (`pip freeze` where the program works)"
        ),
        pattern=r"cannot import name '(?P<missing>\w+)' from '(?P<module>\w+)",
        unless=("circular import",),
    ),
    Rule(
        id="import-error",
        futile_after=1,
        title="a library cannot be loaded",
        cause="two packages do not fit together, or a shared library is missing: {what}",
        remedy="pin versions that fit together; `python -c 'import torch, transformers'` in the image shows the error",
        local_remedy="install versions that fit together; `python -c 'import torch, transformers'` shows the error",
        pattern=r"(?P<what>cannot import name .*)|ImportError: (?P<what2>.*undefined symbol.*)",
    ),
    Rule(
        id="python-syntax",
        futile_after=1,
        title="the program is not valid Python",
        cause="the Python interpreter cannot parse it: {what}",
        remedy="run `python -m py_compile` with the Python of the image; syntax newer than its version is an error too",
        local_remedy="run `python -m py_compile` with the same Python; syntax newer than its version is an error too",
        pattern=r"(?:Syntax|Indentation|Tab)Error: (?P<what>.*)",
    ),
    Rule(
        id="no-terminal",
        futile_after=1,
        title="the program needs a terminal",
        cause="it asks for the size or the mode of its terminal, and a job has none",
        remedy="give the width a default: `shutil.get_terminal_size()` has one and needs no terminal",
        pattern=r"Error: \[Errno 25\] Inappropriate ioctl for device|termios\.error: .*Inappropriate ioctl for device",
    ),
    Rule(
        id="local-rank-argument",
        futile_after=1,
        title="the program does not know the argument `{name}` of its launcher",
        cause=(
            "torch.distributed.launch passes the local rank as an argument, since torch 2.0 spelt --local-rank with a hyphen, "
            "and the program accepts another spelling or none"
        ),
        remedy=(
            "start it with `torchrun` and read `LOCAL_RANK` from the environment, or accept both spellings: "
            '`add_argument("--local-rank", "--local_rank", type=int)`'
        ),
        pattern=r"(?:unrecognized arguments|not used by the HfArgumentParser):.*(?P<name>--local[-_]rank)",
    ),
    Rule(
        id="argument-error",
        futile_after=1,
        title="the program does not accept its arguments",
        cause="{what}",
        remedy="compare `command` or `train` with the program's `--help`",
        pattern=r"[Ee]rror: (?P<what>unrecognized arguments:.*|the following arguments are required:.*"
        r"|argument (?:-\S+|\w+)(?:, -\S+)*: .*"
        r"|Some specified arguments are not used by .*|No such option.*|ambiguous option.*|Missing option.*)",
    ),
    Rule(
        id="script-not-found",
        futile_after=1,
        title="the program `{path}` does not exist",
        cause="Python cannot open the file: the path is wrong, or the image does not contain it",
        remedy="`kfjob run --code DIR` and `kfjob submit --code DIR` add the files of a folder to the image; or use an "
        "absolute path, or set the working directory",
        local_remedy="use an absolute path, or set the working directory",
        pattern=r"can't open file '?(?P<path>[^':]+)'?: \[Errno 2\]",
    ),
    Rule(
        id="command-not-found",
        futile_after=1,
        title="the command `{name}` does not exist",
        cause="the PATH contains no such executable",
        remedy="check `command` and the image: `docker run IMAGE which {name}`",
        local_remedy="check `command`; install `{name}`, or add its folder to PATH",
        pattern=r"(?:^|: )(?:line )?(?:\d+: )?(?P<name>[\w./-]+): (?:command )?not found$"
        r"|No such file or directory: '(?P<name2>torchrun|accelerate|deepspeed)'"
        r"|exec: \"(?P<name3>[^\"]+)\": executable file not found",
    ),
    Rule(
        id="host-memory",
        title="the machine has no memory left",
        cause="an allocation failed in main memory, not on the GPU",
        remedy="raise `resources.memory`, use fewer loader workers, or load the model on the meta device or rank 0 only",
        local_remedy="use fewer processes or loader workers, or load the model on the meta device or on rank 0 only",
        pattern=(
            r"(?:^|\b)MemoryError\b|NumpyMemoryError|Unable to allocate [\d.]+ [GTM]iB for an array|can't allocate memory"
            r"|\[Errno 12\] Cannot allocate memory|unable to mmap \d+ bytes|std::bad_alloc"
        ),
    ),
    Rule(
        id="spawn-state",
        title="a child process cannot be started with the method spawn",
        cause="it imports the program again and gets its objects pickled: no lambdas, inner functions or open files",
        remedy="define these at the top of a module, start the program under `if __name__ == '__main__':`, or use no workers",
        pattern=r"Can't (?:get|pickle) local object|Can't pickle <function|attempt has been made to start a new process before",
        stack=("multiprocessing/",),
        role=Role.SUSPECT,
    ),
    Rule(
        id="loader-worker-crashed",
        title="a data loader process crashed ({signal})",
        cause="native code of the data pipeline failed (image or audio decoders, HDF5, tokenizers after a fork)",
        remedy='load one sample with no loader workers: `PYTHONFAULTHANDLER=1` shows the call; start the workers with "spawn"',
        pattern=r"is killed by signal: (?P<signal>Segmentation fault|Aborted|Illegal instruction|Floating point)"
        r"|Unexpected (?P<signal2>segmentation "
        r"fault) encountered in worker",
    ),
    Rule(
        id="loader-worker-killed",
        title="a data loader process was killed",
        cause="usually the memory limit: every loader process holds its own copy of the data that it reads",
        remedy="raise `resources.memory`, or lower the number of loader workers",
        local_remedy="lower the number of loader workers, or free memory on this machine",
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) (?:is killed by signal|exited unexpectedly"
        r"|exited with exit code)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="disk-full",
        title="a disk is full",
        cause="there is no space left where the program writes",
        remedy=(
            "the message or `df -h` in the pod shows the full folder: delete files there, or use a larger volume; outside of "
            "volumes, raise the `ephemeral-storage`"
        ),
        local_remedy="the message or `df -h` shows the full folder: delete files there, or write to another disk",
        pattern=r"No space left on device",
    ),
    Rule(
        id="disk-quota",
        title="a disk quota is used up",
        cause="the volume has space, but this user or project may not use more of it",
        remedy=(
            "delete old checkpoints and caches, or ask for a larger quota (`quota -s`, `lfs quota`); write checkpoints to "
            "another of the `volumes` until then"
        ),
        local_remedy="delete old checkpoints and caches, or ask for a larger quota (`quota -s`)",
        pattern=r"[Dd]isk quota exceeded",
    ),
    Rule(
        id="permission-denied",
        title="the program has no permission for `{path}`",
        cause="the user of the process may not access the path",
        remedy=(
            "set the volume's group (`fsGroup` in `pod.security_context`), or the user of the container; a `host_path` has no "
            "group: change the owner of its folder on the nodes"
        ),
        local_remedy="change the owner or the mode of the path, or use another one",
        pattern=r"\[Errno 13\] Permission denied: '(?P<path>[^']*)'",
    ),
    Rule(
        id="read-only",
        title="the file system of `{path}` is read-only",
        cause="the program writes into the image, whose root file system is read-only here, or to a volume that is mounted so",
        remedy=(
            "write to a volume of `volumes` that can be written (an emptyDir for caches), or change `read_only` of the volume "
            "or readOnlyRootFilesystem in `pod.security_context`"
        ),
        local_remedy="write to another folder, or mount the file system with write access",
        pattern=r"\[Errno 30\] Read-only file system: '(?P<path>[^']*)'|(?P<path2>[^\s:']+): Read-only file system",
    ),
    Rule(
        id="precision-unsupported",
        title="the GPU cannot compute in bfloat16",
        cause="GPUs older than Ampere (T4, V100) have no bf16",
        remedy="set `train.precision: fp16` (with loss scaling), or use a newer GPU",
        pattern=r"[Bb][Ff](?:loat)?16.*(?:not supported|requires|setup not supporting|only supported)",
    ),
    Rule(
        id="ddp-unused-parameters",
        title="some parameters got no gradient in DDP",
        cause="the loss does not depend on them, so their reduction never starts",
        remedy="set `find_unused_parameters=True`, or remove them from the model; `TORCH_DISTRIBUTED_DEBUG=DETAIL` names them",
        pattern=(
            r"Expected to have finished reduction in the prior iteration"
            r"|parameters that were not used in producing the loss"
        ),
    ),
    Rule(
        id="fp16-unscale",
        title="the optimiser has fp16 parameters",
        cause="loss scaling needs fp32 parameters and casts them for the computation, but these are fp16",
        remedy="load the model in fp32 and use mixed precision fp16, or train in bf16",
        pattern=r"Attempting to unscale FP16 gradients",
    ),
    Rule(
        id="thread-died",
        title="a thread ended with {what}",
        cause="the program continues without the thread",
        remedy="see the traceback: nothing does the thread's work any longer",
        subject=Subject.EXCEPTION,
        severity=Severity.WARNING,
        permanent=True,
    ),
    Rule(
        id="native-crash",
        title="the program ended with {what}",
        recovered_title="a process ended with {what}",
        cause="C++ code ended the process: a library gave up, or a thread was still running when the program ended",
        remedy=(
            "`PYTHONFAULTHANDLER=1` shows the Python stack; let every rank call `destroy_process_group()` and wait for its own "
            "threads before it ends"
        ),
        subject=Subject.EXCEPTION,
        role=Role.SUSPECT,
    ),
    Rule(
        id="exception",
        title="the program ended with {what}",
        recovered_title="exception {what}",
        cause="{origin}",
        remedy="{advice}`kfjob logs {job} --pod {pod}` shows the whole traceback",
        subject=Subject.EXCEPTION,
        role=Role.SUSPECT,
    ),
    Rule(
        id="traceback-cut",
        title="the log ends within a traceback, after the line {what}",
        cause="the line with the exception is missing; the innermost frame of the program is {place}",
        remedy=(
            "get the rest of the log: `kfjob logs {job} --tail 50`, or the whole file for saved logs; a process that is killed "
            "while it prints loses its last lines"
        ),
        subject=Subject.EXCEPTION,
        role=Role.SYMPTOM,
    ),
)
