"""What an injection is, and the list that every family adds its own to."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.faults.programs import Ended

if TYPE_CHECKING:
    from tests.faults.world import World


class Seen(NamedTuple):
    """What came of a fault: the sentence and the exit code that the user saw, and whether each promise held."""

    sentence: str
    code: int
    held: dict[str, bool]


class Injection(NamedTuple):
    """A fault, what it is in words, what "nothing lost" means there, and the function that does it."""

    name: str
    family: str
    injected: str
    promise: str
    run: "Callable[[World], Seen]"


QUIET = "(nothing: it does as always)"
INJECTIONS: dict[str, Injection] = {}


def injection(promise: str) -> "Callable[[Callable[[World], Seen]], Callable[[World], Seen]]":
    """Add a function to the list under its name, with hyphens; its docstring is the fault in words."""

    def add(function: "Callable[[World], Seen]") -> "Callable[[World], Seen]":
        name, family = function.__name__.replace("_", "-"), function.__module__.rpartition(".")[2]
        INJECTIONS[name] = Injection(name, family, str(function.__doc__).rstrip("."), promise, function)
        return function

    return add


def add_table(family: str, promise: str, run: "Callable[..., Seen]", rows: dict[str, tuple]) -> None:
    """Add an injection for each row: its fault in words, and what `run` takes after the world and the name."""
    for name, (words, *arguments) in rows.items():
        inject = partial(_run_row, run, name, arguments)
        INJECTIONS[name] = Injection(name, family, words, promise, inject)


def _run_row(run: "Callable[..., Seen]", name: str, arguments: list[Any], world: "World") -> Seen:
    return run(world, name, *arguments)


def seen(ended: Ended, words: tuple[str, ...], code: int, **held: bool) -> Seen:
    """The line with one of the words; it, the exit code and the absence of a traceback are promises everywhere.

    Without words nothing is to be said: the program does as always.
    """
    quiet = not words and ended.code == code
    sentence = QUIET if quiet else ended.sentence(*words)
    always = {
        f"exit code {code}": ended.code == code,
        "said in a sentence": quiet or any(word in sentence for word in words),
        "no traceback": not ended.traceback,
    }
    return Seen(sentence, ended.code, always | {name.replace("_", " "): bool(one) for name, one in held.items()})
