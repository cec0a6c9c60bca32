"""Check for contradictory settings of policy training, before models and data are loaded."""

from ....policy.step.algorithm import Algorithm
from ....policy.step.by_name import build_algorithm, check_formulas
from ....policy.training.arguments import PolicyArguments
from ....policy.training.prompt_sampling import CURRICULUM
from ....rm.data.preference_vectors import costs_sentence
from ....rm.errors import UsageError
from ...rewards._open import sources_by_name
from ...runs.run_folder import log
from .settings import RlConfig


def check_together(config: RlConfig, arguments: PolicyArguments) -> Algorithm:
    """Build the algorithm. Raise `UsageError` for unknown formulas and contradictory settings.

    Reward models are not loaded yet, so the components of a reward model with several objectives are still unknown.
    """
    trained, watched = sources_by_name(config.reward), sources_by_name(config.watch)
    if both := {*trained} & {*watched}:
        raise UsageError(f"'{both.pop()}' is called both a reward and watched; call one of them NAME=SOURCE")
    algorithm = build_algorithm(config, [*trained])
    if costs := costs_sentence("--weight", algorithm.shares):
        log(costs)
    check_formulas(algorithm, _sizes(config, arguments), _fields(config, arguments))
    alone = [name for name in ("replay", "curriculum", "exchange", "rollouts", "scaffold") if vars(config)[name]]
    if config.processes > 1 and alone:
        raise UsageError(f"--{alone[0]} sees all answers of a step in one process; leave it or --processes out")
    if (config.reference or config.soup) and not (config.kl or arguments.measure_kl):
        raise UsageError("nothing reads the reference; give --kl a weight, or leave --reference and --soup out")
    if config.rollouts and (config.scaffold or config.rollout_server or arguments.use_vllm):
        raise UsageError(
            "--rollouts searches with this process's policy; leave --scaffold, --rollout_server and --use_vllm out"
        )
    _check_exchange(config, arguments)
    if (config.curriculum is None) != (config.category is None):
        raise UsageError("a curriculum chooses between kinds of prompts; give --curriculum and --category together")
    if config.curriculum and CURRICULUM in {**trained, **watched}:
        raise UsageError(f"'{CURRICULUM}' is called both a reward and the curriculum; call the reward NAME=SOURCE")
    if config.lora_dropout and arguments.disable_dropout:
        raise UsageError("--lora_dropout does nothing while dropout is off; add --disable_dropout False")
    if config.scaffold and arguments.use_vllm:
        raise UsageError("a scaffold writes with this process's policy or --rollout_server; leave --use_vllm out")
    answers = arguments.num_generations_eval or arguments.num_generations or 1
    if config.eval_data and arguments.per_device_eval_batch_size % answers:
        raise UsageError(
            f"--per_device_eval_batch_size is {arguments.per_device_eval_batch_size} and a prompt gets {answers} "
            "answers; make it a multiple of them"
        )
    return algorithm


def _check_exchange(config: RlConfig, arguments: PolicyArguments) -> None:
    if config.exchange is None:
        if (config.agent, config.agents) != (0, 1):
            raise UsageError("--agent and --agents tell who exchanges answers; name a folder for them with --exchange")
        return
    if not 0 <= config.agent < config.agents or config.agents < 2:
        raise UsageError(
            f"--exchange is between 2 agents or more, numbered from 0; got --agent {config.agent} --agents "
            f"{config.agents}"
        )
    others = ("rollouts", "scaffold", "rollout_server", "curriculum")
    conflicts = [name for name in others if vars(config)[name]] + ["use_vllm"] * arguments.use_vllm
    if conflicts:
        raise UsageError(
            "--exchange has this process's policy answer prompts that all agents have in common; leave "
            f"--{conflicts[0]} out"
        )
    if (arguments.num_generations or 1) % config.agents:
        raise UsageError(
            f"--num_generations is {arguments.num_generations} and is shared by {config.agents} agents; make it a "
            "multiple"
        )


def _sizes(config: RlConfig, arguments: PolicyArguments) -> list[int]:
    size = arguments.num_generations or 1
    return [size, arguments.num_generations_eval or size] if config.eval_data else [size]


def _fields(config: RlConfig, arguments: PolicyArguments) -> set[str]:
    """Return the names of the rollout fields that the trainer can compute with these settings."""
    fields = {"tokens", "logprobs", "entropy", "states"} | ({"values", "after"} if config.critic else set())
    return fields | ({"base"} if config.kl or arguments.measure_kl else set())
