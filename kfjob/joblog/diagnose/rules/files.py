"""Files of weights and data that cannot be read, and accounts for storage and trackers."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="weights-only",
        title="torch.load refuses the file: it holds more than tensors",
        cause="since torch 2.6, `torch.load` loads weights only by default, and the file holds other objects",
        remedy=(
            "if you trust the file, pass `weights_only=False` or allow its classes with "
            "`torch.serialization.add_safe_globals`; better, save the weights again as plain tensors"
        ),
        pattern=r"[Ww]eights only load failed|WeightsUnpickler error|Unsupported global: GLOBAL",
    ),
    Rule(
        id="checkpoint-storage",
        title="the checkpoint holds only a part of a tensor's data",
        cause="it was saved sharded (FSDP or ZeRO without the full state dict), or the file is incomplete or damaged",
        remedy="save the full state dict (or consolidate the shards), or copy the file again and compare its size",
        # torch/_utils.py _rebuild_tensor, torch/csrc/generic/serialization.cpp
        pattern=r"resize storage that is not resizable|storage has wrong byte size|unexpected EOF, expected \d+ more bytes",
        stack=("serialization.py", "torch/_utils.py"),
    ),
    Rule(
        id="weights-not-downloaded",
        title="a model or tokenizer file is not what its name says: usually a git-lfs pointer or a broken download",
        cause="it was fetched without git lfs (a pointer of three lines), is an HTML page, or was copied incompletely",
        remedy="download it again (`git lfs pull`, or `hf download REPO`), and compare its size with that on the hub",
        pattern=(
            r"[Ee]rror while deserializing header|Header(?:TooLarge|TooSmall)|InvalidHeader|invalid load key, '[v<{\\]"
            r"|MetadataIncompleteBuffer|ParseFromArray\(serialized\.data"
        ),
    ),
    Rule(
        id="checkpoint-plan",
        title="loading or saving a sharded checkpoint failed on the ranks",
        cause=(
            "the plan for the sharded state dict failed in the program: its state dict does not match the one that was saved "
            "(keys, or another state dict type), or a file is missing"
        ),
        remedy="see the traceback of rank 0 below it; load with the state dict type and the model settings that saved it",
        pattern=r"CheckpointException",
        role=Role.SUSPECT,
        wraps=True,
    ),
    Rule(
        id="checkpoint-world-size",
        title="the checkpoint was saved with another number of ranks",
        cause="its shards belong to another world size or parallel size, and this format cannot be resharded",
        remedy=(
            "use the number of ranks that it was saved with, or convert it (DeepSpeed: its universal format; Megatron: a "
            "distributed checkpoint; kfjob's trainer reshards)"
        ),
        pattern=r"(?:[Cc]heckpoint|[Ll]oad(?:ed|ing)?|saved)[^\n]*world[ _]size[^\n]*(?:but|differ|current|mismatch|expected"
        r"|automatic adjustment)"
        r"|world[ _]size[^\n]*(?:differ|match)[^\n]*(?:checkpoint|saved)",
    ),
    Rule(
        id="data-unreadable",
        title="a data file cannot be read as a table",
        cause=(
            "a row has another type or format than the others, a column is new or changes its type, or the file is not valid "
            "JSON, CSV or Parquet"
        ),
        remedy=(
            "check the file read last: every row needs the same columns with one type (convert mixed ones to text), and one "
            "valid JSON object per line"
        ),
        pattern=r"ArrowInvalid|ArrowTypeError|JSON parse error|[Pp]arquet magic bytes not found|Could not open Parquet"
        r"|ParserError|CastError"
        r"|(?:Couldn't cast|BadZipFile|column names don't match|Error tokenizing data)",
    ),
    Rule(
        id="file-lock",
        title="a file cannot be locked",
        cause=(
            "its volume does not support locks, as some network file systems (NFS, Lustre without the option flock), or "
            "another process has opened the file for writing"
        ),
        remedy=(
            "set `HDF5_USE_FILE_LOCKING=FALSE` for HDF5 files that are only read, or open them with `locking=False`; mount the "
            "volume with locks, or copy the file to a local disk"
        ),
        pattern=r"unable to lock (?:the )?file|driver lock request failed|No locks available",
    ),
    Rule(
        id="file-damaged",
        title="the data that the program reads is incomplete or has another encoding",
        cause="it ends early (an interrupted copy or download), is empty, or is not in the format that its reader expects",
        remedy=(
            "the traceback shows what the program reads; if it is a file, compare its size with the source, copy it again, and "
            "remove caches that hold it"
        ),
        unless=("EOF when reading a line",),  # of `input()`
        pattern=r"EOFError: |UnicodeDecodeError|[Nn]ot a gzip|Compressed file ended|cannot identify image file"
        r"|image file is truncated|broken data stream when reading image|broken PNG file"
        # FFmpeg libavutil/error.c AVERROR_INVALIDDATA, libavformat/mov.c; torchcodec SingleStreamDecoder.cpp
        r"|Invalid data found when processing input|moov atom not found|No valid stream found in input file"
        r"|Truncated File Read|DECORDError: |tarfile\.ReadError|av\.error\.InvalidDataError|LibsndfileError"
        r"|UnpicklingError: (?:pickle data was truncated|invalid load key)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="wandb-login",
        title="wandb is not logged in",
        cause="Weights & Biases needs an API key, the container has none, and nobody can type one in",
        remedy="pass `WANDB_API_KEY` as a secret, or set `WANDB_MODE=offline` (or disabled) in `env`",
        pattern=(
            r"api_key not configured|wandb[^\n]*(?:API key|not logged in)|API key must be 40 characters"
            r"|wandb\.errors\.AuthenticationError"
        ),
    ),
    Rule(
        id="wandb-failed",
        title="wandb cannot reach its server, or the server refuses",
        cause="Weights & Biases reports: {what}",
        remedy=(
            "check the network, `WANDB_ENTITY` and `WANDB_PROJECT`, and the rights of the key; raise `WANDB_INIT_TIMEOUT`, or "
            "set `WANDB_MODE=offline` in `env`"
        ),
        pattern=r"wandb: ERROR (?P<what>[^\n]*)|wandb\.errors\.\w+: (?P<what2>[^\n]*)|"
        r"(?P<what3>W&B API: permission denied[^\n]*|Run initialization has timed out|Error communicating with wandb process"
        r"|(?:entity|project) \S+ not found during upsertBucket)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="cloud-credentials",
        title="the cloud storage refuses access",
        cause="the pod has no credentials, expired ones, or a role without rights for the bucket: {what}",
        remedy=(
            "give the pod's service account a role that may read and write the bucket (IRSA, pod identity, workload identity), "
            "or pass the keys as a secret"
        ),
        local_remedy="log in again (`aws sso login`, `gcloud auth application-default login`), or check the rights",
        pattern=r"(?P<what>Unable to locate credentials|NoCredentialsError|AccessDenied|ExpiredToken|InvalidAccessKeyId"
        r"|SignatureDoesNotMatch|DefaultCredentialsError|AuthorizationFailure"
        # the answer to a HEAD request has no body, so botocore knows only its status (botocore/parsers.py)
        r"|An error occurred \(40[013]\) when calling the \w+ operation[^\n]*|(?:ExpiredToken|InvalidToken|RequestExpired)\w*)",
    ),
    Rule(
        id="bucket-object-missing",
        title="a bucket or an object in the cloud storage does not exist",
        cause="the name or the region is wrong, or the role may not list the bucket: {what}",
        remedy="check the URL with `aws s3 ls` (or `gsutil ls`) and the same role",
        pattern=r"(?P<what>NoSuchBucket|NoSuchKey|operation: Not Found|PermanentRedirect"
        r"|\(404\) when calling the \w+ operation|(?:s3|gs|oci|azure|r2)://\S+ not found\b|The specified blob does not exist)",
    ),
    Rule(
        id="checkpoint-write",
        title="a checkpoint could not be written",
        cause=(
            "its folder does not exist or cannot be written, or the disk or volume refused data: it is full, over its quota, "
            "or the connection to it was lost"
        ),
        remedy=(
            "create the folder before the first save; check the space and the quota of the volume (`df -h`), keep fewer "
            "checkpoints, and remove the incomplete one"
        ),
        pattern=r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+"
        r"|RuntimeError: (?:File \S+ cannot be opened|Parent directory \S+ does not exist)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="storage-lost",
        title="a network volume or a disk failed: {what}",
        cause="the file system lost its server, its device, or the file was replaced on the server while it was open",
        remedy="check the volume and its server (`dmesg`, events of the pod), then relaunch from the newest checkpoint",
        pattern=(
            r"(?:\[Errno \d+\]|fd \d+ failed with) (?P<what>Input/output error|Stale file handle"
            r"|Transport endpoint is not connected|Remote I/O error)"
        ),
    ),
    Rule(
        id="model-files-missing",
        title="the model folder has no usable weights",
        cause=(
            "files are missing, have another format, or are git-lfs pointers: the download was incomplete, or the folder is a "
            "checkpoint of another kind"
        ),
        remedy="list the folder, download the model again (`hf download REPO`), or convert the checkpoint to safetensors",
        pattern=r"Error no file named|Unable to load weights from (?:pytorch|safetensors)? ?checkpoint",
    ),
    Rule(
        id="data-empty",
        title="the data set is empty",
        cause="no sample is left: the path or the split is wrong, a filter removed all, or there are fewer samples than ranks",
        remedy="print the number of samples after each step of the preparation, and check the path and the split",
        pattern=r"got num_samples=0|Stream contains no samples|(?:Error|Exception): .*(?:[Ee]mpty dataset|[Dd]ataset is empty)",
    ),
)
