"""Exit codes and signals, of containers and of the processes that an agent started (128 + n is signal n)."""

from kfjob.observe.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="bus-error",
        title="a process was ended by SIGBUS: shared memory ran out",
        cause="shared memory (/dev/shm) was full when a process wrote to memory it shares with others; a container has 64 "
        "MiB of it by default",
        remedy="set `shared_memory`, or lower the number of loader workers",
        markers=("exitcode: -7)", "ignal 7 "),
        pattern=r"failed \(exitcode: -7\)|ignal 7 \(SIGBUS\)",
    ),
    Rule(
        id="worker-killed",
        title="a training process was killed (SIGKILL)",
        cause="nobody catches that signal: mostly the kernel, because the container's memory limit was reached; also an "
        "administrator or a health check",
        remedy="compare the pod's memory with its limit (`kubectl top pod`, `kubectl describe pod`), raise `resources.memory`",
        markers=("exitcode: -9)", "ignal 9 "),
        pattern=r"failed \(exitcode: -9\)|ignal 9 \(SIGKILL\)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="worker-crashed",
        title="a training process crashed ({signal})",
        cause="native code went wrong: mostly libraries of the image that do not fit together, a driver fault, or broken "
        "memory",
        remedy="`PYTHONFAULTHANDLER=1` shows where; compare the versions in the image with those that torch was built for",
        markers=("exitcode: -11)", "exitcode: -4)", "exitcode: -8)", "Segmentation fault", "Illegal instruction"),
        pattern=r"failed \(exitcode: (?P<signal>-(?:11|4|8))\)|(?P<signal2>Segmentation fault|Illegal instruction)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="worker-aborted",
        title="a training process aborted itself (SIGABRT)",
        cause="a library gave up; NCCL's watchdog does so after a timeout, to avoid inconsistent data",
        remedy="the lines before it say why",
        markers=("exitcode: -6)",),
        pattern=r"failed \(exitcode: -6\)",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="worker-terminated",
        title="a training process was asked to end (SIGTERM)",
        cause="its agent ended it because another one failed, or the pod is being stopped",
        remedy="",
        markers=("exitcode: -15)", "closing signal SIGTERM", "SignalException", "death signal", "Got termination signal"),
        pattern=r"failed \(exitcode: -15\)|closing signal SIGTERM|SignalException: .*got signal: 15"
        r"|Received \S+ death signal|Got termination signal",
        severity=Severity.HARMLESS,
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="worker-failed",
        title="an agent reports that its worker failed",
        cause="a training process ended with exit code {code}",
        remedy="what the process printed before it ended is the cause",
        markers=("failed (exitcode: ",),
        pattern=r"failed \(exitcode: (?P<code>\d+)\)",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="child-failed",
        title="torchrun gave up",
        cause="a worker failed, and no restart was left",
        remedy="what the worker printed before it ended is the cause",
        markers=("ChildFailedError",),
        pattern=r"ChildFailedError",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="pod-killed",
        title="the container was killed (SIGKILL)",
        cause="nobody catches that signal: the kernel for lack of memory on the node, the kubelet after the grace time, or "
        "somebody",
        remedy="see what became of the pod and its node: `kubectl describe pod {pod}`, `kubectl get events`",
        subject=Subject.POD,
        markers=("exit=137",),
        pattern=r"exit=137",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-terminated",
        title="the container was stopped (SIGTERM)",
        cause="the pod was deleted, evicted, or its agent was told to end",
        remedy="",
        subject=Subject.POD,
        markers=("exit=143",),
        pattern=r"exit=143",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="pod-not-executable",
        title="the container's command cannot be run (exit code {code})",
        cause="126: it is not executable; 127: it is not in the image",
        remedy="check `command` and the image: `docker run --entrypoint which IMAGE torchrun`",
        subject=Subject.POD,
        markers=("exit=126", "exit=127"),
        pattern=r"exit=(?P<code>12[67])\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-crashed",
        title="the container crashed (exit code {code})",
        cause="native code went wrong: 139 is a segmentation fault, 134 an abort, 135 a bus error (shared memory), 132 an "
        "illegal "
        "instruction",
        remedy="`PYTHONFAULTHANDLER=1` shows where; for 135 set `shared_memory`",
        subject=Subject.POD,
        markers=("exit=13",),
        pattern=r"exit=(?P<code>13[24569])\b",
        role=Role.SUSPECT,
    ),
    Rule(
        id="pod-failed",
        title="the container ended with exit code {code}",
        cause="torchrun ends with 1 whatever its workers ended with, so the code says little; the log says more",
        remedy="`kfjob logs {job} --pod {pod}`",
        subject=Subject.POD,
        markers=("exit=",),
        pattern=r"exit=(?P<code>[1-9]\d*)\b",
        role=Role.SYMPTOM,
    ),
)
