"""Messages of the programs that start a training, from memory: rule, text, and the program that prints it."""

from __future__ import annotations

TEXTS = (
    (
        "agent-stopped",
        """Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.api.SignalException: Process 40 got signal: 15""",
        "torch elastic/multiprocessing/api.py",
    ),
    (
        "agent-stopped",
        "W1121 06:20:00.1 51 torch/elastic/agent/server/api.py:7] Received Signals.SIGTERM death signal, shutting down workers",
        "torch elastic/agent/server/api.py",
    ),
    (
        "mpi-program",
        """mpirun was unable to find the specified executable file, and therefore
did not launch the job.  This error was first reported for process
rank 0; it may have occurred for other processes as well.

Node:       a-worker-0
Executable: pyhton""",
        "Open MPI help-orterun.txt",
    ),
    (
        "mpi-program",
        """prterun was unable to launch the specified application as it could not access
or execute an executable:

Executable: /w/run.sh
Node: a-worker-1""",
        "PRRTE help-prterun.txt",
    ),
    (
        "mpi-program",
        "[proxy:0:1@a-worker-1] HYDU_create_process (launch.c:73): execvp error on file pyhton (No such file or directory)",
        "MPICH Hydra lib/utils/launch.c",
    ),
    (
        "mpi-folder",
        """mpirun was unable to launch the specified application as it could not
change to the specified working directory:

Working directory: /d/run
Node: a-worker-1""",
        "Open MPI help-orterun.txt",
    ),
    (
        "worker-killed",
        "mpirun noticed that process rank 3 with PID 214 on node a-worker-1 exited on signal 9 (Killed).",
        "Open MPI help-orterun.txt",
    ),
    (
        "launcher-failed",
        """mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[4242,1],1]
  Exit code:    3""",
        "Open MPI help-orterun.txt",
    ),
    ("srun-refused", "srun: error: Unable to create step for job 7: More processors requested than permitted", "Slurm srun"),
    ("launcher-failed", "srun: error: n1: task 3: Exited with exit code 2", "Slurm srun"),
)
