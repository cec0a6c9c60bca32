"""The verbs of the command line and the Python API: settings, function and example of each."""

import importlib.util
import pkgutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from .settings.preflight import check_settings
from .settings.trainer_arguments import outline


class Verb(NamedTuple):
    """A verb of the command line: description, settings, function and example."""

    help: str
    config_class: str
    """Name of the verb's settings dataclass."""
    function: str
    example: str
    positional: str = ""
    arguments: tuple[str, ...] = ()
    check: str = ""
    """Name of a function that checks all settings together and raises `UsageError`. Empty if not needed."""

    @property
    def config(self) -> type:
        """Return the verb's settings dataclass."""
        return import_name(self.config_class)

    @property
    def settings(self) -> tuple[type, ...]:
        """Return all settings dataclasses of the verb. `config` is the first."""
        return (self.config, *map(import_name, self.arguments))

    def validate(self, settings: Sequence[Any]) -> None:
        """Raise `UsageError` for invalid settings, before anything is loaded."""
        settings[0].validate()
        check_settings(settings)
        if self.check:
            import_name(f".{self.check}")(*settings)

    @property
    def outlines(self) -> tuple[type, ...]:
        """Return `settings` without importing Transformers: outlines replace the dataclasses of trainer arguments."""
        return (self.config, *(outline(name.partition(":")[2]) or import_name(name) for name in self.arguments))


def import_name(reference: str) -> Any:
    """Import `.module:name` of this package."""
    return pkgutil.resolve_name(importlib.util.resolve_name(reference, __package__))


VERBS = {
    "train": Verb(
        "Train a reward model: scalar, process or autoregressive (any Hugging Face backbone), linear or embedding.",
        ".commands.train.settings:TrainConfig",
        "commands.train.run:train",
        "rewardlab train --data pairs.jsonl --model Qwen/Qwen3-0.6B --lora --output runs/rm",
        arguments=(".commands.train.settings:KindSettings", "..rm.training.trainer:RewardArguments"),
        check="commands.train.settings:own_settings",
    ),
    "lint": Verb(
        "Check preference data: near-duplicates, contradictions, leakage, contamination; --fix writes a clean file.",
        ".commands.lint.settings:LintConfig",
        "commands.lint.run:run_lint",
        "rewardlab lint pairs.jsonl --against rewardbench=rewardbench.parquet --fix clean.jsonl",
        positional="data",
    ),
    "score": Verb(
        "Compute the rewards of every conversation in a file.",
        ".commands.score.settings:ScoreConfig",
        "commands.score.run:run_score",
        "rewardlab score --model runs/rm --data conversations.jsonl --output scores.parquet",
    ),
    "parity": Verb(
        "Check that a reward model has the same scores in every implementation, and name the cause of a difference.",
        ".commands.parity.settings:ParityConfig",
        "commands.parity.run:run_parity",
        "rewardlab parity runs/rm --against checkpoint vllm http://127.0.0.1:8000 --junit parity.xml",
        positional="model",
    ),
    "merge": Verb(
        "Merge a LoRA or a value-head checkpoint into a plain folder that Transformers loads, with the same scores.",
        ".commands.merge.settings:MergeConfig",
        "commands.merge.run:run_merge",
        "rewardlab merge runs/rm-lora --output runs/rm-merged",
        positional="model",
    ),
    "card": Verb(
        "Write a model card: how scores are computed, results beside the baselines, data and limits, each from a file.",
        ".commands.card.settings:CardConfig",
        "commands.card.run:run_card",
        "rewardlab card runs/rm --runs runs/rewardbench",
        positional="model",
    ),
    "eval": Verb(
        "Evaluate reward models on a benchmark, with 95 % intervals, beside baselines such as the longest response.",
        ".commands.eval.settings:EvalConfig",
        "commands.eval.run:run_eval",
        "rewardlab eval --benchmark rewardbench --model runs/rm --data rewardbench.parquet --output runs/rewardbench",
    ),
    "verify": Verb(
        "Check a run of eval or judge: recompute its report from the stored scores of each case.",
        ".commands.verify.settings:VerifyConfig",
        "commands.verify.run:run_verify",
        "rewardlab verify runs/rewardbench",
        positional="run",
    ),
    "compare": Verb(
        "Compare two runs: what changed, and whether it is significant.",
        ".commands.compare.settings:CompareConfig",
        "commands.compare.run:run_compare",
        "rewardlab compare runs/before runs/after --gate rules.yaml",
        positional="runs",
    ),
    "board": Verb(
        "Write a leaderboard of many runs of eval, with intervals and groups without a significant difference.",
        ".commands.board.settings:BoardConfig",
        "commands.board.run:run_board",
        "rewardlab board runs --output runs/board",
        positional="runs",
    ),
    "judge": Verb(
        "Evaluate language models as judges: accuracy, cases without a verdict, effect of the order, and cost.",
        ".commands.judge.settings:JudgeConfig",
        "commands.judge.run:run_judge",
        "rewardlab judge --data pairs.jsonl --endpoint http://localhost:8000/v1 --model M --output runs/judge",
        arguments=("..judges.retrieval.settings:RetrievalConfig", "..judges.backends.settings:ChatConfig"),
    ),
    "judge train": Verb(
        "Train a language model as a judge: on replies with right verdicts, then by policy training on the verdict.",
        ".assembly.judge_training.settings:JudgeTrainConfig",
        "assembly.judge_training.run:train_judge",
        "rewardlab judge train --data pairs.jsonl --base Qwen/Qwen3-0.6B --lora --output runs/judge",
        arguments=("..policy.training.arguments:PolicyArguments",),
    ),
    "rubrics": Verb(
        "Rubrics by contrast (CDRRM): build them from preferences, train their generator, lint them, apply them.",
        ".commands.rubrics.settings:RubricsConfig",
        "commands.rubrics.run:run_rubrics",
        "rewardlab rubrics build --data pairs.jsonl --endpoint http://localhost:8000/v1 --model M --output runs/R",
        positional="action",
        arguments=("..judges.backends.settings:ChatConfig", "..judges.cdrrm.training:SupervisedSettings"),
    ),
    "retriever": Verb(
        "Train an encoder that finds similar prompts: examples and rubrics for judges, and contamination for lint.",
        ".commands.retriever.settings:RetrieverConfig",
        "commands.retriever.run:train_retriever",
        "rewardlab retriever --data rubrics.jsonl --group_by theme --output runs/retriever",
        positional="data",
        arguments=("..judges.retrieval.training:RetrieverArguments",),
    ),
    "decode": Verb(
        "Decode prompts with a base model guided by an autoregressive reward model (ARM), at any preference vector.",
        ".commands.decode.settings:DecodeConfig",
        "commands.decode.run:run_decode",
        "rewardlab decode --base M --arm A --preference helpful=0.7,harmless=0.3 --weight 1.0 --data prompts.txt",
    ),
    "sample": Verb(
        "Sample several completions of each prompt and write the best ones, or pairs, as training data.",
        ".commands.sample.settings:SampleConfig",
        "commands.sample.run:run_sample",
        "rewardlab sample --base M --data prompts.jsonl --reward rm=runs/rm --n 8 --select best pairs --output runs/s",
    ),
    "sft": Verb(
        "Fine-tune a policy on conversations, such as the best completions that sample writes.",
        ".assembly.fine_tuning.settings:SftSettings",
        "assembly.fine_tuning.run:run_sft",
        "rewardlab sft --model M --data runs/samples/best.jsonl --output runs/sft",
        arguments=("..policy.training.arguments:SftArguments",),
    ),
    "dpo": Verb(
        "Train a policy by direct preference optimisation on pairs, such as those that sample writes.",
        ".assembly.fine_tuning.settings:DpoSettings",
        "assembly.fine_tuning.run:run_dpo",
        "rewardlab dpo --model M --data runs/samples/pairs.jsonl --beta 0.1 --output runs/dpo",
        arguments=("..policy.training.arguments:DpoArguments",),
    ),
    "label": Verb(
        "Label responses by reward models and judges: scores, preference pairs, and the agreement of the labellers.",
        ".commands.label.settings:LabelConfig",
        "commands.label.run:run_label",
        "rewardlab label --data responses.jsonl --reward rm=runs/rm --output runs/labels",
    ),
    "rl": Verb(
        "Train a policy on reward models by GRPO, PPO and other methods, each composed of named formulas.",
        ".assembly.policy_training.settings:RlConfig",
        "assembly.policy_training.run:train_policy",
        "rewardlab rl --model M --data prompts.jsonl --reward rm=runs/rm --kl 0.05 --output runs/policy",
        arguments=("..policy.training.arguments:PolicyArguments",),
    ),
    "inspect": Verb(
        "Inspect runs in the browser: every judgment, every reward, every step.",
        ".inspector.settings:InspectConfig",
        "commands.inspect.run:run_inspect",
        "rewardlab inspect runs",
        positional="run",
    ),
    "serve": Verb(
        "Serve a reward model over HTTP: batched requests, vLLM's /classify and OpenRLHF's /get_reward beside /score.",
        ".serving.settings:ServeConfig",
        "commands.serve.run:serve",
        "rewardlab serve runs/rm --port 8000",
        positional="model",
    ),
    "world": Verb(
        "Write a toy data set for trying the other commands: pairs with a known gold reward, and a small start policy.",
        ".commands.world.settings:WorldConfig",
        "commands.world.run:write_world",
        "rewardlab world --output runs/world",
    ),
    "plan": Verb(
        "Compute how much memory each GPU needs for a job and how long it takes, by formula, without loading weights.",
        "..rm.capacity.settings:PlanConfig",
        "commands.plan.run:run_plan",
        "rewardlab plan --model 7b --job train --gpus 8 --gpu h100 --strategy fsdp --dtype mixed --output runs/plan",
    ),
    "doctor": Verb(
        "Check versions, devices, extras and disk space of this machine, and name remedies.",
        ".commands.doctor.settings:DoctorConfig",
        "commands.doctor.run:doctor",
        "rewardlab doctor --json",
    ),
}


RESEARCH = {
    "study": "python -m rewardlab.research.studies",
    "bench": "python -m rewardlab.research.speed",
}
"""Verb of an earlier version -> the command that replaces it in a checkout."""


def split_verb(words: Sequence[str]) -> tuple[str, list[str]]:
    """Split a command into its verb, which may be two words, and its settings.

    >>> split_verb(["judge", "train", "--data", "pairs.jsonl"]), split_verb(["judge", "--audit"])
    (('judge train', ['--data', 'pairs.jsonl']), ('judge', ['--audit']))
    """
    both = " ".join(words[:2])
    number = 2 if both in VERBS and len(words) > 1 else 1
    return " ".join(words[:number]), list(words[number:])
