"""Training that runs and computes something wrong, or nothing."""

from kfjob.observe.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="forward-order",
        title="the forward order differs from that of the first iteration on rank {rank}",
        cause="FSDP's units are called in another order than they were wrapped in: the wrap policy names the wrong layer, "
        "or ranks "
        "take different paths; results may be wrong, the loss can vanish, the job can hang",
        remedy="wrap the decoder layers and nothing inside them (`transformer_layer`: kfjob's trainer finds it), and keep "
        "the root "
        "unit for the embeddings; do not go on with this run",
        markers=("Forward order differs",),
        pattern=r"Forward order differs (?:from that of the first iteration on rank (?P<rank>\d+)|across ranks)",
        permanent=True,
    ),
    Rule(
        id="loss-not-finite",
        title="the loss is {loss}",
        cause="the computation has diverged or overflowed: the learning rate is too high, fp16 runs without loss scaling, "
        "or the "
        "data holds such values; every step after it is lost",
        remedy="go back to the checkpoint before it, with a lower `lr`, `grad_clip: 1.0`, or bf16",
        subject=Subject.VIEW,
        permanent=True,
    ),
    Rule(
        id="loss-constant",
        title="the loss does not change: {loss} for {count} readings",
        cause="nothing is learnt: the learning rate is 0, parameters are frozen or not in the optimiser, or every sample is "
        "the "
        "same; with FSDP also a wrong wrap policy",
        remedy="check `lr` and its schedule, and which parameters need gradients",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
        permanent=True,
    ),
    Rule(
        id="stalled",
        title="no progress for {seconds} s",
        cause="the job runs and prints nothing: it hangs in a collective or in reading data, or it has not begun yet",
        remedy="`kfjob logs {job} --tail 5` shows where each pod is; `py-spy dump` in a pod shows the stack",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
    ),
    Rule(
        id="import-shortfall",
        title="pod `{pod}` printed its import lines {count} times for {processes} processes",
        cause="each process prints the line `torch.distributed._shard.checkpoint` once at its start; {missing} did not get "
        "that far",
        remedy="look at the pod's log for the rank that is missing: `kfjob logs {job} --pod {pod}`",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
    ),
    Rule(
        id="rank0-left-early",
        title="rank 0 ended while others still worked",
        cause="pod `{pod}` holds rank 0 and ended without a fault; the store of the process group went with it",
        remedy="let every rank do the same number of steps, and end with `destroy_process_group()` on all of them",
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="peer-lost",
        title="pod `{pod}` fell silent",
        cause="its log ends without a fault while others still worked and lost their connection to it: it was killed, or "
        "its node "
        "was lost",
        remedy="see what became of the pod and its node (`kubectl describe pod {pod}`, `kubectl get events`): memory limit, "
        "eviction, spot interruption; then `kfjob relaunch {job}`",
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="store-host-lost",
        title="pod `{pod}`, which holds the rendezvous, fell silent",
        cause="its log ends without a fault while others still worked: it was killed, or its node was lost. All agents of a "
        "c10d "
        "rendezvous end with the pod that holds the store",
        remedy="see what became of the pod and its node (`kubectl describe pod {pod}`), then `kfjob relaunch {job}`; "
        "`rendezvous: etcd` keeps the store apart from the workers",
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
    Rule(
        id="outcome-failed",
        title="the trainer gave up: {reason}",
        cause="kfjob's trainer ended by itself and says why in its last line",
        remedy="follow the message; `kfjob logs {job} --master` shows the lines before it",
        markers=("Outcome failed",),
        pattern=r"Outcome failed .*?(?:reason \"(?P<reason>.*)\")?$",
    ),
)
