"""`rewardlab rl`: policy training on prompts and rewards, with metrics and rollouts of each step."""

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel

from ....policy.decoding.language_models import DecodingModel, decoding_model, positions, shared_vocabulary
from ....policy.rollouts.vllm.completions import server_rollouts
from ....policy.scaffolds._scaffold import Rollouts, scaffolded
from ....policy.training.agent_exchange import exchanged
from ....policy.training.arguments import PolicyArguments
from ....policy.training.critic import CriticArguments
from ....policy.training.prompt_sampling import CURRICULUM, DrawnPrompts
from ....policy.training.reference_policy import soup
from ....policy.training.trainer import PolicyTrainer
from ....rm.backbones.loading import load_causal_lm, load_tokenizer
from ....rm.backbones.lora_classifier import check_targets
from ....rm.backbones.packing.attention import set_attention
from ....rm.backbones.tokenization import check_renders
from ....rm.data.preference_vectors import costs_sentence
from ....rm.errors import CheckFailed, UsageError
from ....rm.io.hub_names import whole_name
from ....rm.io.sharded_weights import gathered_state
from ....rm.registry.specs import build
from ....rm.training import CHECKPOINTS
from ....rm.training.checkpointing import last_complete_checkpoint
from ....rm.training.distributed import broadcast_from_rank_0
from ....rm.types import prompt_text
from ...rewards._run import RunFacts
from ...runs.processes import shared_run_folder, trained_by
from ...runs.run_folder import data_hash, log, seconds_since, training_recipe, trust, write_manifest
from ...runs.stop_training import train_until_asked
from ...runs.tables import STEPS
from .composition import (
    build_algorithm,
    check_formulas,
    check_functions,
    check_with_rewards,
    named_sources,
    open_rewards,
)
from .prompts import Prompts, by_kind, check_number, fitting, hints_by_prompt, load_prompts, log_prefilled, rows_of
from .settings import RlConfig
from .step_metrics import WriteSteps, summary

POLICY, REWARDS, FAULTS = "policy", "rewards", "faults.jsonl"
FREE = ("resume", "overwrite", "output", "exchange_timeout", "processes")  # may be others when a run is resumed


def train_policy(config: RlConfig, arguments: PolicyArguments) -> dict[str, Any]:
    """Train a policy on rewards and save its run folder."""
    output, started = config.output or arguments.output_dir, time.time()
    check_together(config, arguments)
    here, recipe = trained_by(config.processes, "rl", arguments), _recipe(config, arguments)
    folder_options = {"overwrite": config.overwrite, "resume": config.resume, "keep": STEPS}
    with shared_run_folder(output, recipe, here, **folder_options) as work:
        arguments.output_dir = str(work / CHECKPOINTS)
        trainer, account = prepare(config, arguments, work)
        facts = run(trainer, work, resume=config.resume)
        if here.leads:
            data = [*config.data, *config.eval_data]
            account["arguments"] = arguments.to_sanitized_dict()
            write_manifest(work, data=data, seed=arguments.seed, started=started, **account, **facts)
    if fault := broadcast_from_rank_0(trainer.signal.fault):  # which waits until the folder is complete
        raise CheckFailed(
            f"{output}: nothing was learned from the rewards: {fault}{_first_fault(Path(output))}; mend the rewards, "
            "or take prompts whose completions differ in them"
        )
    if not here.leads:
        return {"output": output, "processes": here.world, "rank": here.rank}
    return {"output": output, "policy": f"{output}/{POLICY}", **facts, "seconds": round(seconds_since(started), 1)}


def check_together(config: RlConfig, arguments: PolicyArguments) -> None:
    """Raise a `UsageError` for unknown formulas and contradictory settings, before anything is loaded."""
    trained, watched = named_sources(config)
    if both := {*trained} & {*watched}:
        raise UsageError(f"'{both.pop()}' is called both a reward and watched; call one of them NAME=SOURCE")
    algorithm = build_algorithm(config, [*trained])
    if costs := costs_sentence("--weight", algorithm.shares):
        log(costs)
    check_formulas(algorithm, config, arguments)
    alone = [name for name in ("replay", "curriculum", "exchange", "rollouts", "scaffold") if getattr(config, name)]
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
    taken = [name for name in others if getattr(config, name)] + ["use_vllm"] * arguments.use_vllm
    if taken:
        raise UsageError(
            f"--exchange has this process's policy answer prompts that all agents have in common; leave --{taken[0]} "
            "out"
        )
    if (arguments.num_generations or 1) % config.agents:
        raise UsageError(
            f"--num_generations is {arguments.num_generations} and is shared by {config.agents} agents; make it a "
            "multiple"
        )


def _recipe(config: RlConfig, arguments: PolicyArguments) -> dict[str, Any]:
    recipe = {name: value for name, value in asdict(config).items() if name not in FREE}
    recipe |= {name: list(map(without_limit, recipe[name])) for name in ("reward", "watch")}
    recipe["data_sha256"] = {source: data_hash(source) for source in [*config.data, *config.eval_data]}
    return training_recipe(recipe, arguments)


def without_limit(reward: str) -> str:
    """Return a reward's text without its limit of cost, which may be raised when resuming.

    >>> without_limit("judge(model=M, max_cost=2.5, score=points)"), without_limit("judge(max_cost=1e-3, model=M)")
    ('judge(model=M, score=points)', 'judge(model=M)')
    """
    return re.sub(r",\s*max_cost\s*=\s*[^,()\s]+|(?<=\()\s*max_cost\s*=\s*[^,()\s]+\s*,?\s*", "", reward)


def prepare(config: RlConfig, arguments: PolicyArguments, work: Path) -> tuple[PolicyTrainer, dict[str, Any]]:
    """Return the trainer and its facts for the manifest; the cheapest parts are loaded first, to fail early."""
    check_renders(load_tokenizer(config.model, chat_template=config.chat_template, **trust(arguments)))
    prompts, eval_prompts = load_prompts(config, "data"), load_prompts(config, "eval_data")
    check_functions(config, [*prompts.rows, *eval_prompts.rows])
    policy = open_language_model(config.model, config, arguments)
    prompts, eval_prompts = (fitting(prompt_set, policy, config, arguments) for prompt_set in (prompts, eval_prompts))
    check_number(prompts, arguments)
    log_prefilled(policy)
    cycles, rows = arguments.cycles(len(prompts.prompts)), rows_of(prompts, eval_prompts)
    facts = RunFacts(policy, cycles, arguments.seed, trust(arguments), rows, [*prompts.rows, *eval_prompts.rows])
    curriculum = open_curriculum(config, prompts, arguments.seed)
    rewards = open_rewards(config, facts, work / FAULTS)
    algorithm = build_algorithm(config, rewards.components)
    check_with_rewards(algorithm, rewards, config, arguments)
    trainer = PolicyTrainer(
        policy.model,
        rewards.sources,
        algorithm,
        arguments,
        prompts.dataset(),
        tokenizer=policy.encoder.tokenizer,
        eval_dataset=eval_prompts.dataset(len(prompts.rows)) if config.eval_data else None,
        critic=_critic(config),
        reference=open_reference(policy, config, arguments),
        replay=build("policy.replays", config.replay) if config.replay else None,
        curriculum=curriculum,
        peft_config=_lora(config, policy.model),
        rollout_func=_rollouts(config, arguments, facts),
        callbacks=[WriteSteps(work / STEPS)],
    )
    trainer.run_folder = work
    contracts = {
        name: source.contract.hash() for name, source in rewards.sources.sources.items() if hasattr(source, "contract")
    }
    return trainer, {"contracts": contracts, "prompts": prompts.account(), "eval_prompts": eval_prompts.account()}


def open_curriculum(config: RlConfig, prompts: Prompts, seed: int) -> DrawnPrompts | None:
    """Return the curriculum that chooses the next prompts; None without one."""
    if config.curriculum is None or config.category is None:
        return None
    return DrawnPrompts(build("policy.curricula", config.curriculum), by_kind(prompts, config.category), seed=seed)


def _rollouts(config: RlConfig, arguments: PolicyArguments, facts: RunFacts) -> Rollouts | None:
    """Return the source of completions; None if the trainer generates them itself."""
    if config.rollouts:
        return build("policy.rollouts", config.rollouts, seed=arguments.seed)
    if config.exchange:
        return exchanged(
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
    return scaffolded(
        lambda prompt: hints[prompt_text(prompt)], schedule, longest=longest, seed=arguments.seed, written_by=served
    )


def run(trainer: PolicyTrainer, work: Path, *, resume: bool) -> dict[str, Any]:
    """Train, from the last complete checkpoint when resuming; return the results."""
    leads = trainer.accelerator.is_main_process
    checkpoint = broadcast_from_rank_0(last_complete_checkpoint(work / CHECKPOINTS, log) if resume and leads else None)
    if checkpoint:
        log(f"resuming from {checkpoint.name}")
    elif leads:  # an attempt without a checkpoint is repeated with its faults
        trainer.sources.forget_after(0)
    arguments = trainer.args
    train_until_asked(trainer, checkpoint, every=arguments.cycle // arguments.gradient_accumulation_steps)
    early = trainer.state.global_step < trainer.state.max_steps
    if trainer.eval_dataset is not None:
        trainer.evaluate()
    trainer.model.config.use_cache = True  # Transformers' loop switches it off
    weights = gathered_state(trainer.model)
    if not leads:
        return {}
    trainer.model.save_pretrained(work / POLICY, state_dict=weights)
    trainer.processing_class.save_pretrained(work / POLICY)
    for name, source in trainer.sources.learners.items():
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
    """Return the reason of the first fault as the end of a sentence; empty without faults."""
    lines = (folder / FAULTS).read_text(encoding="utf-8").splitlines()
    return f"; the first of {len(lines)} faults: {json.loads(lines[0])['reason']}" if lines else ""


# ---- parts ----


def _critic(config: RlConfig) -> CriticArguments | None:
    names = ("learning_rate", "lam", "clip", "hidden", "passes")
    return CriticArguments(**{name: getattr(config, f"critic_{name}") for name in names}) if config.critic else None


# ---- language models ----


def open_language_model(source: str, config: RlConfig, arguments: PolicyArguments) -> DecodingModel:
    """Load a language model and its tokenizer; an adapter is merged, a reward model is an error."""
    source = whole_name(source)  # an adapter keeps the name of its base
    tokenizer = load_tokenizer(source, chat_template=config.chat_template, **trust(arguments))

    def load(name: str) -> Any:
        return load_causal_lm(name, tokenizer, dtype=config.dtype, device=str(arguments.device), **trust(arguments))

    model: Any = load(source)
    if settings := getattr(model, "peft_config", None):
        if config.lora:
            raise UsageError(f"{source} is an adapter already; leave --lora out to train on, or start from its base")
        base = load(next(iter(settings.values())).base_model_name_or_path)
        model = PeftModel.from_pretrained(base, source).merge_and_unload().requires_grad_(True)
    set_attention(model, arguments.attn_implementation)
    return decoding_model(model, tokenizer)


def open_reference(policy: DecodingModel, config: RlConfig, arguments: PolicyArguments) -> Any:
    """Load the reference policy, if it is not the start policy."""

    def opened(source: str) -> Any:
        other = open_language_model(source, config, arguments)
        shared_vocabulary([policy, other])
        return other.model

    base = opened(config.reference) if config.reference else None
    if config.soup is None:
        return base
    return soup(base or policy.model, opened(config.soup), config.soup_share)


def _lora(config: RlConfig, model: Any) -> LoraConfig | None:
    if not config.lora:
        return None
    targets: Any = config.lora_target_modules
    if targets != ["all-linear"]:
        check_targets(model, targets)
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )
