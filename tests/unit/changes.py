"""Values of which any part may be changed or missing, for tests of what other programs write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


def change(value: Any, path: tuple[Any, ...], wrong: Any, *, remove: bool = False) -> Any:
    """Return a copy of the value with another part, or without it."""
    if not path:
        return wrong
    copy = value.copy()
    if len(path) == 1 and remove:
        del copy[path[0]]
    else:
        copy[path[0]] = change(value[path[0]], path[1:], wrong, remove=remove)
    return copy


def changes(value: Any, wrong: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """Return the value with one part removed or replaced by one of the wrong ones."""
    return st.builds(
        lambda path, part, remove: change(value, path, part, remove=remove),
        st.sampled_from(list(paths(value))),
        st.sampled_from(wrong),
        st.booleans(),
    )
