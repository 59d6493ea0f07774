"""The parameters of a verb that a command line states.

For each parameter typer builds a validator, current versions with pydantic, whether it is given or
not: a third of the time of a short verb. So typer gets only the parameters that the words of the
command line may state; the others have the defaults of the verb's function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo


def declared(
    made: Callable[..., int], verb: Callable[..., int], parameters: Sequence[inspect.Parameter]
) -> Callable[..., int]:
    """Give a function the name and the help of a verb, and these parameters."""
    made.__name__ = verb.__name__
    made.__doc__ = verb.__doc__
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made.__annotations__ = {each.name: each.annotation for each in parameters}
    return made


def with_stated(
    verb: Callable[..., Any], words: Collection[str] | None, *, names: int = 0
) -> Callable[..., Any]:
    """Return a verb with only those of its parameters that these words may state.

    None stands for all words. The first `names` words that are not options are those of the verb.
    """
    if words is None:
        return verb
    parameters = inspect.signature(verb, eval_str=True).parameters.values()
    has_arguments = "--" in words or sum(map(_is_argument, words)) > names

    def called(**given: Any) -> Any:  # noqa: ANN401 (typer passes what it has parsed)
        return verb(**given)

    kept = [each for each in parameters if _may_state(each, words, has_arguments=has_arguments)]
    return declared(called, verb, kept)


def asks_help(words: Collection[str]) -> bool:
    """Return whether words may ask for help."""
    return any(_has_flag(flag, words) for flag in ("-h", "--help"))


def _is_argument(word: str) -> bool:
    return word == "-" or not word.startswith("-")


def _may_state(
    parameter: inspect.Parameter, words: Collection[str], *, has_arguments: bool
) -> bool:
    """Return whether words may state a parameter: rather one too many than one too few."""
    if parameter.default is inspect.Parameter.empty:
        return True
    info = info_of(parameter)
    if isinstance(info, OptionInfo):
        return any(_has_flag(flag, words) for flag in flags_of(parameter, info))
    return has_arguments


def _has_flag(flag: str, words: Collection[str]) -> bool:
    """Return whether a word is a long flag, or contains a short one, which may be combined."""
    if flag.startswith("--"):
        return any(word.partition("=")[0] == flag for word in words)
    return any(flag[1] in word for word in words if word.startswith("-") and word[1:2] != "-")


def info_of(parameter: inspect.Parameter) -> ArgumentInfo | OptionInfo | None:
    """Return what a parameter declares to typer; None for the context."""
    if get_origin(parameter.annotation) is not Annotated:
        return None
    info = get_args(parameter.annotation)[1]
    return info if isinstance(info, ArgumentInfo | OptionInfo) else None


def flags_of(parameter: inspect.Parameter, info: OptionInfo) -> tuple[str, ...]:
    """Return the flags of an option, short ones first."""
    # in Annotated[] the first declaration arrives in the place of the default
    first = (info.default,) if isinstance(info.default, str) else ()
    stated = (*first, *(info.param_decls or ())) or (f"--{dashed(parameter.name)}",)
    return tuple(sorted(stated, key=lambda flag: flag.startswith("--")))


def flags_of_verb(verb: Callable[..., Any]) -> list[str]:
    """Return all flags of a verb, also those that no word states."""
    parameters = inspect.signature(verb, eval_str=True).parameters.values()
    infos = ((each, info_of(each)) for each in parameters)
    return [
        flag
        for each, info in infos
        if isinstance(info, OptionInfo)
        for flag in flags_of(each, info)
    ]


def dashed(name: str) -> str:
    """Return the name of a parameter as the command line has it."""
    return name.strip("_").replace("_", "-")
