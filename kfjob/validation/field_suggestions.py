"""What an unknown field of a spec probably means."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from kfjob.base.capabilities import find_name
from kfjob.base.text import snake_case
from kfjob.validation.field_paths import Path, join_path, parse_path
from kfjob.validation.model_fields import find_model, find_root_model, list_fields, walk_fields
from kfjob.validation.script_arguments import SCRIPT_ARGUMENTS
from kfjob.validation.synonyms import HINTS, TRAIN_HINTS, map_words

_SIMILAR, _VERY_SIMILAR, _NEARLY_EQUAL = 0.6, 0.8, 0.85
"""The similarity that a field of the same mapping needs, that any other name needs, and that is a typing error."""
_MAX_CHOICES = 3
"""Fields that the hint for an unknown field names."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """What an unknown name may mean."""

    hint: str
    field: Path | None = None
    """The only field with the meaning below the same root; None without a field or with several."""
    is_explained: bool = False
    """Whether the hint is an explanation of this name, such as why there is no such field."""


def suggest_field(path: Path, root: type[BaseModel], *, value: object = None) -> Suggestion:
    """Return the meaning of the unknown field at a path below `root`: a job spec, or a part of one.

    The `value` of the field decides where a name has two meanings, such as `backend`.
    """
    if path[-1] == "backend" and (name := find_name(value)):
        return Suggestion(hint=f'use the option `--backend {name}`, or write `backend = "{name}"` in kfjob.toml')
    return _suggest_section(str(path[-1]), path[:-1], root) or _suggest_name(path, root)


def _suggest_name(path: Path, root: type[BaseModel]) -> Suggestion:
    word, model = snake_case(str(path[-1])), find_model(root, path[:-1])
    section = _find_section(root) + path[:-1]
    fields = sorted(model.model_fields) if model else []
    is_known = word in (TRAIN_HINTS if section[:1] == ("train",) else HINTS)
    if not is_known and (similar := difflib.get_close_matches(word, fields, n=1, cutoff=_NEARLY_EQUAL)):
        return _suggest([(*section, similar[0])], root, "did you mean {}?")
    if suggestion := _suggest_known_name(word, section, model, root):
        return suggestion
    names = {**dict.fromkeys(_list_known_names(section, model)), **dict.fromkeys(fields)}
    if similar := difflib.get_close_matches(word, fields, n=1, cutoff=_SIMILAR):
        closer = difflib.get_close_matches(word, [*names], n=1, cutoff=_SIMILAR)
        if closer[0] in fields or difflib.SequenceMatcher(None, word, closer[0]).ratio() < _VERY_SIMILAR:
            return _suggest([(*section, similar[0])], root, "did you mean {}?")
    if similar := difflib.get_close_matches(word, [*names], n=1, cutoff=_VERY_SIMILAR):
        if similar[0] in SCRIPT_ARGUMENTS and getattr(model, "takes_script_arguments", False):
            return Suggestion(hint=f"did you mean `{join_path((*path[:-1], similar[0]))}`?")
        suggestion = _suggest_known_name(similar[0], section, model, root)
        return suggestion or _suggest([(*section, similar[0])], root, "did you mean {}?")
    return Suggestion(hint=f"the fields are {', '.join(fields)}")


def _suggest_section(name: str, parents: Path, root: type[BaseModel]) -> Suggestion | None:
    """Return how to write the path of a field, such as `resources.gpus`, that stands in place of a name."""
    *sections, field = names = [part.strip() for part in name.split(".")]
    inner = find_model(root, (*parents, *sections))
    if not sections or inner is None or field not in inner.model_fields:
        return None
    text = f"{': {'.join(names)}: …" + "}" * len(sections)
    return Suggestion(hint=f"write `{text}`", field=(*parents, *names))


def _suggest_known_name(word: str, section: Path, model: type[BaseModel] | None, root: type[BaseModel]) -> Suggestion | None:
    """Return the meaning of a name that a table or the schema has."""
    is_training = section[:1] == ("train",)
    if row := (TRAIN_HINTS.get(word) if is_training else HINTS.get(word)):
        return _suggest_by_hint(row, root)
    if getattr(model, "takes_script_arguments", False) and (argument := SCRIPT_ARGUMENTS.get(word)):
        if argument.result[0] != "`":
            return Suggestion(hint=f"`{word}`: {argument.meaning}", is_explained=True)
        return _suggest([("train", *parse_path(argument.result.strip("`")))], root, "use {}")
    paths = [parse_path(field)] if (field := map_words().get(word)) else list(list_fields(find_root_model()).get(word, ()))
    if 0 < len(paths) <= _MAX_CHOICES:
        return _suggest(paths, root, "use {}")
    return _suggest_by_hint(HINTS[word], root) if word in HINTS else None


def _list_known_names(section: Path, model: type[BaseModel] | None) -> Iterator[str]:
    yield from map_words()
    yield from HINTS
    yield from (name for name, paths in list_fields(find_root_model()).items() if len(paths) <= _MAX_CHOICES)
    if section[:1] == ("train",):
        yield from TRAIN_HINTS
    if getattr(model, "takes_script_arguments", False):
        yield from SCRIPT_ARGUMENTS


def _suggest_by_hint(row: tuple[str, str], root: type[BaseModel]) -> Suggestion:
    field, hint = row
    return Suggestion(hint=hint, field=_below(parse_path(field), root) if field else None, is_explained=True)


def _suggest(paths: list[Path], root: type[BaseModel], form: str) -> Suggestion:
    """Return a suggestion of fields of a job spec, as the users of `root` write them."""
    below = [_below(path, root) for path in paths]
    names = [f"`{join_path(inner or path)}`" for inner, path in zip(below, paths, strict=True)]
    elsewhere = " of the job spec" if below[0] is None else ""
    field = below[0] if len(paths) == 1 else None
    return Suggestion(hint=form.format(" or ".join(names) + elsewhere), field=field)


def _below(path: Path, root: type[BaseModel]) -> Path | None:
    """Return a path of a job spec as a path below `root`; None if it is outside."""
    section = _find_section(root)
    return path[len(section) :] if path[: len(section)] == section and len(path) > len(section) else None


def _find_section(root: type[BaseModel]) -> Path:
    """Return the path of a model in a job spec; () for the job spec itself and for the items of lists."""
    spec = find_root_model()
    if spec is None or root is spec:
        return tuple(getattr(root, "section", ()))
    return next((path for path in walk_fields(spec, ()) if find_model(spec, path) is root), ())
