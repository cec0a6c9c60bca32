"""A loader, valid files for it, and what happens when it opens a bent one."""

import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from rewardlab.rm.errors import CheckFailed, DataError, UsageError

from tests.fuzzing.mutate import mutated
from tests.fuzzing.shapes import Shape, bent

OURS = (UsageError, DataError, CheckFailed)
DEADLINE = 5.0  # seconds of this process's CPU for one file of at most `mutate.LARGEST` bytes
PATIENCE = 12  # times that the deadline may pass by the clock: a loader may sleep, others may use the processor
MEMORY = 256  # MiB that one file may add to the largest size of the process
FORBIDDEN = ("socket.connect", "socket.bind", "subprocess.Popen", "os.system", "os.exec", "os.remove", "os.rename")
FORBIDDEN += ("pickle.find_class",)
LISTENERS: list[list[str]] = []
PACKAGE = str(Path(__file__).resolve().parents[2])


class Target(NamedTuple):
    """What is fuzzed under a name: one file in a folder, which is next to others, and what opens it."""

    name: str
    file: str
    seeds: tuple[bytes, ...]  # valid files
    opens: Callable[[Path], object]
    shape: Shape | None = None  # how its values can be bent; None: only its bytes
    beside: Mapping[str, bytes] = {}  # the folder's other files


class Outcome(NamedTuple):
    """What became of a bent file: opened, refused with a sentence of ours, or a failure and the line where it is."""

    kind: str  # opened, refused or failed
    why: str = ""
    place: str = ""


class _TooSlow(BaseException):
    """The deadline has passed."""


def bent_file(target: Target, seed: int, number: int) -> bytes:
    """The bent file of this number: the same in every process and at any time."""
    random = Random(f"{seed}/{target.name}/{number}")
    data = random.choice(target.seeds)
    if target.shape is not None and random.random() < 0.6:
        by_value = bent(data, target.shape, random)
        if by_value is not None:
            return by_value
    return mutated(data, random, target.seeds)


def prepare(target: Target, folder: Path) -> Path:
    """The folder with everything but the bent file, whose path is returned."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in target.beside.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / target.file).parent.mkdir(parents=True, exist_ok=True)
    return folder / target.file


def attempt(target: Target, data: bytes, path: Path, deadline: float = DEADLINE) -> Outcome:
    """Open one bent file under the law: our errors only, in time, in little memory, nothing written or called."""
    path.write_bytes(data)
    before, size = _listing(path), _peak()
    try:
        with _alarm(deadline), _watched() as acts:
            target.opens(path)
        outcome = Outcome("opened")
    except OURS as error:
        outcome = Outcome("refused", str(error)) if str(error).strip() else Outcome("failed", "no sentence", "")
    except _TooSlow as error:
        outcome = Outcome("failed", f"took longer than {deadline:g} s", _place(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of a Rust library is none of Exception
        outcome = Outcome("failed", f"{type(error).__name__}: {str(error)[:200]}", _place(error))
    if acts:
        return Outcome("failed", acts[0], acts[0])
    if _listing(path) != before:
        return Outcome("failed", "a file was written or changed", target.name)
    if (grown := _peak() - size) > MEMORY:
        return Outcome("failed", f"took {grown:.0f} MiB of memory", f"memory of {target.name}")
    return outcome


def _listing(path: Path) -> list[tuple[str, int, int]]:
    root = path.parent
    found = ((str(one.relative_to(root)), one.stat()) for one in root.rglob("*") if one.is_file())
    return sorted((name, state.st_size, state.st_mtime_ns) for name, state in found)


def _peak() -> float:
    """MiB of the process at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _place(error: BaseException) -> str:
    """The innermost line of ours on the way to the error, outside of the fuzzer."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(PACKAGE)]
    inner = [one for one in frames if "fuzzing" not in Path(one.filename).parts[-3:]] or frames
    file = Path(inner[-1].filename).relative_to(PACKAGE) if inner else "?"
    return f"{file}:{inner[-1].lineno if inner else 0} {type(error).__name__}"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _TooSlow

    before = {number: signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Files opened for writing, connections and programs started, where Python does them."""
    _install()
    acts: list[str] = []
    LISTENERS.append(acts)
    try:
        yield acts
    finally:
        LISTENERS.clear()


@cache
def _install() -> None:
    """Once: a hook cannot be taken away again."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for acts in LISTENERS:
        if event == "open" and _writes(arguments):
            acts.append(f"opened {arguments[0]} for writing")
        elif event in FORBIDDEN:
            acts.append(f"{event} {str(arguments)[:100]}")


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, mode = arguments[0], arguments[1] or ""
    return any(letter in mode for letter in "wax+") and path != "/dev/null" and not str(path).endswith(".pyc")
