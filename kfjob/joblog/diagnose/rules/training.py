"""The training runs, but hangs, diverges, or each node trains alone."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="forward-order",
        title="the forward order differs from that of the first iteration on rank {rank}",
        cause=(
            "FSDP units run in another order than they were wrapped in: the wrap policy names the wrong layer, or ranks take "
            "different paths; results may be wrong, the loss can vanish, and the job can hang"
        ),
        remedy=(
            "wrap the decoder layers and nothing inside them (`transformer_layer`; kfjob's trainer finds it), keep the root "
            "unit for the embeddings, and stop this run"
        ),
        pattern=r"Forward order differs (?:from that of the first iteration on rank (?P<rank>\d+)|across ranks)",
        permanent=True,
    ),
    Rule(
        id="loss-not-finite",
        title="the loss is {loss}{since}",
        cause=(
            "the computation has diverged or overflowed: the learning rate is too high, fp16 runs without loss scaling, or the "
            "data contains such values; every later step is lost"
        ),
        remedy="resume from an earlier checkpoint with {change}",
        subject=Subject.VIEW,
        permanent=True,
    ),
    Rule(
        id="nan-detected",
        title="the program stops at a value that is not finite: {what}",
        cause="training has diverged, a sample of the data is broken, or a GPU computes wrong results",
        remedy=(
            "resume from an earlier checkpoint with a lower learning rate and gradient clipping; if always the same device "
            "reports it, test that GPU (`dcgmi diag -r 3`) and cordon its node"
        ),
        local_remedy=(
            "resume from an earlier checkpoint with a lower learning rate and gradient clipping; if always the same device "
            "reports it, test that GPU (`dcgmi diag -r 3`)"
        ),
        pattern=r"(?P<what>found (?:NaN|Inf) in [^'\n]*|(?:probability tensor contains|Unexpected result (?:nan|inf))[^\n]*)",
    ),
    Rule(
        id="loss-constant",
        title="the loss does not change: {loss} for {count} readings",
        cause=(
            "the model does not learn: the learning rate is 0, parameters are frozen or not in the optimiser, every sample is "
            "the same, or FSDP has a wrong wrap policy"
        ),
        remedy="check `lr` and its schedule, and which parameters require gradients",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
        permanent=True,
    ),
    Rule(
        id="stalled",
        title="no progress for {pause}",
        cause=("the job runs and prints no progress: it hangs in a collective or in data loading, or training has not started"),
        remedy="`kfjob logs {job} --tail 5` shows where each pod is; py-spy (`pip install py-spy` in a pod) shows the stack",
        local_remedy="`kfjob logs {job} --tail 5` shows what each process printed last; {py_spy}",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
    ),
    Rule(
        id="import-shortfall",
        title="{missing} in pod `{pod}` did not print the line that every process prints at its start",
        cause="the other ranks imported `torch.distributed._shard.checkpoint`; {missing} did not get that far",
        remedy="`kfjob logs {job} --pod {pod}` shows what {missing} printed last",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
    ),
    Rule(
        id="rank0-left-early",
        title="rank 0 ended while other ranks were still working",
        cause="pod `{pod}` held rank 0 and ended without an error; the process group's store ended with it",
        remedy=(
            "let every rank run the same number of steps, and call `destroy_process_group()` at the end of each; "
            "`kfjob stop {job}` ends a job whose other ranks wait"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="collectives-apart",
        title="the ranks waited in different collectives",
        cause="{difference}: one of them ran an operation that the others did not run, or stayed behind",
        remedy=(
            "find the branch that not every rank takes around a collective: evaluation, saving or logging on one rank, a batch "
            "that only some ranks have, a parameter without gradient; `TORCH_DISTRIBUTED_DEBUG=DETAIL` checks each collective"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="rank-absent",
        title="{absent} reported no timeout, and other ranks timed out in a collective",
        cause=(
            "{waited} waited in {what} until it timed out, and {absent} did not report that it waited: it hangs elsewhere, is "
            "slower than the timeout, or was ended before{last}"
        ),
        remedy=(
            "look at {absent} first: `kfjob logs {job} --tail 50` shows what it did last, and py-spy (`pip install py-spy`) "
            "where it hangs; if it only needs more time (saving, evaluating, preparing data), raise "
            "`init_process_group(timeout=…)`"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="rank-left-early",
        title="{ranks} ended while other ranks were still working",
        cause=(
            "the processes of pod `{pod}` ended without an error before the others: usually its part of the data has fewer "
            "batches, or the program left its loop on some ranks alone"
        ),
        remedy=(
            "let every rank run the same number of steps: `DistributedSampler(drop_last=True)`, a fixed number of steps, or "
            "`torch.distributed.algorithms.Join`; `kfjob stop {job}` ends a job whose other ranks wait"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="rank0-gone",
        title="rank 0 ended before the other ranks",
        cause="the log of pod `{pod}`, whose process holds the store, ends without an error: rank 0 finished or left too early",
        remedy=(
            "keep rank 0 alive until all ranks are done: run the same number of steps everywhere, and call "
            "`torch.distributed.barrier()` and `destroy_process_group()` at the end of each"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="slow-preparation",
        title="a rank prepared its data for longer than the others wait",
        cause=(
            "`{what}` was at {percent} % when a collective of the other ranks timed out: the first rank prepares, and the "
            "others wait in a barrier"
        ),
        remedy=(
            "prepare the data before the job (once, to a shared folder), or raise the timeout: "
            "`init_process_group(timeout=timedelta(hours=3))`, `ddp_timeout` in transformers, `InitProcessGroupKwargs` in "
            "accelerate"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="independent-trainings",
        title="the job runs {count} independent trainings instead of one on {nodes} nodes",
        cause="each pod has a process group of its own, or none, so every node trains the whole model alone",
        remedy=(
            "use one rendezvous for all nodes: `command: torchrun …` without `--standalone` or `--nnodes=1`, and the same "
            "`rendezvous.id`; pass accelerate `--num_machines`, `--machine_rank` and `--main_process_ip`, and Lightning its "
            "number of nodes"
        ),
        subject=Subject.VIEW,
        permanent=True,
    ),
    Rule(
        id="peer-lost",
        title="the log of pod `{pod}` stops without an error",
        cause="other pods lost their connection to it: it was killed, or its node was lost",
        remedy=(
            "`kubectl describe pod {pod}` and `kubectl get events` show what happened to the pod and its node (memory limit, "
            "eviction, spot interruption); then run `kfjob relaunch {job}`"
        ),
        local_remedy="the kernel log (`dmesg`) shows whether memory ran out; then run `kfjob relaunch {job}`",
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="store-host-lost",
        title="the log of pod `{pod}`, which holds the rendezvous store, stops without an error",
        cause=("it was killed, or its node was lost; all agents of a c10d rendezvous end with the pod that holds the store"),
        remedy=(
            "`kubectl describe pod {pod}` shows what happened to the pod; then run `kfjob relaunch {job}`; `rendezvous: etcd` "
            "keeps the store apart from the workers"
        ),
        local_remedy=(
            "the kernel log (`dmesg`) shows whether memory ran out; otherwise somebody killed it; then run `kfjob relaunch "
            "{job}`; `rendezvous: etcd` keeps the store apart from the workers"
        ),
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="outcome-permanent",
        futile_after=1,
        title="the trainer gave up: {reason}",
        cause="kfjob's trainer ended before its first step, and every restart would end in the same way",
        remedy="follow the message; `kfjob logs {job} --master` shows the lines before it",
        pattern=r"Outcome failed .*? permanent reason \"(?P<reason>.*)\"$",
        wraps=True,
    ),
    Rule(
        id="outcome-failed",
        title="the trainer gave up: {reason}",
        cause="kfjob's trainer ended by itself; its last line gives the reason",
        remedy="follow the message; `kfjob logs {job} --master` shows the lines before it",
        unless=(" permanent reason ",),
        pattern=r"Outcome failed .*?(?:reason \"(?P<reason>.*)\")?$",
        wraps=True,
    ),
)
