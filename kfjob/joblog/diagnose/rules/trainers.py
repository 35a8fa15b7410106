"""The trainer's arguments, metrics, registries and engines do not fit each other."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="trainer-nodes",
        futile_after=2,
        title="torchrun and the Trainer expect different numbers of nodes or processes",
        cause="{what}",
        remedy="give the Trainer the numbers of the job: `num_nodes=int(os.environ['GROUP_WORLD_SIZE'])`, `devices='auto'`",
        pattern=r"(?P<what>You set `--n\w+=\d+` in torchrun but `Trainer\([^\n]*)",
    ),
    Rule(
        id="wrap-class",
        futile_after=2,
        title="FSDP does not find the layer class `{name}` in the model",
        cause="the class to wrap belongs to another model, or the model is wrapped already (such as by PEFT or a quantiser)",
        remedy="set `fsdp_transformer_layer_cls_to_wrap` to the class of this model's layers, which `print(model)` shows",
        pattern=r"Could not find the transformer layer class (?:to wrap )?(?P<name>\w+)? ?in the model",
    ),
    Rule(
        id="device-not-set",
        futile_after=2,
        title="a rank builds the model on another GPU than its own",
        cause="the model is on the default GPU (cuda:0) of all ranks, and FSDP was given the rank's own one",
        remedy="call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before the model is built",
        pattern=r"Inconsistent compute device and `device_id`",
    ),
    Rule(
        id="gpu-generation",
        futile_after=1,
        title="the GPU is too old: {what}",
        cause="the kernels of this feature need a newer generation of GPUs (FP8: Ada or Hopper; Triton: Volta; bf16: Ampere)",
        remedy="switch the feature off (fp8, torch.compile), or choose an `instance` with newer GPUs",
        local_remedy="switch the feature off (fp8, torch.compile), or use a newer GPU",
        pattern=r"(?P<what>(?:[Dd]evice c|C)ompute capability [\d.x]+ or (?:higher|above) [^\n]*"
        r"|Found [^\n:]{0,80}too old to be supported by the triton GPU compiler)",
    ),
    Rule(
        id="optimizer-state",
        title="the checkpoint's optimiser has other parameters than this one",
        cause="other layers are trained than in the run that wrote it (frozen layers, adapters)",
        remedy="resume with the settings of that run, or load only the model's weights and begin with a new optimiser",
        pattern=r"loaded state dict (?:contains a parameter group that doesn't match"
        r"|has a different number of parameter groups)",
    ),
    Rule(
        id="loader-timeout",
        title="a loader worker gave no batch within {seconds} s",
        cause="reading takes longer than `timeout` of the DataLoader: slow storage, too few workers, or a worker that hangs",
        remedy="measure the time of `dataset[0]`; raise `timeout`, use more workers, or copy the data to a local disk first",
        pattern=r"DataLoader timed out after (?P<seconds>\d+) seconds",
        role=Role.SUSPECT,
    ),
    Rule(
        id="socket-path",
        title="the path of a temporary socket is too long",
        cause="a Unix socket's path has at most 107 characters, and the folder for temporary files (TMPDIR) is long",
        remedy="set `TMPDIR` in `env` to a short path, such as /tmp",
        pattern=r"AF_UNIX path too long",
    ),
    Rule(
        id="efa-fork",
        title="libfabric's EFA provider stops the program because it forks",
        cause="loader workers and subprocesses fork, which this version of the provider allows only with a variable",
        remedy="set `FI_EFA_FORK_SAFE=1` and `RDMAV_FORK_SAFE=1` in `env`, or update the kernel and rdma-core",
        pattern=r"RDMAV_FORK_SAFE",
    ),
)
