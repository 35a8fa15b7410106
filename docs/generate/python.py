"""The page of the Python names: signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum

import kfjob
from kfjob import aio

_INTRODUCTION = """\
# Python

```python
from kfjob import JobSpec, attach, list_jobs, submit

spec = JobSpec(name="hello", nodes=2, processes_per_node=1, command=["python", "-c", "print('hello from a rank')"])
run = submit(spec, backend="local", replace=True)
run.wait(check=True)  # raises JobFailed with the cause, or JobStopped
for line in run.logs():
    print(line)
print([job.name for job in list_jobs(backend="local")], attach("hello", backend="local"))
run.stop()
```

The names on this page are public, and `from kfjob import NAME` imports each of them. A name that begins with an underscore, and
every module below `kfjob`, may change between versions. Fields of `JobSpec` and its parts: [spec.md](spec.md).

All functions raise subclasses of `KfjobError`. An error has `title`, `location`, `cause` and `hint`, and `exit_code` is the
[exit code](exit-codes.md) of the command line.

## Coroutines

`kfjob.aio` has {coroutines}, and a `Run` whose methods are coroutines or asynchronous
iterators. The calls run in worker threads. Cancelling a call stops the waiting and leaves the job alone.

```python
import asyncio

from kfjob import JobSpec, aio


async def main() -> None:
    spec = JobSpec(name="hello-again", processes_per_node=1, command=["python", "-c", "print('hello')"])
    run = await aio.submit(spec, backend="local", replace=True)
    print(await run.wait(check=True))
    await run.stop()


asyncio.run(main())
```
"""

WIDTH = 100


def format_page() -> str:
    """Return the whole page as Markdown."""
    public = {name: getattr(kfjob, name) for name in sorted(dir(kfjob), key=str.lower) if name != "__version__"}
    functions = {name: value for name, value in public.items() if inspect.isfunction(value)}
    errors = {name: value for name, value in public.items() if _is_error(value)}
    classes = {name: value for name, value in public.items() if name not in functions and name not in errors}
    lines = [_INTRODUCTION.format(coroutines=_list_coroutines())]
    lines += ["## Functions", "", *(line for name, value in functions.items() for line in _format_function(name, value))]
    lines += ["## Run", "", *_format_class(classes.pop("Run"))]
    lines += ["## Other classes", "", "| name | purpose |", "| --- | --- |"]
    lines += [f"| `{name}` | {_summarize(value)} |" for name, value in classes.items()]
    lines += ["", "## Errors", "", "| name | exit code | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {value.exit_code} | {_summarize(value)} |" for name, value in errors.items()]
    return "\n".join(lines) + "\n"


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, kfjob.KfjobError)


def _list_coroutines() -> str:
    names = [name for name, value in vars(aio).items() if inspect.iscoroutinefunction(value) and not name.startswith("_")]
    return ", ".join(f"`{name}`" for name in sorted(names))


def _format_function(name: str, function: Callable[..., object], level: str = "###") -> Iterator[str]:
    text = inspect.cleandoc(inspect.getdoc(function) or "")
    yield from (f"{level} {name}", "", "```text", _format_signature(name, inspect.signature(function)), "", text, "```", "")


def _format_signature(name: str, signature: inspect.Signature) -> str:
    """Return the signature on one line, or with a line for each parameter. A function as a default is shown by its name."""
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    text = str(signature.replace(parameters=parameters)).replace("'", "")
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    if len(name + text) <= WIDTH:
        return name + text
    inner, _, result = text.removeprefix("(").rpartition(") -> ")
    lines = "".join(f"    {part},\n" for part in re.split(r", (?=\w+:|\*)", inner))
    return f"{name}(\n{lines}) -> {result}"


def _format_class(cls: type) -> Iterator[str]:
    yield from (inspect.cleandoc(cls.__doc__ or ""), "", "| attribute | meaning |", "| --- | --- |")
    members = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
    for name, value in members.items():
        if isinstance(value, property):
            yield f"| `{name}` | {_summarize(value)} |"
    yield ""
    for name, value in members.items():
        if inspect.isfunction(value):
            yield from _format_function(name, value)


def _summarize(value: object) -> str:
    """Return the first sentence of the docstring on one line."""
    text = inspect.cleandoc(getattr(value, "__doc__", "") or "").partition("\n\n")[0].replace("\n", " ")
    if isinstance(value, type) and issubclass(value, Enum):
        text += f" Values: {', '.join(f'`{member}`' for member in value)}."
    return text.replace("|", "\\|")
