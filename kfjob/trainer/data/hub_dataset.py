"""A split of a data set of the Hugging Face hub, streamed.

A lane reads some of the split's shards (files, or row groups if there are fewer files than lanes). `datasets` resumes a plain
stream exactly, but not a shuffled one. So it only streams here, and the lanes shuffle.
"""

from __future__ import annotations

from typing import Any

from kfjob.base.errors import KfjobError, Unreachable
from kfjob.trainer.data.records import Extract, Offset, Reader, extract_record
from kfjob.trainer.hub import first_line


class HubSplit:
    """The records of a split; an offset is the stream state of `datasets`."""

    def __init__(self, repository: str, config: str | None, split: str, *, revision: str | None, extract: Extract) -> None:
        """Ask the hub for the files of the split.

        Raises:
            KfjobError: `datasets` is not installed, the hub has no such split, or the hub is unreachable.
        """
        try:
            import datasets
        except ImportError as error:
            hint = "run `pip install datasets`, or tokenise the data on another machine with `kfjob-tokenize`"
            raise KfjobError(
                f"`{repository}` is not a folder, and reading it from the hub needs `datasets`", location="data", hint=hint
            ) from error
        self.name, self.extract = f"`{repository}` on the hub", extract
        try:
            self._stream = datasets.load_dataset(
                repository, config, split=split, revision=revision, streaming=True, trust_remote_code=False
            )
        except Exception as error:  # the library and its transports share no base class
            raise Unreachable(
                f"cannot open the split `{split}` of `{repository}`{f' ({config})' if config else ''}",
                location="data",
                cause=f"no such folder or file, and the hub answers: {first_line(error)}",
                hint="check `data_config` and `data_split`; HF_ENDPOINT selects the hub, HF_TOKEN the account",
            ) from error
        self.identity: dict[str, Any] = {"kind": "hub", "repository": repository, "config": config, "split": split}
        self.identity |= {"revision": revision} if revision else {}

    def lane_count(self, requested: int) -> int:
        """Return the largest divisor of `requested` that does not exceed the number of shards."""
        if self._stream.num_shards < requested and hasattr(self._stream, "reshard"):
            self._stream = self._stream.reshard()
        divisors = (divisor for divisor in range(1, requested + 1) if requested % divisor == 0)
        return max(divisor for divisor in divisors if divisor <= self._stream.num_shards)

    def read(self, lane: int, lanes: int, offset: Offset) -> Reader:
        """Read the records of a lane."""
        stream = self._stream.shard(lanes, lane)
        if offset is not None:
            stream.load_state_dict(offset)
        return _StreamReader(self, stream, offset)


class _StreamReader(Reader):
    def __init__(self, split: HubSplit, stream: Any, offset: Offset) -> None:
        self._split, self._stream, self._begin = split, stream, offset
        self._records, self._count = iter(stream), 0

    @property
    def offset(self) -> Offset:
        return self._stream.state_dict() if self._count else self._begin

    def __next__(self) -> Any:
        while True:
            record = self._read_record()
            self._count += 1
            item = extract_record(self._split.extract, record, lambda: f"a record of {self._split.name}")
            if item is not None:
                return item

    def _read_record(self) -> Any:
        try:
            return next(self._records)
        except StopIteration:
            raise
        except Exception as error:  # of the library, its file formats and its transports
            raise KfjobError(f"cannot continue to read {self._split.name}", cause=f"{type(error).__name__}: {error}") from error
