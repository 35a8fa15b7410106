"""Lines that read like errors, and that every healthy job may print."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity

RULES = (
    Rule(
        id="omp-banner",
        title="torchrun set OMP_NUM_THREADS=1",
        cause="with several processes per node, torchrun gives each one thread unless the variable is set",
        remedy="set `env.OMP_NUM_THREADS` to cores / processes if data loading on the CPU is slow",
        pattern=r"Setting OMP_NUM_THREADS environment variable for each process",
        severity=Severity.HARMLESS,
    ),
    Rule(
        id="client-hostname",
        title="a peer's address has no host name",
        cause="the store looks up the client's name for its own messages; pods have no reverse DNS entry",
        remedy="",
        pattern=r"hostname of the client socket cannot be retrieved",
        severity=Severity.HARMLESS,
    ),
    Rule(
        id="shard-checkpoint-import",
        title="`torch.distributed._shard.checkpoint` was imported under its old name",
        cause="a library imports it under the old name, once per process",
        remedy="",
        pattern=r"torch[./]distributed[./]_shard[./]checkpoint",
        severity=Severity.HARMLESS,
    ),
    Rule(
        id="shutdown-of-a-closed-store",
        title="an agent found the store closed when it shut down",
        cause="the store's host exited first, after all work was done",
        remedy="",
        pattern=r"has failed to shutdown the rendezvous '.*' due to an error of type RendezvousConnectionError",
        severity=Severity.HARMLESS,
        role=Role.SYMPTOM,
    ),
    Rule(
        id="process-group-not-destroyed",
        title="the program ended without `destroy_process_group()`",
        cause="torch recommends the call, so that no collective is cut off at exit",
        remedy="call `torch.distributed.destroy_process_group()` at the end of the program",
        pattern=r"destroy_process_group\(\) was not called before program exit",
        severity=Severity.HARMLESS,
    ),
    Rule(
        id="no-error-file",
        title="an agent has no file for its worker's error",
        cause="only a parent that torchrun started provides such a file",
        remedy="",
        pattern=r"no error file defined for parent, to copy child error file",
        severity=Severity.HARMLESS,
        role=Role.SYMPTOM,
    ),
    Rule(
        id="keep-alive-missed",
        title="an agent could not send its keep-alive to the rendezvous",
        cause="the store was busy or gone; later messages show whether it answers again",
        remedy="",
        pattern=r"has failed to send a keep-alive heartbeat to the rendezvous",
        severity=Severity.HARMLESS,
        role=Role.SYMPTOM,
    ),
    Rule(
        id="ipv6-unavailable",
        title="a socket was tried over IPv6, which this machine does not have",
        cause="torch tries IPv6 first and then IPv4",
        remedy="",
        pattern=r"\(errno: 97 ",
        severity=Severity.HARMLESS,
    ),
)
