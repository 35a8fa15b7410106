"""Data sets, tokenizers and checkpoints are missing, damaged or belong to another model."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="data-missing",
        futile_after=2,
        title="there is no data at `{path}`",
        cause="the path does not exist: the volume is not mounted, or is mounted elsewhere",
        remedy="compare `volumes` with the path; `kfjob render` shows the mount paths",
        local_remedy="check the path on this machine; for a path in one of the `volumes`, check its `host_path`",
        pattern=r"no (?:validation )?data at `(?P<path>[^`]*)`|no \w+\.jsonl and no \w+\.txt in `(?P<path2>[^`]*)`"
        r"|EmptyDatasetError.*directory at (?P<path3>\S+)",
    ),
    Rule(
        id="tokenizer-missing",
        futile_after=2,
        title="there is no tokenizer for `{name}`",
        cause="the folder or repository has no tokenizer files",
        remedy="set the tokenizer itself (`train.tokenizer`), or copy tokenizer.json to the folder",
        pattern=r"Can't load tokenizer for '(?P<name>[^']*)'|no tokenizer at `(?P<name2>[^`]*)`"
        r"|cannot read the tokenizer `(?P<name3>[^`]*)`",
    ),
    Rule(
        id="tokenizer-format",
        title="tokenizer.json has a form that the installed tokenizers package does not know",
        cause="a newer version of the package wrote the file, or the file is damaged",
        remedy="upgrade transformers and tokenizers to versions as new as the model, or write the file again with the old one",
        pattern=r"data did not match any variant of untagged enum \w{1,40}Wrapper",
    ),
    Rule(
        id="tokenizer-mismatch",
        title="a token id is not below the model's vocabulary size",
        cause="the data has another tokenizer than the model, or tokens were added without resizing the embedding",
        remedy="use the model's own tokenizer, or set `vocab_size` (resize the embedding) to the tokenizer's size",
        pattern=r"IndexError: index out of range in self|the tokenizer `[^`]*` has no end-of-text token"
        r"|token id \d+ .*vocab(?:_size|ulary)|vocabulary of \d+ .*tokeni[sz]er",
    ),
    Rule(
        id="checkpoint-shape",
        title="the checkpoint belongs to another model",
        cause="its tensors have other shapes or names than the model's: {what}",
        remedy=("use the model settings that it was written with, or another checkpoint folder; a new run needs a new folder"),
        unless=("current model is torch.Size([0])",),  # sharded by ZeRO-3
        pattern=(
            r"Error\(s\) in loading state_dict for \w+:\n(?:[^\n]*\n){0,12}?\s*size mismatch for "
            r"(?P<what>[\w.]+: copying a param with shape [^\n]*)"
            r"|Error\(s\) in loading state_dict for \w+:\n\s*(?P<what7>(?:Missing|Unexpected) key[^\n]{0,160})"
            r"|size mismatch for (?P<what8>[\w.]+(?:: copying a param with shape [^\n]*)?)"
            r"|Size mismatch between saved .* for (?P<what2>[\w.]+)"
            r"|Error\(s\) in loading state_dict for (?P<what3>\w+)|Missing key in checkpoint state_dict: (?P<what4>[\w.]+)"
            r"|the pretrained `(?P<what5>[^`]*)` has shape|the pretrained weights have no `(?P<what6>[^`]*)`"
            r"|Global shape mismatch for loaded (?P<what9>[^\n]*)"
            r"|(?P<what10>\w{1,60} value from checkpoint \([^\n]{0,200}\) is not equal[^\n]*)"
        ),
    ),
    Rule(
        id="checkpoint-damaged",
        title="the checkpoint is incomplete or damaged",
        cause="it was not written completely (the pod was stopped, or the disk was full), or some of its files are gone",
        remedy="remove the damaged folder to resume from the one before; kfjob's trainer loads only complete checkpoints",
        pattern=r"failed reading zip archive|checkpoint `[^`]*` is damaged|\[Errno 2\] .*\.metadata'"
        r"|SafetensorError|incomplete metadata|invalid header or archive is corrupted"
        r"|No such file or directory: ['\"][^'\"]*(?:-\d{5}-of-\d{5}\.|__\d+_\d+\.distcp|mp_rank_\d+)",
    ),
    Rule(
        id="dataset-folder",
        title="`{path}` is no data set that `datasets.load_from_disk()` can read",
        cause="the folder was not written by `save_to_disk()`, only in part, or is the parent of the data set's folder",
        remedy="pass the folder that holds dataset_info.json or dataset_dict.json; use `load_dataset()` for raw files",
        pattern=r"Directory (?P<path>\S+) is neither a `Dataset` directory",
    ),
    Rule(
        id="sample-empty",
        title="a sample of the data set has no value (None) where the program needs one",
        cause=(
            "a field of the row is empty, the column is missing, or a file of the sample could not be read (`cv2.imread` then "
            "returns None)"
        ),
        remedy="find the row (load the data set without worker processes), and fill it or remove it (`Dataset.filter`)",
        pattern=r"argument of type 'NoneType' is not iterable|'NoneType' object (?:is not|has no attribute)"
        r"|object of type 'NoneType' has no len|not \"NoneType\"|NoneType found|not NoneType|and 'NoneType'",
        stack=("datasets/arrow_dataset.py", "multiprocess/pool.py", "_utils/fetch.py", "_utils/collate.py"),
        role=Role.SUSPECT,
    ),
    Rule(
        id="text-encoding",
        title="the program cannot print or write a character in the container's locale",
        cause="Python uses ASCII there, because the image sets no UTF-8 locale",
        remedy="set `PYTHONUTF8=1` and `LANG=C.UTF-8` in `env`, or pass `encoding='utf-8'` to `open()`",
        pattern=r"Unicode(?:En|De)codeError: 'ascii' codec",
    ),
    Rule(
        id="file-not-found",
        futile_after=2,
        title="`{path}` does not exist",
        cause="the program opens a file or folder that does not exist: a volume is not mounted, or is mounted elsewhere",
        remedy="compare `volumes` with the path; `kfjob render` shows the mount paths",
        local_remedy="check the path on this machine; for a path in one of the `volumes`, check its `host_path`",
        pattern=r"FileNotFoundError: (?:\[Errno 2\] )?No such file or directory: ['\"](?P<path>[^'\"]*)['\"]",
    ),
)
