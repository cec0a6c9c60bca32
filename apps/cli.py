"""The command line: `rewardlab VERB --config file.yaml --flag value`. The last line on stdout is one JSON object."""

import argparse
import contextlib
import importlib
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..rm.errors import CheckFailed, DataError, UsageError, did_you_mean
from ..rm.io.checked_files import from_yaml
from ..rm.io.escaping import redacted, terminal, terminal_json
from .commands.board.settings import BoardConfig
from .commands.card.settings import CardConfig
from .commands.compare.settings import CompareConfig
from .commands.decode.settings import DecodeConfig
from .commands.doctor.settings import DoctorConfig
from .commands.eval.settings import EvalConfig
from .commands.inspect.settings import InspectConfig
from .commands.judge.settings import JudgeConfig
from .commands.lint.settings import LintConfig
from .commands.merge.settings import MergeConfig
from .commands.parity.settings import ParityConfig
from .commands.plan.settings import PlanConfig
from .commands.rl.settings import RlConfig
from .commands.rubrics.settings import RubricsConfig
from .commands.score.settings import ScoreConfig
from .commands.serve.settings import ServeConfig
from .commands.study.settings import StudyConfig
from .commands.train.settings import TrainConfig
from .commands.verify.settings import VerifyConfig
from .commands.world.settings import WorldConfig
from .runs.run_folder import RESULTS, plain
from .runs.signals import ENDED, Terminated, ended_by_signal
from .settings.preflight import check_settings

EXIT = {UsageError: 2, DataError: 3, CheckFailed: 5}
SHOWN = 300  # characters of the message of an unexpected error
SERVERS = ("serve", "inspect")  # they end by themselves when a signal asks them to


class Verb(NamedTuple):
    """A verb of the command line: description, settings, function and example."""

    help: str
    config: type | None
    """Settings dataclasses; None if the function takes the arguments unparsed."""
    function: str
    example: str
    positional: str = ""
    arguments: tuple[str, ...] = ()


VERBS = {
    "train": Verb(
        "Train a reward model: scalar or autoregressive (any Hugging Face backbone), linear or embedding.",
        TrainConfig,
        "commands.train.run:train",
        "rewardlab train --data pairs.jsonl --model Qwen/Qwen3-0.6B --lora --output runs/rm",
        arguments=(
            ".commands.train.settings:GuideConfig",
            ".commands.train.several_settings:SeveralConfig",
            "..rm.training.trainer:RewardArguments",
        ),
    ),
    "lint": Verb(
        "Find what is wrong with preference data: twins, contradictions, leaks, prompts of benchmarks; --fix mends it.",
        LintConfig,
        "commands.lint.run:run_lint",
        "rewardlab lint pairs.jsonl --against rewardbench=rewardbench.parquet --fix clean.jsonl",
        positional="data",
    ),
    "score": Verb(
        "Rewards of every conversation in a file.",
        ScoreConfig,
        "commands.score.run:run_score",
        "rewardlab score --model runs/rm --data conversations.jsonl --output scores.parquet",
    ),
    "parity": Verb(
        "Prove that a model's score is the same number every way it can be had, or name what makes it another.",
        ParityConfig,
        "commands.parity.run:run_parity",
        "rewardlab parity runs/rm --against checkpoint vllm http://127.0.0.1:8000 --junit parity.xml",
        positional="model",
    ),
    "merge": Verb(
        "A LoRA or a value-head checkpoint as a plain folder that Transformers loads, with the same scores.",
        MergeConfig,
        "commands.merge.run:run_merge",
        "rewardlab merge runs/rm-lora --output runs/rm-merged",
        positional="model",
    ),
    "card": Verb(
        "A model card: contract, measured figures beside the baselines, data and limits, each from a file.",
        CardConfig,
        "commands.card.run:run_card",
        "rewardlab card runs/rm --runs runs/rewardbench",
        positional="model",
    ),
    "eval": Verb(
        "Judge a benchmark beside the baselines, with intervals.",
        EvalConfig,
        "commands.eval.run:run_eval",
        "rewardlab eval --benchmark rewardbench --model runs/rm --data rewardbench.parquet --output runs/rewardbench",
    ),
    "verify": Verb(
        "Add a run's tables up again from its per-item scores.",
        VerifyConfig,
        "commands.verify.run:run_verify",
        "rewardlab verify runs/rewardbench",
        positional="run",
    ),
    "compare": Verb(
        "What changed between two runs, and whether it is more than noise.",
        CompareConfig,
        "commands.compare.run:run_compare",
        "rewardlab compare runs/before runs/after --gate rules.yaml",
        positional="runs",
    ),
    "board": Verb(
        "A leaderboard of many runs, with intervals and tied groups.",
        BoardConfig,
        "commands.board.run:run_board",
        "rewardlab board runs --output runs/board",
        positional="runs",
    ),
    "judge": Verb(
        "Language models as judges of cases: verdicts that may abstain, coverage, bounds and cost.",
        JudgeConfig,
        "commands.judge.run:run_judge",
        "rewardlab judge --data pairs.jsonl --endpoint http://localhost:8000/v1 --model M --output runs/judge",
        arguments=(".commands.judge.settings:ChatConfig",),
    ),
    "rubrics": Verb(
        "Rubrics from contrast: build them from preferences, train their generator, lint them, apply them.",
        RubricsConfig,
        "commands.rubrics.run:run_rubrics",
        "rewardlab rubrics build --data pairs.jsonl --endpoint http://localhost:8000/v1 --model M --output runs/R",
        positional="action",
        arguments=(".commands.judge.settings:ChatConfig", "..judges.cdrrm.training:Training"),
    ),
    "decode": Verb(
        "Answer prompts with a base model that an autoregressive reward model guides, at any preference.",
        DecodeConfig,
        "commands.decode.run:run_decode",
        "rewardlab decode --base M --arm A --preference helpful=0.7,harmless=0.3 --weight 1.0 --data prompts.txt",
    ),
    "rl": Verb(
        "Train a policy on reward models: GRPO, PPO and their kin, composed of formulas by name.",
        RlConfig,
        "commands.rl.run:train_policy",
        "rewardlab rl --model M --data prompts.jsonl --reward rm=runs/rm --kl 0.05 --output runs/policy",
        arguments=("..policy.training.arguments:PolicyArguments",),
    ),
    "inspect": Verb(
        "Look at runs in the browser: every judgment, every reward, every step.",
        InspectConfig,
        "inspector.server:serve",
        "rewardlab inspect runs",
        positional="run",
    ),
    "serve": Verb(
        "A reward model behind HTTP: batches of what waits, vLLM's /classify and OpenRLHF's /get_reward beside /score.",
        ServeConfig,
        "commands.serve.run:serve",
        "rewardlab serve runs/rm --port 8000",
        positional="model",
    ),
    "study": Verb(
        "Run a study of a claim: its tables, figures and per-item scores.",
        StudyConfig,
        "commands.study.run:run_study",
        "rewardlab study human_preferences --data data --output runs/human_preferences",
        positional="name",
    ),
    "world": Verb(
        "Write the toy world: preference data with a known gold reward, and a start policy.",
        WorldConfig,
        "commands.world.run:write_world",
        "rewardlab world --output runs/world",
    ),
    "plan": Verb(
        "How much memory each GPU needs for a piece of work and how long it takes, by formula, before one is rented.",
        PlanConfig,
        "commands.plan.run:run_plan",
        "rewardlab plan --model 7b --job train --gpus 8 --gpu h100 --strategy fsdp --dtype mixed --output runs/plan",
    ),
    "bench": Verb(
        "Measure speed or memory beside what one would otherwise run; bench NAME --help lists a script's settings.",
        None,
        "commands.bench.run:run_bench",
        "rewardlab bench policy --output policy.json",
    ),
    "doctor": Verb(
        "Versions, devices, extras, room on the disks: what works here, and the way out of what does not.",
        DoctorConfig,
        "commands.doctor.run:doctor",
        "rewardlab doctor --json",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code.

    0, 1 (an unexpected error), 2 (usage), 3 (data), 5 (a check failed), 130 (interrupted) or 143 (ended by
    SIGTERM or Ctrl-C).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else ""
    try:
        if name in ("", "-h", "--help"):
            print(_overview())
            return 0 if name else 2
        if name not in VERBS:
            raise UsageError(f"no verb '{name}'; {did_you_mean(name, VERBS)}")
        if {"-h", "--help"} & {*words}:
            _help(name, VERBS[name], words[1:])
            return 0
        RESULTS.set(sys.stdout)
        ending = contextlib.nullcontext() if name in SERVERS else ended_by_signal()
        with contextlib.redirect_stdout(sys.stderr), ending:
            result = _run(name, VERBS[name], words[1:])
        print(terminal_json(json.dumps(plain(result), ensure_ascii=False)))
        return 0
    except tuple(EXIT) as error:
        print(terminal(f"rewardlab {name}: {error}"), file=sys.stderr)
        return next(code for kind, code in EXIT.items() if isinstance(error, kind))
    except Terminated as error:
        print(f"rewardlab {name}: {error}", file=sys.stderr)
        return ENDED
    except KeyboardInterrupt:
        print(f"rewardlab {name}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        print(terminal(f"rewardlab {name}: {_unforeseen(name, error)}"), file=sys.stderr)
        return 1


def _unforeseen(name: str, error: Exception) -> str:
    """Return one sentence about an unexpected error, and write its traceback to a file."""
    text = " ".join(str(error).split()) or "no message"
    sentence = f"{type(error).__name__}: {text[:SHOWN]}{'...' if len(text) > SHOWN else ''}"
    details = redacted(["".join(traceback.format_exception(error))])[0]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"rewardlab-{name}-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(details)
    except OSError as unwritten:
        return f"{sentence}; its traceback could not be written ({unwritten.strerror})"
    return f"{sentence}; this error was not foreseen: check the settings, or report it with {file.name}"


def _overview() -> str:
    lines = [f"  {name:<9}{verb.help}" for name, verb in VERBS.items()]
    return "\n".join(
        ["usage: rewardlab VERB [--config file.yaml] [--flag value ...]", "", *lines, "", "rewardlab VERB --help"]
    )


def _run(name: str, verb: Verb, words: list[str]) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning)  # what libraries tell each other
    if verb.config is None:
        return _named(f".{verb.function}")(words)
    if "WORLD_SIZE" in os.environ:
        _named(".runs.processes:settle_devices")()
    settings = parse(name, verb, words)
    settings[0].validate()
    check_settings(settings)
    function = _named(f".{verb.function}")
    if "transformers" in sys.modules:  # verbs without models do not pay for its import
        _named("..rm.backbones.loading:hide_loading_bars")()
    try:
        return function(*settings)
    finally:
        if "WORLD_SIZE" in os.environ:
            _named(".runs.processes:leave")()


def _help(name: str, verb: Verb, words: list[str]) -> None:
    if verb.config is not None:
        print(_parser(name, verb).format_help())
    elif words[0].startswith("-"):
        print(f"{verb.help}\n\nExample:\n  {verb.example}\n\n{_named('.commands.bench.run:overview')()}")
    else:
        _named(f".{verb.function}")(words)


def _parser(name: str, verb: Verb) -> Any:
    from .settings.parser import SettingsParser

    return SettingsParser(
        name,
        [verb.config, *map(_named, verb.arguments)],
        prog=f"rewardlab {name}",
        description=verb.help,
        epilog=f"Example:\n  {verb.example}\n\nEvery setting may also be given in a YAML file: --config file.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parse(name: str, verb: Verb, words: Sequence[str]) -> tuple[Any, ...]:
    """Parse the verb's settings from a YAML file and flags with TRL's parser."""
    parser = _parser(name, verb)
    words = _with_positional(verb, list(words))
    try:
        _read_config(words)
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
        known = [option for action in parser._actions for option in action.option_strings]
        raise UsageError(
            f"no setting '{unknown[0]}'; {did_you_mean(unknown[0], known, f'see rewardlab {name} --help')}"
        )
    return tuple(settings)


def _read_config(words: Sequence[str]) -> None:
    """Raise an error for a `--config` file that takes too long to parse: deep brackets, or aliases of aliases."""
    if "--config" in words[:-1]:
        try:
            from_yaml(Path(words[words.index("--config") + 1]).read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise UsageError(f"the file given with --config is not YAML: {error}") from error


def _named(reference: str) -> Any:
    """Import `.module:name` of this package."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module, __package__), name)


def _with_positional(verb: Verb, words: list[str]) -> list[str]:
    """Insert the flag of a positional argument: `rewardlab inspect RUN` is `rewardlab inspect --run RUN`."""
    return [f"--{verb.positional}", *words] if verb.positional and words and not words[0].startswith("-") else words


if __name__ == "__main__":
    sys.exit(main())
