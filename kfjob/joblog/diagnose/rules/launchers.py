"""Torchrun, accelerate, DeepSpeed or Slurm could not start the processes, or were stopped."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="agent-stopped",
        title="torchrun was stopped from outside (signal {signal})",
        cause="the pod or the process got a signal to end: nothing in this log failed before it",
        remedy=(
            "find what stopped it: `kubectl describe pod {pod}` and `kubectl get events` show an eviction, a preemption, a "
            "node drain, a deadline or a deleted job; save a checkpoint when SIGTERM arrives"
        ),
        local_remedy="find what stopped it: `kfjob stop`, a limit of the job, Ctrl-C, or a shutdown of the machine",
        pattern=r"SignalException: .*got signal: (?P<signal>\d+)|Received (?:Signals\.)?(?P<signal2>\w+) death signal",
        role=Role.CONSEQUENCE,
        in_warnings=True,
    ),
    Rule(
        id="hangup",
        title="the launcher was stopped because its terminal closed (SIGHUP)",
        cause="the program was started from a session that ended",
        remedy="start it as a job, or with `nohup`, tmux or setsid",
        pattern=r"got signal: 1\b|Received (?:Signals\.)?SIGHUP|death signal SIGHUP",
    ),
    Rule(
        id="queue-cancelled",
        title="the cluster's scheduler cancelled the job",
        cause="Slurm reports `{what}`; without a reason, somebody cancelled the job",
        remedy="ask for more time, or resume from the last checkpoint",
        pattern=r"(?P<what>CANCELLED AT \d[^\s*]*(?: DUE TO [A-Z ]*[A-Z])?)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="deepspeed-pdsh",
        title="DeepSpeed's launcher `{name}` is not installed",
        cause="the deepspeed command starts the processes on other hosts through ssh, which pods do not need",
        remedy="set `launcher: deepspeed`: kfjob then starts DeepSpeed's launcher in each pod, without a host file",
        pattern=r"launcher '(?P<name>\w+)' not installed",
    ),
    Rule(
        id="ssh-login",
        title="the launcher cannot log in to `{host}` with ssh",
        cause="pdsh, mpirun and deepspeed start processes through ssh, which needs a server there and a key without a password",
        remedy="use kfjob's launchers, which need no ssh or host file (`launcher: deepspeed`), or set up server and keys",
        pattern=r"host=(?P<host>\S+) was not reachable via ssh"
        r"|pdsh@\S+ (?P<host2>\S+): ssh exited with exit code 255",
        role=Role.SUSPECT,
    ),
    Rule(
        id="endpoint-invalid",
        title="`{name}` is no rendezvous endpoint",
        cause="torchrun expects one host name or address and one port",
        remedy="write `rendezvous.endpoint` (or `--rdzv-endpoint`) as HOST:PORT; an empty variable in it is a usual reason",
        pattern=r"of the rendezvous endpoint '(?P<name>[^']*)' must be",
    ),
    Rule(
        id="launcher-failed",
        title="a launcher reports that its process failed",
        cause="the launcher only repeats the exit code ({code}); the process itself shows the reason",
        remedy="the last lines of that process show the reason; `python -u` keeps its output from being lost",
        pattern=r"^raise subprocess\.CalledProcessError\("
        r"|CalledProcessError: Command .*returned non-zero exit status (?P<code>\d+)"
        r"|exits with return code = (?P<code2>[1-9]\d*)"
        r"|process \d+ terminated with exit code (?P<code3>\d+)"
        r"|processes exited with non-zero status(?:[\s\S]*?Exit code: +(?P<code4>\d+))?"
        r"|^srun: error: \S+ tasks? \S+ Exited with exit code (?P<code5>[1-9]\d*)",
        role=Role.SYMPTOM,
        wraps=True,
        unless=("'ninja'", "nvcc", "gcc"),
    ),
    Rule(
        id="child-raised",
        title="a child process ended with an exception",
        cause="the parent repeats the exception of its child",
        remedy="see the traceback of the child below it",
        pattern=r"ProcessRaisedException|Caught \w+ in (?:DataLoader worker|replica|pin memory thread)",
        role=Role.SYMPTOM,
        wraps=True,
    ),
    Rule(
        id="mpi-slots",
        futile_after=1,
        title="mpirun has fewer slots than processes to start",
        cause="the hosts of `-H` or of the host file have fewer slots than `-np` asks for: a host without a number has one",
        remedy="give each host its number of processes (`-H HOST:8`, `slots=8` in the host file), or lower `-np`",
        pattern=r"not enough slots available in the system",  # Open MPI rmaps/base/help-orte-rmaps-base.txt
    ),
    Rule(
        id="mpi-daemon",
        title="mpirun lost a daemon on another host, or could not start it",
        cause=(
            "the pod or the node of that host ended, its address cannot be reached or resolved, ssh is refused, or Open MPI is "
            "not installed there at the same path"
        ),
        remedy="check the pod of the host that the message names, then `ssh HOST orted --version` from the launcher",
        # Open MPI orte/mca/errmgr and plm/base, help-errmgr-base.txt and help-plm-base.txt
        pattern=r"[OP]RTE has lost communication with a remote daemon|[OP]RTE was unable to reliably start one or more daemons",
        role=Role.SUSPECT,
    ),
)
