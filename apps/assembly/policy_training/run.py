"""Policy training in a run folder: checks of the settings, creation of the trainer, training, metrics, and results."""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import TrainerCallback

from ....judges.rubrics.files import rubric_of_row
from ....judges.rubrics.rubric import Rubric
from ....policy.decoding.engines import positions
from ....policy.rollouts._exchange import exchange_rollouts
from ....policy.rollouts.vllm.completions import server_rollouts
from ....policy.scaffolds._scaffold import Hints, scaffold_rollouts
from ....policy.step.algorithm import Algorithm
from ....policy.step.composition import build_algorithm, check_formulas, with_components
from ....policy.training.arguments import PolicyArguments
from ....policy.training.critic import CriticArguments
from ....policy.training.models import lora_config, open_language_model, open_reference, save_policy
from ....policy.training.prompts import (
    CURRICULUM,
    CurriculumSampler,
    Prompts,
    check_number,
    drop_long_prompts,
    group_by_category,
    load_prompts,
    rows_by_prompt,
)
from ....policy.training.trainer import PolicyTrainer
from ....policy.types import ON_REQUEST, RolloutSource
from ....rm.backbones.chat_templates import prefilled_text
from ....rm.backbones.loading import load_tokenizer
from ....rm.backbones.tokenization import check_renders
from ....rm.data.preference_vectors import costs_sentence
from ....rm.errors import CheckFailed, UsageError
from ....rm.registry.specs import build, split_name
from ....rm.training import CHECKPOINTS
from ....rm.training.checkpointing import checkpoint_to_resume
from ....rm.training.distributed import broadcast_from_rank_0
from ....rm.types import prompt_text
from ...publishing.hub_upload import open_repository
from ...rewards._open import RunFacts, check_functions, open_rewards, sources_by_name
from ...runs.model_hashes import with_model_hashes
from ...runs.processes import shared_run_folder, trained_by
from ...runs.run_folder import (
    log,
    log_rows,
    recipe_of,
    seconds_since,
    to_json_types,
    training_recipe,
    trust_option,
    write_manifest,
)
from ...runs.stop_training import train_until_signal
from ...runs.tables import STEPS
from .settings import RlConfig

DATA = ("data", "eval_data")
POLICY, REWARDS, FAULTS = "policy", "rewards", "faults.jsonl"
FREE = ("resume", "overwrite", "output", "exchange_timeout", "processes")  # may be others when a run is resumed


def train_policy(config: RlConfig, arguments: PolicyArguments) -> dict[str, Any]:
    """Train a policy on rewards, save its run folder, and return the summary of the run (on rank 0)."""
    output, started = config.output or arguments.output_dir, time.time()
    algorithm = checked_algorithm(config, arguments)
    here = trained_by(config.processes, "rl", arguments)
    recipe = _recipe(config, arguments) if here.leads else {}
    repository = open_repository(arguments, leads=here.leads)
    folder_options = {"overwrite": config.overwrite, "resume": config.resume, "keep": STEPS}
    with shared_run_folder(output, recipe, here, **folder_options) as work:
        arguments.output_dir = str(work / CHECKPOINTS)
        trainer, account = prepare(config, arguments, algorithm, work)
        results = run(trainer, work, resume=config.resume)
        if here.leads:
            data = [*config.data, *config.eval_data]
            account["arguments"] = arguments.to_sanitized_dict()
            write_manifest(work, data=data, seed=arguments.seed, started=started, **account, **results)
    if fault := broadcast_from_rank_0(trainer.signal.fault):  # which waits until the folder is complete
        raise CheckFailed(
            f"{output}: nothing was learned from the rewards: {fault}{_first_fault(Path(output))}; fix the rewards, or "
            "take prompts whose completions get different rewards"
        )
    if not here.leads:
        return {"output": output, "processes": here.world, "rank": here.rank}
    if repository:
        results["commit"] = repository.upload(Path(output) / POLICY)
    return {"output": output, "policy": f"{output}/{POLICY}", **results, "seconds": round(seconds_since(started), 1)}


def _recipe(config: RlConfig, arguments: PolicyArguments) -> dict[str, Any]:
    """Return the settings that must not change when a run is resumed, with the hashes of data and models."""
    recipe = recipe_of(config, FREE, [*config.data, *config.eval_data])
    recipe |= {name: list(map(without_limit, recipe[name])) for name in ("reward", "watch")}
    rewards = [split_name(reward)[1] for reward in (*config.reward, *config.watch)]
    return training_recipe(with_model_hashes(recipe, rewards), arguments)


def without_limit(reward: str) -> str:
    """Remove max_cost from the text of a reward, since the cost limit may change when a run is resumed.

    >>> without_limit("judge(model=M, max_cost=2.5, score=points)"), without_limit("judge(max_cost=1e-3, model=M)")
    ('judge(model=M, score=points)', 'judge(model=M)')
    """
    return re.sub(r",\s*max_cost\s*=\s*[^,()\s]+|(?<=\()\s*max_cost\s*=\s*[^,()\s]+\s*,?\s*", "", reward)


def prepare(
    config: RlConfig, arguments: PolicyArguments, algorithm: Algorithm, work: Path
) -> tuple[PolicyTrainer, dict[str, Any]]:
    """Create the trainer. Return it with entries of the manifest. What loads fast is loaded first, to fail early."""
    check_renders(load_tokenizer(config.model, chat_template=config.chat_template, **trust_option(arguments)))
    data: dict[str, Prompts] = {}
    for name in DATA:
        data[name] = load_prompts(vars(config)[name], skip_bad_rows=config.on_bad_row == "skip")
        log_rows(name, data[name].report)
    trained, watched = sources_by_name(config.reward), sources_by_name(config.watch)
    check_functions([*trained.values(), *watched.values()], [row for prompts in data.values() for row in prompts.rows])
    policy = open_language_model(config.model, config, arguments)
    if text := prefilled_text(policy.encoder.render_turns):
        log(
            f"the chat template begins every completion with {text!r}, which is part of the prompt: rewards read "
            "only the text after it"
        )
    limits = {"longest": arguments.max_completion_length or 0, "max_length": config.max_prompt_length}
    prompts, eval_prompts = (drop_long_prompts(data[name], policy, log=log, **limits) for name in DATA)
    check_number(prompts, arguments)
    table = [*prompts.rows, *eval_prompts.rows]
    columns = rows_by_prompt(table)
    accounts = {"prompts": prompts.account(), "eval_prompts": eval_prompts.account()}
    cycles = arguments.cycles(len(prompts.rows))
    facts = RunFacts(policy, cycles, arguments.seed, trust_option(arguments), columns, table)
    curriculum = open_curriculum(config, prompts, arguments.seed)
    sources = open_rewards(trained, watched, facts, work / FAULTS, skip=config.on_fault == "skip")
    contracts = sources.contracts
    trainer = PolicyTrainer(
        policy.model,
        sources,
        with_components(algorithm, config, sources.trained),
        arguments,
        prompts.dataset(),
        tokenizer=policy.encoder.tokenizer,
        eval_dataset=eval_prompts.dataset(len(prompts.rows)) if config.eval_data else None,
        critic=_critic_arguments(config),
        reference=open_reference(policy, config, arguments),
        replay=build("policy.replays", config.replay) if config.replay else None,
        curriculum=curriculum,
        peft_config=lora_config(config, policy.model),
        rollout_func=_rollouts(config, arguments, facts),
        callbacks=[WriteSteps(work / STEPS)],
    )
    trainer.run_folder = work
    return trainer, {"contracts": contracts, **accounts}


def open_curriculum(config: RlConfig, prompts: Prompts, seed: int) -> CurriculumSampler | None:
    """Return the sampler by which the curriculum chooses the next prompts. None if the settings have no curriculum."""
    if config.curriculum is None or config.category is None:
        return None
    return CurriculumSampler(
        build("policy.curricula", config.curriculum), group_by_category(prompts, config.category), seed=seed
    )


def _rollouts(config: RlConfig, arguments: PolicyArguments, facts: RunFacts) -> RolloutSource | None:
    """Return the rollout function. None if the trainer generates the completions itself."""
    if config.rollouts:
        return build("policy.rollouts", config.rollouts, seed=arguments.seed)
    if config.exchange:
        return exchange_rollouts(
            Path(config.exchange),
            agent=config.agent,
            agents=config.agents,
            timeout=config.exchange_timeout,
            seed=arguments.seed,
            log=log,
        )
    served = server_rollouts(config.rollout_server.rstrip("/")) if config.rollout_server else None
    if not config.scaffold:
        return served
    hints, schedule = hints_by_prompt(facts), build("policy.scaffolds", config.scaffold)
    longest = positions(facts.policy) - (arguments.max_completion_length or 0)
    return scaffold_rollouts(
        lambda prompt: hints[prompt_text(prompt)], schedule, longest=longest, seed=arguments.seed, rollouts=served
    )


def run(trainer: PolicyTrainer, work: Path, *, resume: bool) -> dict[str, Any]:
    """Train the policy and return the results. With `resume`, continue from the last complete checkpoint."""
    leads = trainer.accelerator.is_main_process
    checkpoint = checkpoint_to_resume(work / CHECKPOINTS, log, resume=resume, leads=leads)
    if not checkpoint and leads:  # an attempt without a checkpoint is repeated with its faults
        trainer.sources.truncate_record(0)
    arguments = trainer.args
    train_until_signal(trainer, checkpoint, every=arguments.cycle // arguments.gradient_accumulation_steps)
    early, last = trainer.state.global_step < trainer.state.max_steps, trainer.state.log_history[-2:]
    is_evaluated = any("eval_reward" in row and row["step"] == trainer.state.global_step for row in last)
    if trainer.eval_dataset is not None and not is_evaluated:
        trainer.evaluate()
    save_policy(trainer, work / POLICY)
    if not leads:
        return {}
    for name, source in trainer.sources.learners.items():
        if hasattr(source, "model"):  # other sources learn no reward model
            source.model.save(work / REWARDS / name)
    (work / CHECKPOINTS / "README.md").unlink(missing_ok=True)  # TRL's model card, which names another model
    return {
        "steps": trainer.state.global_step,
        "stopped": "kl_budget" if early else "steps",
        "faults": (work / FAULTS).read_text(encoding="utf-8").count("\n"),
        **summary(trainer.state.log_history),
        "learning_signal": asdict(trainer.signal),
    }


def _first_fault(folder: Path) -> str:
    """Return the reason of the first recorded fault, as the end of a message. Empty if there are no faults."""
    lines = (folder / FAULTS).read_text(encoding="utf-8").splitlines()
    return f"; the first of {len(lines)} faults: {json.loads(lines[0])['reason']}" if lines else ""


def _critic_arguments(config: RlConfig) -> CriticArguments | None:
    names = ("learning_rate", "lam", "clip", "hidden", "passes")
    return CriticArguments(**{name: vars(config)[f"critic_{name}"] for name in names}) if config.critic else None


def checked_algorithm(config: RlConfig, arguments: PolicyArguments) -> Algorithm:
    """Build the algorithm. Raise `UsageError` for unknown formulas and contradictory settings.

    Reward models are not loaded yet, so the components of a reward model with several objectives are still unknown.
    """
    trained, watched = sources_by_name(config.reward), sources_by_name(config.watch)
    if both := {*trained} & {*watched}:
        raise UsageError(f"'{both.pop()}' is the name of a --reward and of a --watch; rename one with NAME=SOURCE")
    algorithm = build_algorithm(config, [*trained])
    check_formulas(algorithm, _group_sizes(config, arguments), _fields(config, arguments))
    if costs := costs_sentence("--weight", algorithm.shares):
        log(costs)
    alone = [name for name in ("replay", "curriculum", "exchange", "rollouts", "scaffold") if vars(config)[name]]
    if config.processes > 1 and alone:
        raise UsageError(f"--{alone[0]} needs all completions of a step in one process; remove --processes")
    if (config.reference or config.soup) and not (config.kl or arguments.measure_kl):
        raise UsageError("nothing uses the reference policy; set --kl, or remove --reference and --soup")
    if config.rollouts and (config.scaffold or config.rollout_server or arguments.use_vllm):
        raise UsageError(
            "--rollouts searches with this process's policy; leave --scaffold, --rollout_server and --use_vllm out"
        )
    _check_exchange(config, arguments)
    if (config.curriculum is None) != (config.category is None):
        raise UsageError("a curriculum chooses between prompt categories; give --curriculum and --category together")
    if config.curriculum and CURRICULUM in {**trained, **watched}:
        raise UsageError(f"'{CURRICULUM}' is also the name of the curriculum; rename the reward with NAME=SOURCE")
    if config.lora_dropout and arguments.disable_dropout:
        raise UsageError("--lora_dropout has no effect while dropout is disabled; add --disable_dropout False")
    if config.scaffold and arguments.use_vllm:
        raise UsageError("a scaffold generates with this process's policy or --rollout_server; leave --use_vllm out")
    if arguments.use_vllm and find_spec("vllm") is None:
        raise UsageError("--use_vllm needs the package vllm, which is not installed; pip install 'rewardlab[vllm]'")
    answers = arguments.num_generations_eval or arguments.num_generations or 1
    if config.eval_data and arguments.per_device_eval_batch_size % answers:
        raise UsageError(
            f"--per_device_eval_batch_size is {arguments.per_device_eval_batch_size} and each prompt gets {answers} "
            "completions; make it a multiple of that number"
        )
    return algorithm


def _check_exchange(config: RlConfig, arguments: PolicyArguments) -> None:
    if config.exchange is None:
        if (config.agent, config.agents) != (0, 1):
            raise UsageError("--agent and --agents are settings of an exchange; add its folder with --exchange")
        return
    if not 0 <= config.agent < config.agents or config.agents < 2:
        raise UsageError(
            f"--exchange needs 2 agents or more, numbered from 0; got --agent {config.agent} --agents {config.agents}"
        )
    others = ("rollouts", "scaffold", "rollout_server", "curriculum")
    conflicts = [name for name in others if vars(config)[name]] + ["use_vllm"] * arguments.use_vllm
    if conflicts:
        raise UsageError(
            "with --exchange, completions are sampled from the policy in this process, for prompts common to all "
            f"agents; leave --{conflicts[0]} out"
        )
    if (arguments.num_generations or 1) % config.agents:
        raise UsageError(
            f"--num_generations is {arguments.num_generations} and is shared by {config.agents} agents; make it a "
            "multiple of the number of agents"
        )


def _group_sizes(config: RlConfig, arguments: PolicyArguments) -> list[int]:
    size = arguments.num_generations or 1
    return [size, arguments.num_generations_eval or size] if config.eval_data else [size]


def _fields(config: RlConfig, arguments: PolicyArguments) -> set[str]:
    """Return the names of the rollout fields that the trainer can compute with these settings."""
    fields = {"tokens", "logprobs", "entropy", *ON_REQUEST} | ({"values", "after"} if config.critic else set())
    return fields | ({"base"} if config.kl or arguments.measure_kl else set())


class WriteSteps(TrainerCallback):
    """Callback that appends logged metrics to a file. A resumed run keeps the lines before its checkpoint."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_begin(self, args, state, control, **kwargs):
        """Delete incomplete lines, and lines after the checkpoint, since these steps are repeated."""
        if state.is_world_process_zero:
            self._write(state.log_history, "w")

    def on_log(self, args, state, control, **kwargs):
        """Append the metrics that were just logged."""
        if state.is_world_process_zero:
            self._write(state.log_history[-1:], "a")

    def _write(self, rows: Sequence[Mapping[str, Any]], mode: str) -> None:
        with self.path.open(mode, encoding="utf-8") as lines:
            lines.writelines(json.dumps(to_json_types(row)) + "\n" for row in rows if "train_runtime" not in row)


def summary(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean rewards over the first and last tenth of the logged steps, and the final KL.

    First and last steps have different prompts, so `stderr` is the standard error of the difference between the two
    mean rewards. It is None if a step has only one prompt.
    """
    rows = [row for row in history if "reward" in row]
    tenth = max(1, len(rows) // 10)
    first, last = rows[:tenth], rows[-tenth:]

    def ends(mean: str, stderr: str) -> dict[str, float | None]:
        errors = [_stderr(part, mean, stderr) for part in (first, last)]
        error = None if None in errors else math.hypot(*errors)
        return {"start": _mean(first, mean), "end": _mean(last, mean), "stderr": error}

    names = dict.fromkeys(
        name.removesuffix("/mean")
        for row in reversed(rows)  # rows of a loaded checkpoint have their names in alphabetical order
        for name in row
        if name.startswith("rewards/") and name.endswith("/mean")
    )
    rewards = {name.removeprefix("rewards/"): ends(f"{name}/mean", f"{name}/stderr") for name in names}
    ends_of_run = {"reward": ends("reward", "reward_stderr"), "rewards": rewards, "kl": _mean(last, "watch/kl")}
    if any("reward_own" in row for row in rows):
        ends_of_run["reward_own"] = ends("reward_own", "reward_own_stderr")
    return ends_of_run | {name: row[name] for row in history for name in row if name == "eval_reward"}


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return fmean(values) if values else None


def _stderr(rows: Sequence[Mapping[str, Any]], mean: str, stderr: str) -> float | None:
    """Return the standard error of the mean over the steps with a value of `mean`."""
    errors = [row.get(stderr) for row in rows if row.get(mean) is not None]
    return math.hypot(*errors) / len(errors) if errors and None not in errors else None


def hints_of(rubric: Rubric) -> Hints:
    """Convert a rubric to hints: include what its criteria reward, avoid what they penalize or forbid.

    >>> from ....judges.rubrics.rubric import Principle
    >>> hints_of(Rubric((), (Principle("c1", "Advises rest.", 4.0), Principle("c2", "Invents a dose.", -1.0))))
    Hints(include=('Advises rest.',), avoid=('Invents a dose.',))
    """
    rules = [(rule.criterion, rule.type == "must") for rule in rubric.rules]
    criteria = [*rules, *((principle.description, principle.weight > 0) for principle in rubric.principles)]
    include, avoid = (tuple(text for text, good in criteria if good is is_positive) for is_positive in (True, False))
    return Hints(include, avoid)


def hints_by_prompt(run: RunFacts) -> dict[str, Hints]:
    """Return the hints of the rubric in each prompt's row, by the prompt's text."""
    return {text: hints_of(rubric) for text, rubric in run.one_by_prompt(rubric_of_row).items()}
