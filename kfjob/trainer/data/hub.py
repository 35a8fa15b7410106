"""A split of a data set of the Hugging Face hub, streamed.

Lanes are runs of the split's shards (files; row groups where there are fewer files than lanes). `datasets` resumes a plain
stream exactly, though not a shuffled one: so it only streams here, and the lanes shuffle.
"""

from __future__ import annotations

from typing import Any

from kfjob.errors import KfjobError
from kfjob.trainer.data.source import Pick, Reader, Target, picked
from kfjob.trainer.hub import said


class HubSplit:
    """Records of a split; a place is the state that `datasets` keeps of a stream."""

    def __init__(self, repository: str, config: str | None, split: str, *, revision: str | None, pick: Pick) -> None:
        """Ask the hub which files there are.

        Raises:
            KfjobError: `datasets` is not there, or the hub has no such split, or cannot be reached.
        """
        try:
            import datasets
        except ImportError as error:
            hint = "pip install datasets; or tokenise it elsewhere: kfjob-tokenize"
            raise KfjobError(
                f"`{repository}` is no folder, and the hub is read by `datasets`", location="data", hint=hint
            ) from error
        self.name, self.pick = f"`{repository}` on the hub", pick
        try:
            self._stream = datasets.load_dataset(repository, config, split=split, revision=revision, streaming=True)
        except Exception as error:  # the library's and its transports' have no common ancestor
            raise KfjobError(
                f"cannot open the split `{split}` of `{repository}`{f' ({config})' if config else ''}",
                location="data",
                cause=f"no such folder or file, and the hub says: {said(error)}",
                hint="`data_config` and `data_split` name what is read; HF_ENDPOINT and HF_TOKEN say where and as whom",
            ) from error
        self.identity: dict[str, Any] = {"kind": "hub", "repository": repository, "config": config, "split": split}
        self.identity |= {"revision": revision} if revision else {}

    def lanes(self, wanted: int) -> int:
        """Not more than there are shards."""
        if self._stream.num_shards < wanted and hasattr(self._stream, "reshard"):
            self._stream = self._stream.reshard()
        return max(divisor for divisor in range(1, wanted + 1) if wanted % divisor == 0 and divisor <= self._stream.num_shards)

    def read(self, lane: int, lanes: int, place: Target) -> Reader:
        """The records of a lane."""
        stream = self._stream.shard(lanes, lane)
        if place is not None:
            stream.load_state_dict(place)
        return _Records(self, stream, place)


class _Records(Reader):
    def __init__(self, split: HubSplit, stream: Any, place: Target) -> None:
        self._split, self._stream, self._begin = split, stream, place
        self._records, self._count = iter(stream), 0

    @property
    def place(self) -> Target:
        return self._stream.state_dict() if self._count else self._begin

    def __next__(self) -> Any:
        while True:
            record = self._record()
            self._count += 1
            if (item := picked(self._split.pick, record, lambda: f"a record of {self._split.name}")) is not None:
                return item

    def _record(self) -> Any:
        try:
            return next(self._records)
        except StopIteration:
            raise
        except Exception as error:  # of the library, its file formats and its transports
            raise KfjobError(f"cannot go on reading {self._split.name}", cause=f"{type(error).__name__}: {error}") from error
