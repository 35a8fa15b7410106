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
        id="monitored-metric",
        title="a callback waits for the metric `{name}`, which nothing logs",
        cause="the name differs from the logged ones, or the metric is logged only after a validation that has not run yet",
        remedy="log it under this name in the validation step, or change `monitor` to a name that the message lists",
        pattern=r"monitor='(?P<name>[^']+)'\)?`? could not find the monitored key"
        r"|conditioned on metric `(?P<name2>[^`]+)` which is not",
    ),
    Rule(
        id="lightning-configuration",
        futile_after=2,
        title="Lightning refuses the configuration: {what}",
        cause=(
            "Lightning checks the module, its hooks, the data and the Trainer's arguments: one is missing, contradicts "
            "another, or was written for another version of Lightning or torch"
        ),
        remedy="change what the message names; if it worked before, pin the versions of Lightning and torch of that time",
        pattern=r"MisconfigurationException: (?P<what>[^\n.]{1,160})",  # lightning/fabric/utilities/exceptions.py
        role=Role.SUSPECT,
    ),
    Rule(
        id="not-registered",
        futile_after=2,
        title="`{name}` is not registered",
        cause="the name is misspelt, this version does not have it, or the module that registers it was not imported",
        remedy="check the name (timm: `timm.list_models()`); import the module that registers it (MMEngine: `custom_imports`)",
        pattern=r"Unknown model \((?P<name>[^)]+)\)|['\"](?P<name2>[\w.]+) is not in the \S+ registry"
        r"|No object named '(?P<name3>[^']+)' found in '[^']+' registry",
    ),
    Rule(
        id="deepspeed-differs",
        futile_after=2,
        title="DeepSpeed's configuration and the Trainer's arguments differ",
        cause="the values that the message lists are set twice, and not to the same",
        remedy="write `auto` for them in DeepSpeed's configuration, so that the Trainer fills them in",
        pattern=r"DeepSpeed config values that mismatch TrainingArguments",
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
        id="gpus-too-few",
        title="the program asks for more GPUs than Ray or its resource pool has",
        cause="{what}",
        remedy="lower the GPUs per node or the nodes in the program's configuration, or raise `nodes` and `resources.gpus`",
        pattern=r"(?P<what>Total available GPUs [^\n]*|No available node types can fulfill resource request [^\n.]*)",
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
        id="engine-memory",
        title="the GPU has less free memory than the inference engine wants",
        cause="of the card's memory {what} free at the start: the trainer or another process on the same card holds the rest",
        remedy=(
            "lower `gpu_memory_utilization` to the part that the engine may use, put trainer and engine on different cards, or "
            "end old processes (`nvidia-smi`)"
        ),
        pattern=r"Free memory on device[^\n(]*\((?P<what>[\d.]+/[\d.]+ GiB)\)",
    ),
    Rule(
        id="engine-server",
        title="the trainer cannot reach the inference server at `{host}`",
        cause="the server has not started, has ended, still loads its model, or listens at another address",
        remedy="check the log of the server, its address and its port; start it before the trainer, or raise the timeout",
        pattern=r"server can't be reached at (?P<host>\S+)",
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
        id="data-pipe",
        title="the command of a data pipe failed with exit code {code}: `{name}`",
        cause="127: the program is not in the image; otherwise it could not read its source, and its own output says why",
        remedy="run the command in the container by hand; install its program (such as awscli), and pass its credentials",
        local_remedy="run the command by hand; install its program (such as awscli), and set its credentials",
        pattern=r"'pipe:(?P<name>[^']+)'[^\n]*exit (?P<code>[1-9]\d*) \(read\)",
    ),
    Rule(
        id="streaming-local",
        title="two streaming data sets use the same local folder, or one that an earlier process left behind",
        cause="the folder is still registered in shared memory: an earlier run was killed, or two data sets share it",
        remedy="call `streaming.base.util.clean_stale_shared_memory()` once at the start; use one local folder per data set",
        pattern=r"Reused local directory",
    ),
    Rule(
        id="indexed-data",
        futile_after=2,
        title="there is no tokenised data at the prefix `{name}`",
        cause="Megatron reads PREFIX.bin and PREFIX.idx; the path is wrong, has an ending, or the data was not tokenised",
        remedy="pass the path without .bin or .idx (often with `_text_document`), or write them with preprocess_data.py",
        pattern=r"\.idx and \.bin files cannot be found at the path prefix (?P<name>\S+)",
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
