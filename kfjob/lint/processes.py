"""Rules for the processes of a job: those of all nodes train together, and there are as many as the spec says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from kfjob.lint.job import Job
from kfjob.lint.rules import Severity, Violation, rule
from kfjob.plan.unconnected_programs import (
    UnconnectedProgram,
    find_cluster_launcher,
    find_start_without_agent,
    find_unconnected,
)
from kfjob.spec.job import JobSpec

_LONG_NUMBER = 10**9
"""A message shows no number of nodes from this on."""


@rule("unconnected-nodes", "error", local=True)
def unconnected_nodes(job: Job) -> Iterator[Violation]:
    """A training program on several nodes has a launcher that connects them.

    Without torchrun's agents nothing sets `RANK`, `WORLD_SIZE` and `MASTER_ADDR`, so every node trains a copy of its own.
    `accelerate launch` and `deepspeed` connect the nodes only with options for the other machines, which `launcher:` adds, and
    `torchrun --standalone` starts one node. A script connects itself if it sets `MASTER_ADDR` or joins a cluster of Ray or JAX,
    and so does a command with `$(HOSTNAME)`. It is a warning where neither the launcher, nor the text of the script, nor the
    name of one that is not on this machine says that it trains with others: `preprocess.py` may be meant to run in copies.
    kfjob reads the file of `bash run.sh` too, if this machine has it; what that starts is a warning.
    """
    if (unconnected := job.unconnected) and job.spec.words:
        message = f"`{unconnected.command}` runs {job.spec.nodes} copies that do not know each other"
        hint = f"{unconnected.suggest_fix(job.spec.words)}; `lint: {{ignore: [unconnected-nodes]}}` allows copies"
        severity: Severity = "error" if _trains(job, unconnected) else "warning"
        yield Violation(path=job.program_field, message=message, hint=hint, severity=severity)
    elif job.shell_script and (program := job.unconnected_in_script) and program.says_training:
        message = f"`{program.command}` in `{job.shell_script.path}` runs {job.spec.nodes} copies that do not know each other"
        fix = f"write `torchrun {program.program}` there"
        if program.option or program.launcher != "torchrun":
            fix = "start the program with `torchrun`, or give it the options for other machines"
        hint = f"{fix}; `lint: {{ignore: [unconnected-nodes]}}` allows copies"
        yield Violation(path=job.program_field, message=message, hint=hint, severity="warning")


def _trains(job: Job, unconnected: UnconnectedProgram) -> bool:
    """Return whether the program surely trains with other processes, instead of preparing data or trying parameters.

    Its own text decides where this machine has it. Else the launcher or the name does: `pretrain.py` in an image says what it
    does, and every copy would cost as much as the whole training.
    """
    is_read = job.script is not None and job.script.path == unconnected.program
    return bool(unconnected.starter) or (job.script.trains_together if job.script and is_read else unconnected.says_training)


@rule("cluster-launcher", "error", local=True)
def cluster_launcher(job: Job) -> Iterator[Violation]:
    """The command has no launcher that starts processes on other machines itself.

    kfjob starts the command once in each pod. `mpirun` and `srun` start their own processes there: pods run neither an ssh
    server nor Slurm, so every pod trains a copy of its own, or the launcher fails.
    """
    if job.spec.nodes == 1 or not job.spec.words:
        return
    launcher = find_cluster_launcher(job.spec.words)
    if launcher is None:
        return
    message = f"kfjob starts `{launcher.name}` once per node, and {job.spec.nodes} of them do not know each other"
    hint = f"write `torchrun {launcher.program}` instead, and set `processes_per_node`"
    yield Violation(path=job.program_field, message=message, hint=hint)


@rule("unused-processes", "warning", local=True)
def unused_processes(job: Job) -> Iterator[Violation]:
    """A command with several processes per node has a launcher that starts them.

    `processes_per_node` is a number for the launcher. Python alone starts one process, and other GPUs stay idle.
    `accelerate launch --cpu` starts one, too, and it may wait for the others.
    """
    processes = str(job.spec.processes_per_node or "")
    if not job.spec.words or job.unconnected or not processes.isdecimal() or int(processes) == 1:
        return
    if _launches_on_cpu(job.spec):
        message = f"`accelerate launch --cpu` starts one process on each node, and not {processes}"
        hint = "use `launcher: torchrun` with the program alone as `command`, and `env: {ACCELERATE_USE_CPU: 'true'}`"
        yield Violation(path="command", message=message, hint=hint)
        return
    program = find_unconnected(job.spec.words) if job.spec.launcher in (None, "python") else None
    if program is None or program.launcher != "torchrun" or program.option or (job.script and job.script.starts_processes):
        return
    message = f"`{program.command}` starts one process on each node, and not {processes}"
    yield Violation(path="processes_per_node", message=message, hint=f"write `torchrun {program.program}`")


def _launches_on_cpu(spec: JobSpec) -> bool:
    """Return whether accelerate starts the program without torchrun.

    Source: accelerate 1.15, commands/launch.py `launch_command`, where `--cpu` excludes every other launcher.
    """
    words = spec.words
    if words[:2] == ("accelerate", "launch"):
        words = words[2:]
    elif spec.launcher != "accelerate":
        return False
    options = {word.partition("=")[0] for word in takewhile(lambda word: not word.endswith(".py"), words)}
    return "--mpirun_hostfile" not in options and not {"--cpu", "--use_cpu"}.isdisjoint(options)


@rule("unused-restarts", "warning", local=True)
def unused_restarts(job: Job) -> Iterator[Violation]:
    """A job with `restarts.max` has a torchrun agent.

    `restarts.max` is the number of times that torchrun's agent restarts its processes. `accelerate launch`, `deepspeed` and
    Python read no such number: a failed process ends its pod, and `restarts.policy` says whether the pod starts again.
    """
    restarts = job.spec.restarts
    if "max" not in restarts.model_fields_set or not restarts.max or (job.script and job.script.starts_processes):
        return
    if not (start := find_start_without_agent(job.spec.launcher, job.spec.words)):
        return
    message = f"`restarts.max` has no effect: `{start}` has no torchrun agent that restarts its processes"
    hint = "remove it: `restarts.policy` starts a program that has failed again"
    if job.plan.restarts.policy == "Never":
        hint = "write `restarts: {policy: OnFailure}`, which starts a program that has failed again"
    yield Violation(path="restarts.max", message=message, hint=hint)


@rule("lightning-nodes", "error", local=True)
def lightning_nodes(job: Job) -> Iterator[Violation]:
    """Lightning's `Trainer` or `Fabric` gets the number of nodes.

    It trains on one node unless its `num_nodes` says more, or refuses the processes that torchrun started. kfjob reads the
    script, if it is on this machine, and reports only a call in which the value is missing or another number.
    """
    if job.script is None or any("num_nodes" in word for word in job.words):
        return
    low, high = max(job.spec.min_nodes, 2), job.spec.max_nodes
    calls = job.script.lightning_calls
    if high == 1 or not calls or any(call.nodes is None or low <= call.nodes <= high for call in calls):
        return
    number = calls[0].nodes or 0
    nodes = "one node" if number == 1 else f"{number} nodes" if abs(number) < _LONG_NUMBER else "another number of nodes"
    message = (
        f"`{calls[0].name}` in `{job.script.path}` (line {calls[0].line}) trains on {nodes}, and the job has {job.spec.nodes}"
    )
    hint = f'pass `num_nodes={job.spec.nodes}`, or `int(os.environ["GROUP_WORLD_SIZE"])`, which torchrun sets'
    yield Violation(path=job.program_field, message=message, hint=hint)
