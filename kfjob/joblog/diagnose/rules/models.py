"""Dtypes, shapes, parallel sizes, DDP and FSDP do not fit the model or the job."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="device-mismatch",
        title="the program puts tensors on different devices",
        cause=(
            "one operation got tensors on two devices: a part of the program uses a fixed one such as cuda:0, a `device_map`, "
            "or an input was not moved to the GPU of its local rank"
        ),
        remedy=(
            'move model and inputs to the GPU of `LOCAL_RANK` (`torch.cuda.set_device(local_rank)`, then `.to("cuda")`), and '
            "leave out `device_map` where every process has its own GPU"
        ),
        pattern=r"tensors to be on the same device|found at least two devices|(?:must|should|expected to) be on the same device"
        r"|Input type \(torch\.\w+\) and (?:weight|bias) type \(torch\.cuda\.|Input type \(torch\.cuda\.\w+\) and "
        r"(?:weight|bias) type \(torch\.[A-Z]|Expected object of device type",
    ),
    Rule(
        id="fsdp-mixed-parameters",
        title="one FSDP unit holds parameters of different kinds",
        cause="FSDP flattens the parameters of a unit into one tensor, so all need one dtype and the same `requires_grad`",
        remedy=(
            "load the whole model in one dtype (cast adapters and norms too), or set `use_orig_params=True` for frozen "
            "parameters; wrap quantised layers with the same quant_storage dtype"
        ),
        pattern=(
            r"Must flatten tensors with uniform|(?:expects|requires) uniform (?:original parameter )?`?(?:dtype|requires_grad)"
        ),
    ),
    Rule(
        id="dtype-mismatch",
        title="an operation got two data types",
        cause="their precision differs (`{what}`): one was not cast, or numpy made float64 (Double) of it",
        remedy=(
            "run the forward pass under `torch.autocast`, or load the model and its inputs in one dtype (`torch_dtype`, "
            "`.to(dtype)`); adapters and norms that stay in fp32 need a cast; convert what comes from numpy with `.float()`"
        ),
        pattern=r"(?:have|be of|in) the same (?P<what>(?:dtype|data type)(?:, but got:? \w+ (?:and|!=) \w+)?)"
        r"|(?P<what2>expected (?:scalar type|dtype) \w+ but (?:found|got) \w+|Found dtype \w+ but expected \w+"
        r"|not implemented for '(?:Half|BFloat16|c10::\w+)'|source and destination dtypes match|Input type \([^)]*\) and "
        r"(?:weight|bias) type(?: \([^)]*\))?|only supports? fp16 and bf16|dtype of input .*(?:differ|match))",
    ),
    Rule(
        id="flash-attention-gpu",
        title="FlashAttention does not support this GPU",
        cause="flash-attn needs Ampere (A100, sm_80) or a newer generation; this GPU (such as V100 or T4) is older",
        remedy=('use another attention (`attn_implementation="sdpa"` or "eager"), or newer GPUs: A100, A10, L4, H100'),
        pattern=(
            r"Expected (?:is_)?\w*is_sm[89]0|FlashAttention only supports \w+ GPUs|Flash [Aa]ttention is only supported on"
            r"|flash attention requires"
        ),
    ),
    Rule(
        id="ddp-model-differs",
        title="the ranks did not build the same model",
        cause=(
            "DDP compares the parameters of all ranks, and their number or shapes differ: the model depends on the rank or a "
            "random seed, or one rank failed before and has no parameters"
        ),
        remedy=(
            "look for the first error in the log of the rank with fewer parameters; build the same model with the same "
            "configuration on every rank, and freeze parameters everywhere alike"
        ),
        pattern=(
            r"DDP expects same model across all ranks|rank \d+ has inconsistent|appears not to match (?:sizes|strides|shapes)"
        ),
    ),
    Rule(
        id="ddp-nothing-to-train",
        title="no parameter of the model needs a gradient",
        cause="the model or the loss has no trainable parameter: all are frozen, or adapters are missing",
        remedy="unfreeze parameters, add the adapter before wrapping, and compute the loss outside `no_grad`",
        pattern=r"doesn't have any parameters that require a gradient|does not require grad and does not have a grad_fn",
    ),
    Rule(
        id="inplace-change",
        title="a tensor was changed in place before its gradient was computed",
        cause=(
            "an operation overwrote a value that the backward pass needs; in DDP the broadcast of buffers does so if the "
            "forward pass runs twice per step"
        ),
        remedy="set `broadcast_buffers=False` in DDP; `torch.autograd.set_detect_anomaly` names another operation",
        pattern=r"modified by an inplace operation",
    ),
    Rule(
        id="batch-arithmetic",
        title="the batch sizes do not multiply to the global one",
        cause=(
            "the global batch size must be the micro-batch size times the accumulation steps times the data parallel size (the "
            "world size over the tensor, pipeline and context parallel sizes); a world size of 1 shows a missing launcher"
        ),
        remedy=(
            "choose a global batch size that is a multiple of micro-batch size times data parallel size, or other numbers of "
            'nodes; in DeepSpeed set all but one to "auto"; without a launcher, start the program with `torchrun`'
        ),
        pattern=r"Check batch related parameters|train_batch_size is not\s+equal"
        r"|(?:global|total|train)[ _]batch[ _]size.{0,80}(?:divisible|must be equal|not equal)",
    ),
    Rule(
        id="sequence-parallel-length",
        title="the sequence length is not a multiple of the tensor parallel size",
        cause="every sequence is split over the tensor parallel ranks, so its length must be divisible by their number",
        remedy="pad every sequence to a multiple of the tensor parallel size, or switch sequence parallelism off",
        pattern=r"tensor should be divisible by tensor parallel size|(?:[Ss]equence length|seq_length"
        r"|sequence dimension)\b.{0,120}"
        r"(?:divisible|multiple)",
    ),
    Rule(
        id="parallel-sizes",
        title="the parallel sizes do not fit the job or the model",
        cause=(
            "the world size (nodes times processes) must be a multiple of the product of the parallel sizes, and the attention "
            "heads, layers and hidden size multiples of those that divide them: {what}"
        ),
        remedy=(
            "choose `nodes` times `processes_per_node` as a multiple of the product of the parallel sizes, and sizes that "
            "divide the heads"
        ),
        pattern=r"(?P<what>[^\n]*(?:world[ _]size|parallel|num_attention_heads|attention heads|num_layers|data_parallel"
        r"|hidden[ _]size)"
        r"[^\n]*(?:is not|must be|should be|not) divisible by[^\n]*)",
    ),
    Rule(
        id="loss-scale-minimum",
        title="fp16 training overflows in every step",
        cause="gradients are not finite at the smallest loss scale: values exceed fp16, or training diverges",
        remedy="train in bf16 (`train.precision: bf16`), lower the learning rate, or clip gradients",
        pattern=r"loss scale already at minimum|[Mm]inimum loss scale reached|scale has reached its minimum",
    ),
    Rule(
        id="batch-norm-single",
        title="a BatchNorm layer got one value per channel, too few for statistics",
        cause="the batch of this rank has a single sample, usually the last batch of an epoch",
        remedy="set `drop_last=True` in the DataLoader, use larger batches, or another normalization (GroupNorm, LayerNorm)",
        pattern=r"Expected more than 1 (?:value per channel|spatial element) when training",
    ),
    Rule(
        id="process-group-missing",
        title="the program uses collectives without a process group",
        cause="`init_process_group` was not called in this process, was called twice, or the group was destroyed before",
        remedy="call `init_process_group()` once per process before the model is wrapped; start with `torchrun`",
        pattern=r"rocess group has not been initialized|initialize the default process group twice",
    ),
    Rule(
        id="backend-device",
        title="the process group's backend cannot use these tensors",
        cause=(
            "NCCL works on GPU tensors only, gloo on CPU tensors: a collective got a tensor of the other kind, or the backend "
            "was chosen wrongly"
        ),
        remedy='move the tensor to the GPU before the collective, or call `init_process_group("cpu:gloo,cuda:nccl")`',
        pattern=r"Tensors must be CUDA and dense|No backend type associated with device type",
    ),
    Rule(
        id="torch-without-nccl",
        title="this torch has no NCCL",
        cause="a CPU build of torch, or one for another platform, is installed",
        remedy="install torch with CUDA, or use the gloo backend",
        pattern=r"Distributed package doesn't have NCCL|No module named 'torch\._C\._distributed",
    ),
    Rule(
        id="sharded-parameter",
        title="the program uses a parameter that is sharded",
        cause=(
            "FSDP or ZeRO-3 keeps only a part of each parameter, so code that uses a weight outside of the wrapped forward "
            "pass sees an empty tensor"
        ),
        remedy="use it in `FSDP.summon_full_params` or `deepspeed.zero.GatheredParameters`, or wrap the layers anew",
        pattern=r"'weight' must be 2-D|weight should have at least three dimensions|current model is torch\.Size\(\[0\]\)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="loss-diverged",
        title="the program stopped because the loss is not finite",
        cause="training has diverged: the learning rate is too high, fp16 overflows, or a sample of the data is broken",
        remedy="resume from an earlier checkpoint with a lower learning rate, clipped gradients, or bf16",
        pattern=r"(?:Error|Exception): .*\b[Ll]oss (?:is|became|was) (?:nan|NaN|inf|not finite)",
    ),
)
