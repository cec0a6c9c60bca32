"""The command line: `rewardlab VERB --config file.yaml --flag value`. On a terminal a verb ends with a summary."""

import codecs
import contextlib
import json
import os
import select
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..rm.errors import CheckFailed, DataError, UsageError, did_you_mean
from ..rm.io.checked_files import from_yaml
from ..rm.io.escaping import escape_terminal, redact, terminal_json
from .installation.libraries import explained_imports, quiet_libraries
from .runs.run_folder import COMMAND, PRINTS_JSON, RESULTS, to_json_types
from .runs.signals import ENDED, Terminated, ended_by_signal
from .settings.help import help_page
from .summary import summary_lines
from .verbs import RESEARCH, VERBS, Verb, import_name, split_verb

EXIT = {UsageError: 2, DataError: 3, CheckFailed: 5}
MESSAGE_LENGTH = 300  # characters of the message of an unexpected error
UNREAD = 128 + 13
"""Exit code where the reader of stdout has ended, as in `rewardlab --help | head -1`; 13 is SIGPIPE."""
SERVERS = ("serve", "inspect")  # they handle signals themselves


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code:

    0, 1 (an unexpected error), 2 (usage), 3 (data), 5 (a check failed), 130 (Ctrl-C in a server), 141 (stdout is a pipe
    whose reader has ended) or 143 (SIGTERM, or Ctrl-C in another verb).
    """
    command = list(sys.argv[1:] if argv is None else argv)
    _escape_unencodable()
    try:
        code = _main(command)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
        return UNREAD


def _main(command: list[str]) -> int:
    name, words = split_verb(command)
    try:
        if name in ("", "-h", "--help", "--help-all"):
            print(OVERVIEW.format("\n".join(f"  {verb:<13}{VERBS[verb].help}" for verb in VERBS)))
            return 0 if name else 2
        if name == "--version":
            print(f"rewardlab {version('rewardlab')}")
            return 0
        if name in RESEARCH:
            raise UsageError(f"the command '{name}' was removed; in a checkout, run {RESEARCH[name]} NAME")
        if name not in VERBS:
            raise UsageError(f"no command '{name}'; {did_you_mean(name, VERBS)}")
        if {"-h", "--help", "--help-all"} & {*words}:
            print(_help_text(name, VERBS[name], everything="--help-all" in words))
            return 0
        COMMAND.set(["rewardlab", *command])
        RESULTS.set(sys.stdout)
        PRINTS_JSON.set("--json" in words or not sys.stdout.isatty())
        ending = contextlib.nullcontext() if name in SERVERS else ended_by_signal()
        settings_words = words if name == "doctor" else [word for word in words if word != "--json"]
        with contextlib.redirect_stdout(sys.stderr), ending, explained_imports(), quiet_libraries():
            result = _run(name, VERBS[name], settings_words)
        if PRINTS_JSON.get():
            print(terminal_json(json.dumps(to_json_types(result), ensure_ascii=False)))
        else:
            print(escape_terminal("\n".join(summary_lines(name, to_json_types(result)))))
        return 0
    except tuple(EXIT) as error:
        print(escape_terminal(f"rewardlab {name}: {error}"), file=sys.stderr)
        return next(code for kind, code in EXIT.items() if isinstance(error, kind))
    except Terminated as error:
        print(f"rewardlab {name}: {error}", file=sys.stderr)
        return ENDED
    except KeyboardInterrupt:
        print(f"rewardlab {name}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _is_unread(sys.stdout):
            raise
        print(escape_terminal(f"rewardlab {name}: {_unexpected_error_message(name, error)}"), file=sys.stderr)
        return 1


def _is_unread(stream: Any) -> bool:
    """Return whether a stream is a pipe whose reader has ended."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _escape_unencodable() -> None:
    """Have stdout write what its encoding lacks as escapes of JSON, where it is not UTF-8."""

    def escape(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    if codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name != "utf-8":
        codecs.register_error("json_escapes", escape)
        sys.stdout.reconfigure(errors="json_escapes")  # pyright: ignore[reportAttributeAccessIssue]


def _unexpected_error_message(name: str, error: Exception) -> str:
    """Return a sentence about an unexpected error, and write the traceback to a file."""
    text = " ".join(str(error).split()) or "no message"
    sentence = f"{type(error).__name__}: {text[:MESSAGE_LENGTH]}{'...' if len(text) > MESSAGE_LENGTH else ''}"
    details = redact(["".join(traceback.format_exception(error))])[0]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"rewardlab-{name}-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(details)
    except OSError as unwritten:
        return f"{sentence}; its traceback could not be written ({unwritten.strerror})"
    return f"{sentence}; this error was not expected: check the settings, or report the error with {file.name}"


OVERVIEW = """usage: rewardlab COMMAND [--config file.yaml] [--setting value ...]

Train reward models, check that their scores are the same everywhere, evaluate them, and train policies.

{}

rewardlab COMMAND --help shows an example and the settings of a command."""


def _run(name: str, verb: Verb, words: list[str]) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # without the line of code that warns
    if "WORLD_SIZE" in os.environ:
        import_name(".runs.processes:assign_device")()
    if verb.arguments:  # refusals do not wait for the import of trainers
        verb.validate(_with_launched_processes(parse(name, verb, words, outlined=True)))
    settings = _with_launched_processes(parse(name, verb, words))
    verb.validate(settings)
    function = import_name(f".{verb.function}")
    finished = False
    try:
        with quiet_libraries():  # again: the function's module may have imported Transformers
            result = function(*settings)
        finished = True
        return result
    finally:
        if "WORLD_SIZE" in os.environ:
            import_name(".runs.processes:leave")(finished)


def _with_launched_processes(settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Set `processes`, unless the user set it, to the number of processes started by torchrun or accelerate."""
    for group in settings:
        if vars(group).get("processes") == 1:
            group.processes = int(os.environ.get("WORLD_SIZE", 1))
    return settings


def _help_text(name: str, verb: Verb, *, everything: bool) -> str:
    usage = f"rewardlab {name} {verb.positional.upper()} [settings]".replace("  ", " ")
    classes = verb.settings if everything else verb.outlines
    return help_page(verb.help, verb.example, usage, classes, everything=everything)


def parse(name: str, verb: Verb, words: Sequence[str], *, outlined: bool = False) -> tuple[Any, ...]:
    """Parse the verb's settings from a YAML file and flags with TRL's parser.

    With `outlined`, dataclasses with the same fields stand in for trainer arguments, so that no trainer is imported.
    """
    from .settings.parser import SettingsParser, translate_words

    classes = verb.outlines if outlined else verb.settings
    parser = SettingsParser(classes, prog=f"rewardlab {name}", add_help=False)
    settings_of_verb = [action.dest for action in parser._actions]
    if verb.positional and words and not words[0].startswith("-"):
        words = [f"--{verb.positional}", *words]  # `rewardlab inspect RUN` is `rewardlab inspect --run RUN`
    words = translate_words(words, settings_of_verb)
    try:
        _check_config(words)
        *settings, unknown = parser.parse_args_and_config(words, return_remaining_strings=True)
    except (UsageError, SystemExit):
        raise
    except OSError as error:
        raise UsageError(f"cannot read the file given with --config: {error}") from error
    except (ValueError, TypeError, IndexError, ImportError) as error:
        raise UsageError((str(error).strip().splitlines() or [type(error).__name__])[0]) from error
    except Exception as error:  # PyYAML has its own family of errors
        raise UsageError(f"the file given with --config is not YAML: {' '.join(str(error).split())}") from error
    if unknown:
        options = [option for action in parser._actions for option in action.option_strings]
        raise UsageError(
            f"no setting '{unknown[0]}'; {did_you_mean(unknown[0], options, f'see rewardlab {name} --help')}"
        )
    return tuple(settings)


def _check_config(words: Sequence[str]) -> None:
    """Raise an error for a `--config` file that is unsafe to parse: deep nesting, or YAML aliases of aliases."""
    if words[-1:] == ["--config"]:
        raise UsageError("--config is the last argument; add the path of a YAML file of settings after it")
    if "--config" in words:
        try:
            values = from_yaml(Path(words[words.index("--config") + 1]).read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise UsageError(f"the file given with --config is not YAML: {error}") from error
        if other := [key for key in values if not isinstance(key, str)] if isinstance(values, dict) else []:
            raise UsageError(f"the file given with --config has the key {other[0]!r}, which names no setting")


if __name__ == "__main__":
    sys.exit(main())
