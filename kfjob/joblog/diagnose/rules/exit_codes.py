"""How a process or container ended, where nothing says why."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="bus-error",
        title="a process was killed by SIGBUS: shared memory ran out, or a mapped file became shorter",
        cause=(
            "shared memory (/dev/shm) was full when a process wrote to it (a container has 64 MiB of it by default), or a file "
            "that the process had mapped was truncated or its volume failed"
        ),
        remedy="set `shared_memory`, or lower the number of loader workers; do not rewrite files that are in use",
        local_remedy="enlarge /dev/shm (`mount -o remount,size=16G /dev/shm`); do not rewrite files that are in use",
        pattern=r"failed \(exitcode: -7\)|ignal 7 \(SIGBUS\)|with return code = -7|(?:signal|Signals\.)\s?SIGBUS|\bBus error\b",
    ),
    Rule(
        id="worker-killed",
        title="a training process was killed (SIGKILL)",
        cause="the kernel kills when memory runs out; a person (`kill -9`), a scheduler or a health check can too",
        remedy="compare the pod's memory with its limit (`kubectl top pod`), and raise `resources.memory`",
        local_remedy="if the kernel log (`dmesg`) shows that memory ran out, use fewer processes or loader workers",
        pattern=r"failed \(exitcode: (?:-9|137)\)|ignal 9 \(SIGKILL\)|with return code = -9|(?:signal|Signals\.)\s?SIGKILL"
        r"|(?:^|[\])%]|line \d+:\s+\d+ )Killed(?:\s*$|\s{2,})|exit(?:ed with)? (?:code|status) 137"
        r"|exited on signal 9\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="worker-crashed",
        title="a training process crashed (SIGSEGV)",
        cause="native code failed: usually libraries that do not fit together, a driver fault, or broken memory",
        remedy="`PYTHONFAULTHANDLER=1` shows where; compare the installed versions with those that torch was built for",
        pattern=r"failed \(exitcode: (?P<signal>-11|139)\)|(?P<signal2>Segmentation fault)"
        r"|with return code = (?P<signal3>-11)\b|(?:signal|Signals\.|\*\*\*|ignal \d{1,2} \()\s?(?P<signal4>SIGSEGV)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="worker-aborted",
        title="a training process aborted itself (SIGABRT)",
        cause="a library gave up; NCCL's watchdog aborts after a timeout, to prevent inconsistent data",
        remedy="the lines before it show the reason",
        pattern=r"failed \(exitcode: (?:-6|134)\)|with return code = -6|(?:signal|Signals\.|ignal 6 \()\s?SIGABRT"
        r"|line \d+:\s+\d+ Aborted\b|Signal: Aborted \(6\)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="worker-terminated",
        title="a training process was stopped (SIGTERM)",
        cause="its agent stopped it because another process failed, or the pod is being stopped",
        remedy="",
        pattern=r"failed \(exitcode: -15\)|closing signal SIGTERM|Got termination signal",
        severity=Severity.HARMLESS,
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="worker-signalled",
        title="a training process was ended by a signal ({signal})",
        cause="a person or another program sent it this signal: SIGINT is Ctrl-C, SIGUSR1 and SIGUSR2 come from schedulers",
        remedy="find out what sent the signal; a program that handles it can save a checkpoint first",
        pattern=r"failed \(exitcode: -(?P<number>1|2|3|10|12|13|14|24|25)\)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="worker-failed",
        title="an agent reports that its worker failed",
        cause="a training process ended with exit code {code}; without a line of its own, its output is missing",
        remedy=(
            "let torchrun pass on the workers' output (`--tee 3`, no `--redirects`), set `PYTHONUNBUFFERED=1` in `env`, and "
            "wrap the main function in `torch.distributed.elastic.multiprocessing.errors.record`: torchrun then prints its "
            "traceback"
        ),
        pattern=r"failed \(exitcode: (?P<code>\d+)\)",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="child-failed",
        title="torchrun gave up",
        cause="a worker failed, and no restart was left; without a line of the worker's own, its output is missing",
        remedy=(
            "let torchrun pass on the workers' output (`--tee 3`, no `--redirects`), and wrap the main function in "
            "`torch.distributed.elastic.multiprocessing.errors.record`: torchrun then prints its traceback"
        ),
        pattern=r"ChildFailedError",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="pod-killed",
        title="the container was killed (SIGKILL)",
        cause="the kernel or a program killed it, often after the grace period of a deletion, or a person did",
        local_title="the pod's process was killed (SIGKILL)",
        remedy="`kubectl describe pod {pod}` and `kubectl get events` show what happened to the pod and its node",
        local_remedy="find what sends SIGKILL: a person, a limit of a session, or a script that cleans up",
        subject=Subject.POD,
        pattern=r"exit=137",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-terminated",
        title="the container was stopped (SIGTERM)",
        cause="the pod was deleted or stopped",
        local_title="the pod's process was stopped (SIGTERM)",
        remedy="",
        subject=Subject.POD,
        pattern=r"exit=143",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="pod-not-executable",
        title="the container's command cannot be run (exit code {code})",
        cause="126: the file is not executable; 127: it does not exist",
        local_title="the command cannot be run (exit code {code})",
        remedy="check `command` and the image: `docker run --entrypoint which IMAGE torchrun`",
        local_remedy="check `command`: the executable must be on the PATH",
        subject=Subject.POD,
        pattern=r"exit=(?P<code>12[67])\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-crashed",
        title="the container crashed (exit code {code})",
        cause="native code failed: 139 is a segmentation fault, 134 an abort, 135 a bus error, 132 an illegal instruction",
        local_title="the pod's process crashed (exit code {code})",
        remedy="`PYTHONFAULTHANDLER=1` shows where; for 135 set `shared_memory`",
        local_remedy="`PYTHONFAULTHANDLER=1` shows where; for 135, /dev/shm of this machine is too small",
        subject=Subject.POD,
        pattern=r"exit=(?P<code>13[24569])\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-signalled",
        title="the container was ended by a signal ({signal})",
        cause="a person or another program sent it this signal: SIGINT is Ctrl-C, SIGUSR1 and SIGUSR2 come from schedulers",
        local_title="the pod's process was ended by a signal ({signal})",
        remedy="find out what sent the signal; a program that handles it can save a checkpoint first",
        subject=Subject.POD,
        pattern=r"exit=(?P<code>129|130|131|138|140|141|142|152|153)\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-failed",
        title="the container ended with exit code {code}",
        cause="the program ended with this exit code; only its log shows the reason (torchrun itself always ends with 1)",
        local_title="the program ended with exit code {code}",
        remedy="`kfjob logs {job} --pod {pod}` shows the log",
        subject=Subject.POD,
        pattern=r"exit=(?P<code>[1-9]\d*)\b",
        role=Role.SYMPTOM,
    ),
)
