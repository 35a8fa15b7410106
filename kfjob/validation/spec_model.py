"""The base class of every part of a spec, and the error that its validators raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticKnownError
from pydantic_core.core_schema import no_info_before_validator_function

from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import IMPOSSIBLE, NO_HOLDER, describe_impossible
from kfjob.validation.field_paths import Path, join_path

_Init = TypeVar("_Init", bound=Callable[..., None])
_Model = TypeVar("_Model", bound=BaseModel)


def _for_direct_calls_only(init: _Init) -> _Init:
    """Mark an `__init__` as pydantic marks its own, so that the validation of a nested model does not call it.

    pydantic 2.14 `_internal/_model_construction.py` reads the mark when it creates a class. Without it pydantic-core would call
    `__init__` for every nested model, which is slow, and the first error would end the validation.
    """
    vars(init)["__pydantic_base_init__"] = True
    return init


_TRUTH_VALUE_ERRORS: Mapping[Any, Literal["int_type", "float_type"]] = {"int": "int_type", "float": "float_type"}
_SCHEMA_PARTS = ("schema", "fields", "items_schema", "keys_schema", "values_schema", "choices")
"""The keys of pydantic's schemas below which their parts stand."""


def _refuse_truth_values(schema: Any) -> None:
    """Change a schema of pydantic in place, so that `True` is no value of an `int` or a `float`. A model changes its own."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _refuse_truth_values(part)
    elif isinstance(schema, dict) and (kind := _TRUTH_VALUE_ERRORS.get(schema.get("type"))):
        number = dict(schema)
        schema.clear()
        schema.update(no_info_before_validator_function(partial(_refuse_truth_value, kind), number))
    elif isinstance(schema, dict) and schema.get("type") != "model":
        parts = schema.values() if "type" not in schema else (schema[key] for key in _SCHEMA_PARTS if key in schema)
        for part in parts:
            _refuse_truth_values(part)


def _refuse_truth_value(kind: Literal["int_type", "float_type"], value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError(kind)
    return value


class SpecModel(BaseModel):
    """A frozen part of a spec. It rejects unknown fields, and reports every problem of its values as one `SpecError`.

    `true` is no number, unlike in pydantic: YAML also reads `yes` and `on` as true.

    The modules of models have no `from __future__ import annotations`: pydantic would compile the text of each annotation,
    which takes a twentieth of the time of `kfjob render`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)

    @_for_direct_calls_only
    def __init__(self, /, **fields: Any) -> None:
        """Validate the fields.

        Raises:
            SpecError: a field is unknown, missing or has an invalid value; it holds all of these problems.
        """
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(_make_problems(error, type(self))) from None
        check_texts(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        """Return pydantic's schema of the model, whose numbers refuse truth values."""
        schema = handler(source)
        model: Any = handler.resolve_ref_schema(schema)
        while model["type"] != "model":  # validators of the whole model stand around it
            model = model["schema"]
        _refuse_truth_values(model["schema"])
        return schema

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Validate a mapping of fields, or another object that pydantic accepts.

        Raises:
            SpecError: as `__init__`.
        """
        try:
            model = super().model_validate(obj, **options)
        except ValidationError as error:
            raise SpecError(_make_problems(error, cls)) from None
        check_texts(model)
        return model

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Validate a JSON text.

        Raises:
            SpecError: the text is not JSON, or as `__init__`.
        """
        try:
            model = super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise SpecError(_make_problems(error, cls)) from None
        check_texts(model)
        return model

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with the fields of `update`, validated as a new model is. pydantic's own method validates nothing.

        Raises:
            SpecError: as `__init__`.
        """
        copy = super().model_copy(deep=deep)
        if not update:
            return copy
        return self.model_validate({name: getattr(copy, name) for name in copy.model_fields_set} | dict(update))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Return the fields that were set, because the defaults of a job fill a page, without secrets."""
        from kfjob.redaction import Redactor  # takes a while to import, and most programs print no spec

        redactor = Redactor()
        for name, value in super().__repr_args__():
            if name in self.model_fields_set:
                shown = redactor.value({name: value})[name] if isinstance(value, str | dict | tuple) else value
                yield name, tuple(shown) if isinstance(value, tuple) else shown


def _make_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    from kfjob.validation.pydantic_errors import make_problems  # needed for an error only

    return make_problems(list_errors(error), model)


def field_error(kind: str, message: str, **context: Any) -> PydanticCustomError:
    """Return an error with kfjob's own message for a validator to raise.

    The context may hold `path` (another field that the error is about), `detail` and `hint`.
    """
    encodable = message.encode(errors="backslashreplace").decode()  # a value in it can have half of a surrogate pair
    # pydantic-core replaces the names of the context in this order, so braces of the message stay as they are
    return PydanticCustomError(kind, "{message}", {**context, "message": encodable})


class FieldProblem(Struct, frozen=True, kw_only=True):
    """A problem with the combination of a model's fields."""

    field: str
    """The field of the model that the problem is about, with dots for a field of a section; "" for the model itself."""
    title: str
    detail: str | None = None
    hint: str | None = None


def field_errors(problems: Sequence[FieldProblem]) -> PydanticCustomError:
    """Return one error with all problems for a validator of a whole model to raise; `list_errors` separates them."""
    return PydanticCustomError("field_problems", "several fields do not fit together", {"problems": tuple(problems)})


def list_errors(error: ValidationError) -> list[ErrorDetails]:
    """Return pydantic's errors, with one entry for each problem of `field_errors`."""
    return [entry for detail in error.errors(include_url=False) for entry in _separate(detail)]


def _separate(detail: ErrorDetails) -> Iterator[ErrorDetails]:
    if detail["type"] != "field_problems":
        yield detail
        return
    for problem in detail["ctx"]["problems"]:
        context = {name: text for name, text in (("detail", problem.detail), ("hint", problem.hint)) if text}
        location = (*detail["loc"], *problem.field.split(".")) if problem.field else detail["loc"]
        yield ErrorDetails(type="field_problem", loc=location, msg=problem.title, input=detail["input"], ctx=context)


def validate_fields(model: type[_Model], fields: object) -> _Model:
    """Validate fields and let pydantic's own error through, for a caller that knows where in a text each field stands.

    Raises:
        ValidationError: a field is unknown, missing or has an invalid value.
    """
    validated: _Model = model.__pydantic_validator__.validate_python(fields)
    return validated


def check_texts(model: BaseModel) -> None:
    """Refuse texts that no program, file or Kubernetes object can hold. A spec in YAML was checked when it was read.

    Raises:
        SpecError: a text in a field holds NUL or half of a surrogate pair; it holds all of these problems.
    """
    if problems := [
        Problem(title=f"a text holds {character}", path=join_path(path), detail=NO_HOLDER)
        for path, character in _find_impossible(model, ())
    ]:
        raise SpecError(problems)


def _find_impossible(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        if match := IMPOSSIBLE.search(value):
            yield path, describe_impossible(match[0])
    elif isinstance(value, BaseModel | Mapping):
        for name, item in value.__dict__.items() if isinstance(value, BaseModel) else value.items():
            if isinstance(name, str) and (match := IMPOSSIBLE.search(name)):
                yield path, describe_impossible(match[0])
            else:
                yield from _find_impossible(item, (*path, name))
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield from _find_impossible(item, (*path, index))
