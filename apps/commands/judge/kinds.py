"""Judges for benchmarks and rewards, from kinds of judges and language models by name."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, NamedTuple

from ....benchmarks.scorers import open_scorer
from ....judges.backends.chat import Chat
from ....judges.judge import ExampleSource, RubricSource
from ....judges.kinds.checklist import Question
from ....judges.kinds.pointwise import LevelsSource
from ....judges.kinds.route.guideline import Guideline
from ....judges.kinds.route.rule import Rule, load_rule
from ....judges.prompting import GREEDY, PROMPTS, Sampling
from ....judges.retrieval.selection import SELECTIONS
from ....judges.rubrics import scoring as rubric_score
from ....judges.rubrics.formats import Levels
from ....judges.rubrics.rubric import Rubric
from ....judges.types import BatchJudge
from ....rm.errors import UsageError, did_you_mean
from ....rm.registry import load
from ....rm.registry.specs import build, named, parse_spec, typed_arguments
from ....rm.types import RewardModel
from ..rubrics.files import open_levels, open_rubric, read_checklist
from .retrieval import RetrievalConfig, open_examples, open_retrieved_rubrics
from .settings import JudgeConfig

KINDS = "judges.kinds"
fitted_rule = cache(load_rule)
"""Load a fitted rule once, for the dry run and the run."""


class Materials(NamedTuple):
    """Arguments for kinds of judges that have such parameters."""

    rubric: Rubric | RubricSource | None = None
    examples: ExampleSource | None = None
    score: str = "gated"
    levels: Levels | LevelsSource | None = None
    questions: Sequence[Question] = ()
    sampling: Sampling = GREEDY
    loading: Mapping[str, Any] = MappingProxyType({})
    """Options for opening a reward model."""


def materials(config: JudgeConfig, loading: Mapping[str, Any], retrieval: RetrievalConfig | None = None) -> Materials:
    """Read and check the files of the settings."""
    return Materials(
        rubric=_rubric(config, retrieval) if config.rubric else None,
        examples=open_examples(retrieval, config) if retrieval else None,
        score=config.score,
        levels=open_levels(config.levels) if config.levels else None,
        questions=read_checklist(config.checklist) if config.checklist else (),
        sampling=Sampling(config.max_tokens, config.temperature, config.seed),
        loading=loading,
    )


def _rubric(config: JudgeConfig, retrieval: RetrievalConfig | None) -> Rubric | RubricSource:
    if retrieval and config.rubric in SELECTIONS:
        return open_retrieved_rubrics(retrieval, config)
    return open_rubric(str(config.rubric))


def open_judges(
    kinds: Sequence[str], together: str | None, chats: Mapping[str, Chat], given: Materials
) -> list[BatchJudge]:
    """Open a judge of every kind with every chat, or one judge that combines them."""
    judges: list[BatchJudge] = []
    if given.examples is not None and not any("examples" in _parameters(named(text)[1]) for text in kinds):
        raise UsageError(f"--examples are shown by pairwise and pointwise judges, and there is {', '.join(kinds)}")
    for text in kinds:
        name, source = named(text)
        takes_chat = "chat" in _parameters(source)
        if takes_chat and not chats:
            raise UsageError(f"'{text}' asks a language model; name one with --endpoint and --model, or with --local")
        if takes_chat:
            judges += [open_judge(source, chat, given, name=f"{short} {name}") for short, chat in chats.items()]
        else:
            judges.append(_called(_without_chat(source, given.loading), name if source != text else ""))
    return [joined(together, judges, chats, given.loading)] if together else judges


def open_judge(source: str, chat: Chat, given: Materials, *, name: str) -> BatchJudge:
    """Return a judge of one kind that uses one chat."""
    spec, parameters = parse_spec(source), _parameters(source)
    ours: dict[str, Any] = {"chat": chat, "name": name, "sampling": given.sampling}
    files = {"rubric": given.rubric, "examples": given.examples, "levels": given.levels}
    files |= {"questions": given.questions or None}
    ours |= {name: value for name, value in files.items() if value is not None}
    if "score" in parameters:
        made = getattr(rubric_score, given.score)
        ours["score"] = made() if given.score == "anchored" else made
    for setting, flag in (("rubric", "--rubric"), ("questions", "--checklist")):
        if setting in parameters and parameters[setting].default is Parameter.empty and setting not in ours:
            raise UsageError(f"{source}: this kind of judge needs a file; give it with {flag}")
    if "prompt" in spec.arguments:
        check_prompt(source, spec.arguments["prompt"])
    return build(KINDS, source, **{name: value for name, value in ours.items() if name in parameters})


def _parameters(source: str) -> Mapping[str, Parameter]:
    """Return what the kind of judge takes."""
    return signature(load(KINDS, parse_spec(source).name)).parameters


def check_prompt(source: str, prompt: str) -> None:
    """Raise a `UsageError` for instructions that do not exist."""
    known = [path.stem for path in sorted(PROMPTS.glob("*.txt"))]
    if prompt not in known:
        raise UsageError(f"{source}: no instructions '{prompt}'; {did_you_mean(prompt, known)}")


def _called(judge: BatchJudge, name: str) -> BatchJudge:
    """Return a copy of the judge with the name; an empty one leaves its own."""
    called = copy(judge)
    called.name = name or judge.name
    return called


def _without_chat(source: str, loading: Mapping[str, Any]) -> BatchJudge:
    """Open a reward model, or a judge that asks no language model."""
    spec = parse_spec(source)
    if "model" not in signature(load(KINDS, spec.name)).parameters:
        return build(KINDS, source)
    if "model" not in spec.arguments or spec.arguments.keys() - {"model", "objective"}:
        raise UsageError(f"{source}: write reward_model(model=FOLDER), or reward_model(model=FOLDER, objective=NAME)")
    return _called(_reward_model(**spec.arguments, **loading), spec.short)


@cache
def _reward_model(model: str, objective: str | None = None, **loading: Any) -> Any:
    """Loaded once, for the dry run and the run."""
    return open_scorer(model, objective=objective, **loading)


def open_reward_model(source: str, loading: Mapping[str, Any]) -> RewardModel:
    """Open the reward model whose margin a routing rule reads."""
    return _reward_model(source, **loading).model


def joined(
    text: str,
    judges: Sequence[BatchJudge],
    chats: Mapping[str, Chat] = MappingProxyType({}),
    loading: Mapping[str, Any] = MappingProxyType({}),
) -> BatchJudge:
    """Combine judges into one by a kind that takes a list of judges, or one parameter for each."""
    name, source = named(text)
    parameters = _parameters(source)
    positional = [
        parameter_name for parameter_name, p in parameters.items() if p.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
    if not positional or "chat" in positional or "model" in positional:
        raise UsageError(f"--together joins judges, and '{source}' does not; it is panel, cascade, route or consistent")
    given: dict[str, Any] = {"name": name}
    if len(positional) == 1:
        return build(KINDS, source, **given, **{positional[0]: judges})
    if len(positional) != len(judges):
        raise UsageError(
            f"{source} joins {len(positional)} judges ({', '.join(positional)}) and there are {len(judges)}: "
            f"{', '.join(judge.name for judge in judges) or 'none'}"
        )
    if "rule" in parameters:
        source, opened = open_routing(source, chats, loading)
        given |= opened
    return build(KINDS, source, **given, **dict(zip(positional, judges, strict=True)))


# ---- routing ----


def open_routing(source: str, chats: Mapping[str, Chat], loading: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Open the rule and the reward model that a routing judge names; return its source without them, and the two."""
    spec = parse_spec(source)
    rest = {name: value for name, value in spec.arguments.items() if name not in ("rule", "reward_model")}
    if "rule" not in spec.arguments:
        raise UsageError(f"{source}: name the rule, as in route(rule=guideline, threshold=0.5) or route(rule=FOLDER)")
    opened: dict[str, Any] = {"rule": open_rule(spec.arguments["rule"], chats, loading)}
    if "reward_model" in spec.arguments:
        opened["reward_model"] = open_reward_model(spec.arguments["reward_model"], loading)
    return f"{spec.name}({', '.join(f'{name}={value}' for name, value in rest.items())})", opened


def open_rule(text: str, chats: Mapping[str, Chat], loading: Mapping[str, Any]) -> Rule:
    """Open a routing rule: the folder of a fitted one, or `guideline`, which asks `model` or else the first model."""
    if text.partition("(")[0].strip() != Guideline.name:
        return fitted_rule(text, **loading)
    if not chats:
        raise UsageError("a guideline asks a language model; name one with --endpoint and --model, or with --local")
    arguments = typed_arguments(text, Guideline)
    model = arguments.pop("model", next(iter(chats)))
    if model not in chats:
        raise UsageError(f"{text}: no model '{model}'; {did_you_mean(model, chats)}")
    if unknown := [name for name in arguments if name not in ("longest", "prompt")]:
        raise UsageError(f"{text}: no argument '{unknown[0]}'; there is model, longest, prompt")
    check_prompt(text, arguments.get("prompt", "route"))
    return Guideline(chats[model], **arguments)
