"""Transformers, TRL, PEFT, vLLM, Ray or DeepSpeed refuse what the program asks for."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="engine-failed",
        title="an inference engine or a Ray actor ended",
        cause="the message only repeats that a process below it has failed",
        remedy="see the first error above it, in the log of the engine or of the worker",
        pattern=r"Engine core initialization failed|EngineDeadError|ActorDiedError|WorkerCrashedError|RayTaskError"
        r"|RayActorError|TrainingFailedError",
        role=Role.SYMPTOM,
        wraps=True,
    ),
    Rule(
        id="ray-node-died",
        title="a node of the Ray cluster died",
        cause=(
            "Ray lost the node of an actor or a task: its pod or machine was preempted, evicted or out of memory, or its "
            "raylet ended"
        ),
        remedy="look at the pod with the address in the message, at its node and its raylet.out; then start the job anew",
        # ray exceptions.py RayActorError, NodeDiedError; gcs_node_manager.cc
        pattern=r"because its node has died|NodeDiedError|has been marked dead because the detector",
        role=Role.SUSPECT,
    ),
    Rule(
        id="dataset-script",
        title="the data set is a script, which this version of datasets no longer runs",
        cause="datasets 4 loads only files (Parquet, JSON, CSV), and this repository has Python code instead",
        remedy="load a Parquet version of the data set (its branch `refs/convert/parquet`), or pin `datasets<4` in the image",
        local_remedy="load a Parquet version of the data set (its branch `refs/convert/parquet`), or pin `datasets<4`",
        pattern=r"Dataset scripts are no longer supported",
    ),
    Rule(
        id="op-incompatible",
        title="DeepSpeed cannot build its operator `{name}` here",
        cause="the operator needs a library, a compiler or a GPU that the container does not have (async_io needs libaio)",
        remedy="run `ds_report` in the image, install what it lists (libaio-dev for async_io), or turn the feature off",
        local_remedy="run `ds_report`, install what it lists as missing (libaio-dev for async_io), or turn the feature off",
        pattern=r"Unable to JIT load the (?P<name>\w+) op",
    ),
    Rule(
        id="checkpoint-prefix",
        title="the names in the checkpoint have the prefix `{prefix}`, which the model's do not have",
        cause="the state dict was saved from the wrapped model (FSDP, DDP or torch.compile), and is loaded into the bare one",
        remedy="strip the prefix from the keys before `load_state_dict`, or save full state dicts with the library",
        pattern=(
            r"Unexpected key\(s\) in state_dict: \"(?P<prefix>_fsdp_wrapped_module|module|_orig_mod"
            r"|_forward_module|base_model)\."
        ),
    ),
    Rule(
        id="collate-sizes",
        title="the samples of a batch have different sizes",
        cause="the default collate function stacks tensors of one size, and a loader worker got samples of several",
        remedy="pad or cut the samples in the data set, or pass a `collate_fn` that pads them",
        pattern=r"resize storage that is not resizable",
    ),
    Rule(
        id="gradient-not-finite",
        title="the gradients are not finite",
        cause="training has diverged, fp16 overflows, or a sample of the data is broken, so that the norm cannot be clipped",
        remedy="lower the learning rate, train in bf16, and look at the last batch",
        pattern=r"is non-finite, so it cannot be clipped",
    ),
)
