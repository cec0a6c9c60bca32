"""Construction of judges by the name of their kind, with language models, rubrics and other files as arguments."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from ..rm.errors import UsageError, did_you_mean
from ..rm.registry import load
from ..rm.registry.specs import build, parse_spec, split_name, typed_arguments
from .backends.chat import Chat
from .judge import ExampleSource, RubricSource
from .kinds.checklist import Question
from .kinds.reward_model import RewardScorer, load_scorer
from .kinds.route.guideline import Guideline
from .kinds.route.rule import RoutingRule, load_rule
from .prompts import GREEDY, PROMPTS, Sampling
from .rubrics.formats import Levels, LevelsSource
from .rubrics.rubric import Rubric
from .rubrics.scoring import DEFAULT_SCORE, SCORES
from .types import BatchJudge

KINDS = "judges.kinds"


class Materials(NamedTuple):
    """Optional arguments of the kinds of judges: models, rubrics, examples and other files."""

    rubric: Rubric | RubricSource | None = None
    examples: ExampleSource | None = None
    score: str = DEFAULT_SCORE
    levels: Levels | LevelsSource | None = None
    questions: Sequence[Question] = ()
    sampling: Sampling = GREEDY
    loading: Mapping[str, Any] = MappingProxyType({})
    """Options for opening a reward model."""
    open_scorer: Callable[..., RewardScorer] = load_scorer
    """Function that opens a reward model from its source, an `objective` and the options of `loading`."""

    @property
    def by_parameter(self) -> dict[str, Any]:
        """Return the arguments by the names of the kinds' parameters. Arguments that are not set are left out."""
        values = {"rubric": self.rubric, "examples": self.examples, "levels": self.levels}
        values |= {"questions": self.questions or None, "sampling": self.sampling}
        return {name: value for name, value in values.items() if value is not None}


def open_judges(
    kinds: Sequence[str], together: str | None, chats: Mapping[str, Chat], materials: Materials
) -> list[BatchJudge]:
    """Open a judge of every kind with every language model, or one judge that combines several."""
    judges: list[BatchJudge] = []
    if materials.examples is not None and not any("examples" in _parameters(split_name(text)[1]) for text in kinds):
        raise UsageError(f"--examples are for pairwise and pointwise judges, got {', '.join(kinds)}")
    for text in kinds:
        name, source = split_name(text)
        takes_chat = "chat" in _parameters(source)
        if takes_chat and not chats:
            raise UsageError(f"'{text}' needs a language model; name one with --endpoint and --model, or with --local")
        if takes_chat:
            judges += [open_judge(source, chat, materials, name=f"{short} {name}") for short, chat in chats.items()]
        else:
            judges.append(_rename_judge(_without_chat(source, materials), name if source != text else ""))
    return [_combine_judges(together, judges, chats, materials)] if together else judges


def open_judge(source: str, chat: Chat, materials: Materials, *, name: str) -> BatchJudge:
    """Return a judge of one kind that uses one language model."""
    spec, parameters = parse_spec(source), _parameters(source)
    _refuse_combining(source)
    arguments: dict[str, Any] = {"chat": chat, "name": name, **materials.by_parameter}
    if "score" in parameters:
        arguments["score"] = SCORES[materials.score]
    for parameter, flag in (("rubric", "--rubric"), ("questions", "--checklist")):
        required = parameter in parameters and parameters[parameter].default is Parameter.empty
        if required and parameter not in arguments:
            raise UsageError(f"{source}: this kind of judge needs a file; give it with {flag}")
    if "prompt" in spec.arguments:
        check_prompt(source, spec.arguments["prompt"])
    return build(KINDS, source, **{name: value for name, value in arguments.items() if name in parameters})


def _parameters(source: str) -> Mapping[str, Parameter]:
    """Return the parameters of a kind of judge."""
    return signature(load(KINDS, parse_spec(source).name)).parameters


def _refuse_combining(source: str) -> None:
    """Raise a `UsageError` for a kind whose parameters are judges, which a spec cannot contain."""
    if any(BatchJudge in (taken.annotation, *get_args(taken.annotation)) for taken in _parameters(source).values()):
        raise UsageError(f"{source} combines judges; give the judges with --kind and this kind with --together")


def check_prompt(source: str, prompt: str) -> None:
    """Raise a `UsageError` if no instructions have this name."""
    prompts = [path.stem for path in sorted(PROMPTS.glob("*.txt"))]
    if prompt not in prompts:
        raise UsageError(f"{source}: no instructions '{prompt}'; {did_you_mean(prompt, prompts)}")


def _rename_judge(judge: BatchJudge, name: str) -> BatchJudge:
    """Return a copy of the judge with another name. An empty name leaves the judge as it is."""
    renamed = copy(judge)
    renamed.name = name or judge.name
    return renamed


def _without_chat(source: str, materials: Materials) -> BatchJudge:
    """Open a reward model, or another judge that does not send requests to a language model."""
    spec = parse_spec(source)
    if "model" not in _parameters(source):
        _refuse_combining(source)
        return build(KINDS, source)
    if "model" not in spec.arguments or spec.arguments.keys() - {"model", "objective"}:
        raise UsageError(f"{source}: write reward_model(model=FOLDER), or reward_model(model=FOLDER, objective=NAME)")
    return _rename_judge(_scorer(materials.open_scorer, **spec.arguments, **materials.loading), spec.short)


@cache
def _scorer(
    open_scorer: Callable[..., RewardScorer], model: str, objective: str | None = None, **loading: Any
) -> RewardScorer:
    """Load a reward model. The result is cached, so that the dry run and the run share one model."""
    return open_scorer(model, objective=objective, **loading)


def _combine_judges(
    text: str, judges: Sequence[BatchJudge], chats: Mapping[str, Chat], materials: Materials
) -> BatchJudge:
    """Combine judges by the kind that `text` names, which takes a list of judges or one parameter per judge."""
    name, source = split_name(text)
    parameters = _parameters(source)
    positional = [key for key, parameter in parameters.items() if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if not positional or "chat" in positional or "model" in positional:
        raise UsageError(f"--together must be panel, cascade, route or consistent, got '{source}'")
    if len(positional) == 1:
        return build(KINDS, source, name=name, **{positional[0]: judges})
    if len(positional) != len(judges):
        raise UsageError(
            f"{source} combines {len(positional)} judges ({', '.join(positional)}), got {len(judges)}: "
            f"{', '.join(judge.name for judge in judges) or 'none'}"
        )
    source, routing = _open_routing(source, chats, materials) if "rule" in parameters else (source, {})
    return build(KINDS, source, name=name, **routing, **dict(zip(positional, judges, strict=True)))


cached_rule = cache(load_rule)
"""Load a fitted routing rule. The result is cached, so that the dry run and the run share one rule."""


def _open_routing(source: str, chats: Mapping[str, Chat], materials: Materials) -> tuple[str, dict[str, Any]]:
    """Open a routing judge's rule and reward model. Return the source without these arguments, and both objects."""
    spec = parse_spec(source)
    others = {name: value for name, value in spec.arguments.items() if name not in ("rule", "reward_model")}
    if "rule" not in spec.arguments:
        raise UsageError(f"{source}: name the rule, as in route(rule=guideline, threshold=0.5) or route(rule=FOLDER)")
    opened: dict[str, Any] = {"rule": _open_rule(spec.arguments["rule"], chats, materials.loading)}
    if "reward_model" in spec.arguments:
        scorer = _scorer(materials.open_scorer, spec.arguments["reward_model"], **materials.loading)
        opened["reward_model"] = scorer.model
    return f"{spec.name}({', '.join(f'{name}={value}' for name, value in others.items())})", opened


def _open_rule(text: str, chats: Mapping[str, Chat], loading: Mapping[str, Any]) -> RoutingRule:
    """Open a routing rule: the folder of a fitted rule, or `guideline` with a language model (default: the first)."""
    if text.partition("(")[0].strip() != Guideline.name:
        return cached_rule(text, **loading)
    if not chats:
        raise UsageError("a guideline needs a language model; name one with --endpoint and --model, or with --local")
    arguments = typed_arguments(text, Guideline)
    model = arguments.pop("model", next(iter(chats)))
    if model not in chats:
        raise UsageError(f"{text}: no model '{model}'; {did_you_mean(model, chats)}")
    if unknown := [name for name in arguments if name not in ("longest", "prompt")]:
        raise UsageError(f"{text}: no argument '{unknown[0]}'; the arguments are model, longest, prompt")
    check_prompt(text, arguments.get("prompt", "route"))
    return Guideline(chats[model], **arguments)
