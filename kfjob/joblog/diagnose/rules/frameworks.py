"""Transformers, TRL, PEFT, vLLM, Ray or DeepSpeed refuse what the program asks for."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="pad-token",
        title="the tokenizer has no padding token",
        cause="the program pads a batch, and this tokenizer (such as that of Llama or GPT-2) defines no token for it",
        remedy="set `tokenizer.pad_token = tokenizer.eos_token`, and `pad_token_id` of the model",
        pattern=(
            r"Asking to pad but the tokenizer does not have a padding token"
            r"|Cannot handle batch sizes > 1 if no padding token"
            r"|[Pp]adding token is not (?:set|defined)|does not have a (?:pad|padding) token"
        ),
    ),
    Rule(
        id="chat-template",
        title="the tokenizer has no chat template",
        cause="the program formats conversations, and this tokenizer (usually of a base model) defines no template for them",
        remedy="use the instruct model's tokenizer, or set its `chat_template` (a Jinja text) before training",
        pattern=r"chat_template is not set|does not have a chat template|No chat template is (?:set|defined)",
    ),
    Rule(
        id="quantized-offload",
        title="the model does not fit on the GPU, so a part of it is on the CPU or the disk",
        cause="quantised modules must be on a GPU, and the automatic device map has placed some elsewhere for lack of memory",
        remedy=(
            "use a larger GPU or more of them, free the card (`nvidia-smi` shows other processes), quantise to 4 bits, or "
            "place all on the one card of `LOCAL_RANK` with `device_map`"
        ),
        pattern=r"modules are dispatched on the CPU or the disk",
    ),
    Rule(
        id="loss-shapes",
        title="the loss gets {inputs} predictions for {targets} labels",
        cause="one of predictions and labels was shifted, padded, cut or sharded, and the other was not",
        remedy="print both shapes before the loss; shift and pad labels together with the inputs",
        pattern=r"Expected input batch_size \((?P<inputs>\d+)\) to match target batch_size \((?P<targets>\d+)\)"
        r"|target size \(torch\.Size\(\[(?P<targets2>[\d, ]*)\]\)\) .*input size \(torch\.Size\(\[(?P<inputs2>[\d, ]*)\]\)\)",
    ),
    Rule(
        id="meta-tensor",
        title="a parameter has no data (it is on the meta device)",
        cause="the model was created without memory, and these weights were never loaded: the checkpoint lacks them",
        remedy="load the checkpoint before `.to(device)`, use `to_empty` and initialise, or load without `low_cpu_mem_usage`",
        pattern=r"Cannot copy out of meta tensor|is on the meta device|parameters? (?:is|are) on the meta",
    ),
    Rule(
        id="adapter-targets",
        title="the adapter's `target_modules` name no layers of this model",
        cause="PEFT looks for layers with these names, and the model's architecture has other names for them",
        remedy='print `model.named_modules()` and set `target_modules` to its names, or to "all-linear"',
        pattern=r"[Tt]arget modules .*not found in the base model|Please specify `target_modules`",
    ),
    Rule(
        id="generations-batch",
        title="the batch is not a multiple of the number of generations",
        cause="GRPO compares several generations of one prompt, so the global batch must be divisible by `num_generations`",
        remedy="choose the batch size per device, the number of processes and `num_generations` so that their sizes divide",
        pattern=r"(?:evenly )?divisible by the number of generations|number of generations .* must be",
    ),
    Rule(
        id="kv-cache",
        title="the KV cache does not fit into the GPU's memory for this sequence length",
        cause="vLLM reserves memory for one sequence of the model's maximum length, and less is left on the card",
        remedy=(
            "lower `max_model_len`, raise `gpu_memory_utilization`, use a larger `tensor_parallel_size`, or keep training and "
            "serving on different cards"
        ),
        pattern=r"stored in (?:the )?KV cache|No available memory for the cache blocks"
        r"|needed, which is larger than the available KV cache",
    ),
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
        id="ray-memory",
        title="Ray killed a worker, because the host memory ran out",
        cause="Ray's memory monitor ends the task with the most memory before the kernel would kill a process",
        remedy="raise `resources.memory`, use fewer loader workers, or set RAY_memory_usage_threshold in `env`",
        local_remedy="use fewer loader workers, or set RAY_memory_usage_threshold in the environment",
        pattern=r"ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory",
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
        id="dataset-column",
        title="the data set has no column `{name}`",
        cause="the program reads a column that these files do not have; the message lists the ones that exist",
        remedy="rename the column (`rename_column`), or set the column's name in the program's arguments",
        pattern=r"Column (?P<name>\S+) not in the dataset|Column name (?P<name2>\S+) not in the dataset"
        r"|Column to (?:remove|rename) \['?(?P<name3>[^'\]]+)",
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
        id="graph-break",
        title="torch.compile cannot compile a part of the model",
        cause="the code has an operation or a call that Dynamo cannot trace ({what}), and `fullgraph` allows no graph break",
        remedy="move that call out of the model, drop `fullgraph=True`, or set `TORCHDYNAMO_DISABLE=1` in `env`",
        pattern=r"_dynamo\.exc\.Unsupported: (?P<what>[^\n]{1,120})",
    ),
    Rule(
        id="precision-without-gpu",
        title="the program asks for mixed precision without a GPU",
        cause="fp16 and bf16 mixed precision of the trainer need a GPU, and the process sees none",
        remedy="request GPUs (`instance` or `resources.gpus`), or train in fp32 on the CPU",
        local_remedy="check the output of `nvidia-smi`, or train in fp32 on the CPU",
        pattern=r"(?:[Ff][Pp]16|[Bb][Ff]16|ixed precision)[^\n]*(?:can only be used on CUDA|requires? a GPU)",
    ),
    Rule(
        id="resume-checkpoint",
        title="there is no checkpoint to resume from",
        cause="the output folder has no complete checkpoint: the first run, another folder, or a lost volume",
        remedy="start without `resume_from_checkpoint` for the first run, and keep the output folder on one of the `volumes`",
        pattern=r"No valid checkpoint found|Can't find a valid checkpoint",
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
    Rule(
        id="tied-tensors",
        title="tied weights cannot be saved as safetensors",
        cause="two names share one tensor, such as embedding and output layer, and safetensors stores it once",
        remedy="save with `save_pretrained` or safetensors' save_model, or pass `safe_serialization=False`",
        pattern=r"Some tensors share memory",
    ),
)
