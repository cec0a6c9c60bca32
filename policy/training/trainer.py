"""Policy trainer: TRL's GRPOTrainer with our rewards, formulas, critic and checkpoints; sampling stays TRL's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOTrainer

from ...kernels.policy_loss import ClipRule, PolicyLoss
from ...rm.backbones.tokenization import Encoder, describe_tokenizer
from ...rm.contract.scoring_contract import ScoringContract
from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ...rm.training.checkpointing import MarkComplete
from ...rm.training.fault_tolerance import FaultTolerantTrainer, Piece
from ...rm.types import Example
from ..composition.algorithm import Algorithm
from ..composition.check import RunInputs, check_composition
from ..composition.completion_gradients import attach_slopes, completions_of
from ..composition.completion_losses import compares_completions, completion_loss
from ..composition.rows import behind
from ..composition.token_losses import TokenLoss
from ..composition.token_objective import token_objective
from ..rewards.sources import RewardSources
from ..rewards.step_rewards import CompletionTokens
from ..types import Cycle, Replay, Rollout
from .arguments import PolicyArguments, refuse_balancing
from .checkpoint import load_beside, save_beside
from .critic import CriticArguments, CriticLearner, Targets
from .forward import CompletionBatch, Reading, at_completions, batch_of, completion_batch, install, own_states
from .metrics import LearningSignal, token_metrics
from .monitoring import log_ratio
from .prompt_sampling import CURRICULUM, DrawnPrompts, refuse_variants, spread_over_variants
from .reference_policy import frozen_copy, read_reference
from .replay_buffer import Batch, ReplayBuffer
from .rollout_files import write_rollouts
from .step_callback import AroundSteps
from .step_inputs import finished_rows, later, log_step, loss_inputs, rewards_everywhere, writers_of


class PolicyTrainer(GRPOTrainer, FaultTolerantTrainer):
    """Trains a policy on reward models. Methods with a name of `GRPOTrainer` override it; read the two side by side.

    `reference` is the reference policy of the KL; by default the initial policy: the model with its adapter disabled,
    or a frozen copy.
    """

    loss_name = "the policy's loss"
    args: PolicyArguments
    model: Any
    accelerator: Any
    processing_class: Any
    num_generations: Any

    def __init__(
        self,
        model: Any,
        sources: RewardSources,
        algorithm: Algorithm,
        args: PolicyArguments,
        train_dataset: Any,
        *,
        tokenizer: Any,
        eval_dataset: Any = None,
        critic: CriticArguments | None = None,
        reference: Any = None,
        replay: Replay | None = None,
        curriculum: DrawnPrompts | None = None,
        peft_config: Any = None,
        rollout_func: Any = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        if replay and args.num_iterations < 2:
            raise UsageError(
                "a replay takes the first pass over each batch of completions; give num_iterations of 2 or more"
            )
        if compares_completions(algorithm.rule) and not args.disable_dropout:
            raise UsageError(
                "this loss reads every completion twice, which dropout would change; set disable_dropout True"
            )
        if rollout_func or (args.use_vllm and args.vllm_mode == "server"):
            refuse_variants(train_dataset, eval_dataset)
        compares = args.measure_kl or algorithm.penalty.beta != 0
        if compares and reference is None and peft_config is None and not hasattr(model, "peft_config"):
            reference = frozen_copy(model)
        super().__init__(
            model=model,
            # TRL requires a reward function; `_generate_and_score_completions` computes the rewards instead
            reward_funcs=[later],
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            peft_config=peft_config,
            rollout_func=rollout_func,
            callbacks=[MarkComplete(), *callbacks],
        )
        self.mask_truncated_completions = False  # TRL would hide them from rewards too; `Algorithm` masks the loss
        refuse_balancing(self)
        self.run_folder = Path(args.output_dir)  # of rollouts; checkpoints are in args.output_dir
        self.sources, self.algorithm, self.curriculum = sources, algorithm, curriculum
        self.learners = sources.learners | ({CURRICULUM: curriculum} if curriculum else {})
        self.replay_buffer = ReplayBuffer(replay, args.steps_per_generation or 1) if replay else None
        self.encoder = Encoder(tokenizer, ScoringContract(kind="policy", **describe_tokenizer(tokenizer)))
        self.language_model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        install(self.language_model, temperature=self.temperature)
        self.reference = None if reference is None else self._load_reference(reference)
        width = self.language_model.config.get_text_config().hidden_size
        self.learner = CriticLearner(width, critic, self.accelerator.device) if critic else None
        self._cycle: Cycle | None = None
        self._states: dict[int, Tensor] = {}
        self._log_ratios: list[Tensor] = []
        self.live, self.learns, self.kl, self.signal = False, False, 0.0, LearningSignal()
        check_composition(algorithm, self._run_inputs())
        self.add_callback(AroundSteps(self))

    def _run_inputs(self) -> RunInputs:
        """Return which inputs this run provides to its formulas."""
        fields = {"tokens"} | ({"base"} if self._compares else set()) | ({"values", "after"} if self.learner else set())
        fields |= {"logprobs", "entropy"} if self._annotates else set()
        sizes = [self.num_generations, *([self.num_generations_eval] if self.eval_dataset is not None else [])]
        fields |= self.algorithm.reads & {"states"}
        process_rewards = self.sources.process_rewards
        return RunInputs(self.sources.names, sizes, fields, self.sources.ensembles, process_rewards=process_rewards)

    # ---- forward passes over completions ----

    @property
    def _compares(self) -> bool:
        return self.args.measure_kl or self.algorithm.penalty.beta != 0

    @property
    def _annotates(self) -> bool:
        """Whether log-probabilities, states or values are needed before the loss is computed."""
        later = self.args.gradient_accumulation_steps % self.args.cycle != 0
        annotates = self.learner or self.replay_buffer or self.sources.reads_states or self.algorithm.penalty.in_reward
        return bool(later or annotates or self.rollout_func or self.algorithm.reads & {"logprobs", "entropy", "states"})

    def _load_reference(self, reference: Any) -> Any:
        reference.requires_grad_(False).eval()
        install(reference, temperature=self.temperature)
        return self.accelerator.prepare_model(reference, evaluation_mode=True)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False, **_
    ):
        """Override TRL's log-probabilities, which it uses to correct for the sampling engine."""
        P = input_ids.shape[1] - logits_to_keep
        completion_mask = attention_mask[:, P:]
        computed = self._read(
            model,
            completion_batch(
                input_ids[:, :P], attention_mask[:, :P], input_ids[:, P:], completion_mask, completion_mask.bool()
            ),
        )
        return computed.logprob, computed.entropy, None

    @torch.no_grad()
    def _read(self, model: Any, rows: CompletionBatch) -> Reading:
        """Run the model in chunks of the training batch size."""
        parts = zip(*(row.split(self.args.per_device_train_batch_size) for row in rows), strict=True)
        outputs = [model(completions=CompletionBatch(*part)) for part in parts]
        return Reading(*(torch.cat(column) for column in zip(*outputs, strict=True)))

    # ---- completions and their rewards ----

    def _tokenize_prompts(self, prompts: list):
        """Tokenise prompts as reward models and guided decoding do, instead of with TRL's own template call."""
        return [self.encoder.encode_prompt(as_prompt(prompt)) for prompt in prompts], None, {}

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Return zeros: rewards are computed later, when hidden states are available that some reward models read."""
        texts = self.processing_class.batch_decode(
            completion_ids_list, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        self._examples = [Example(as_prompt(prompt), text) for prompt, text in zip(prompts, texts, strict=True)]
        self._rows = [row.get("row", 0) for row in inputs]
        self._completion_ids = completion_ids_list
        return torch.zeros(len(prompts) * self.accelerator.num_processes, 1, device=self.accelerator.device)

    def _generate_and_score_completions(self, inputs):
        """Generate with TRL and add our rewards; returns advantages, weights and loss inputs of this process's rows."""
        if self.curriculum and self.model.training:
            inputs = self.curriculum.drawn(inputs, self.num_generations)
        inputs = spread_over_variants(inputs, self._size, first=self.accelerator.process_index * len(inputs))
        batch = super()._generate_and_score_completions(inputs)
        training, rows = self.model.training, batch_of(batch)
        writes = training and self.args.rollout_steps > 0 and self.state.global_step % self.args.rollout_steps == 0
        read = self._read(self.model, rows) if self._annotates or writes else None
        base = read_reference(self, rows).logprob if self._compares else None
        states = None if read is None or not self.sources.reads_states else own_states(read.states, rows)
        tokens = CompletionTokens(self.processing_class, self._completion_ids, rows.response.shape[1])
        finished = finished_rows(batch, rows.response, self.eos_token_ids).tolist()
        rewards, faults = self.sources(self._examples, states, self._rows, tokens, finished)
        rollout = self._everywhere(batch, rows, read, base)
        if "sampling_per_token_logps" in batch and rollout.logprobs is not None:
            written = self._gather(batch["sampling_per_token_logps"]).to(rollout.logprobs.dtype)
            written = torch.where(written.isnan(), rollout.logprobs, written) * rollout.response
            rollout = rollout._replace(written=written)
        # evaluation must not change the state of the formulas
        before = self.algorithm.state
        everywhere, masks = rewards_everywhere(self, rewards), self.args.mask_truncated_completions
        scored = self.algorithm(everywhere, rollout, mask_truncated=masks)
        if not training:
            self.algorithm.load(before)
        is_own = torch.tensor([row_inputs.get("own", True) for row_inputs in inputs], device=rows.tokens.device)
        log_step(self, scored, rollout, int(self._sum(len(faults))), self._gather(is_own))
        batch |= loss_inputs(self, scored, rollout, rows.response.shape[1])
        batch["row"] = torch.arange(len(inputs), device=rows.tokens.device)
        if training:
            examples = gather_object(self._examples) if writes or self.learners else []
            writers = gather_object(writers_of(self, inputs, batch)) if writes else []
            if writes and self.accelerator.is_main_process:
                path = self.run_folder / "rollouts" / f"step-{self.state.global_step:06d}.parquet"
                record = (scored.rewards, scored.advantages, self.sources.versions, writers)
                write_rollouts(path, self.state.global_step, examples, rollout, *record)
            self._cycle = Cycle(examples, rollout, scored.total, None, scored.advantage)
            if self.replay_buffer:
                self.replay_buffer.next_cycle(batch, scored, rollout)
        return batch

    def _everywhere(self, batch: Batch, rows: CompletionBatch, read: Reading | None, base: Tensor | None) -> Rollout:
        """Gather the completions of all processes, because a group may be spread over them."""
        reads = self.algorithm.reads
        values = after = None
        if self.learner and read is not None:
            with torch.no_grad():
                critic_values = self.learner.critic(at_completions(read.states, rows))
            values = critic_values[:, :-1] * rows.response
            after = critic_values.gather(1, behind(rows.response)[:, None]).squeeze(1)
        finished = self._gather(finished_rows(batch, rows.response, self.eos_token_ids))
        return Rollout(
            group=torch.arange(len(finished), device=finished.device) // self._size,
            response=self._gather(rows.response),
            finished=finished,
            tokens=self._gather(batch["completion_ids"]),
            logprobs=None if read is None else self._gather(read.logprob),
            base=None if base is None else self._gather(base),
            values=None if values is None else self._gather(values),
            after=None if after is None else self._gather(after),
            entropy=None if read is None else self._gather(read.entropy),
            states=self._gather(at_completions(read.states, rows)[:, :-1]) if read and "states" in reads else None,
        )

    def _gather(self, x: Tensor, padding: float = 0) -> Tensor:
        """Gather rows of all processes, padded to the widest."""
        if x.dtype == torch.bool:  # padding would convert to int64, and only in the processes that need padding
            return self._gather(x.byte()).bool()
        pads: Any = self.accelerator.pad_across_processes
        return self.accelerator.gather(pads(x, dim=1, pad_index=padding) if x.dim() > 1 else x)

    def _sum(self, number: Any) -> float:
        """Sum a number over all processes."""
        return self.accelerator.reduce(torch.as_tensor(number, device=self.accelerator.device).float()).item()

    @property
    def _size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    def _note(self, name: str, value: float) -> None:
        self._metrics[self._mode][name].append(float(value))

    def _prepare_inputs(self, generation_batch):
        """Return TRL's micro-batch, or one of previous completions in the first pass of a cycle with replay."""
        if isinstance(generation_batch, Piece):
            return generation_batch
        inputs = super()._prepare_inputs(generation_batch)
        turn, index = divmod(self._step % self.args.cycle, self.args.steps_per_generation or 1)
        past = self.replay_buffer.micro_batches if self.replay_buffer and turn == 0 and self.model.training else None
        inputs = past[index] if past else inputs
        # slopes couple completions of different micro-batches, so all are read before a step trains on the first
        if compares_completions(self.algorithm.rule):
            micro_batches: Any = past or (self._buffered_inputs if self.model.training else [inputs])
            if index == 0 or self._step % self.args.gradient_accumulation_steps == 0 or not self.model.training:
                attach_slopes(self, micro_batches)
            inputs = micro_batches[index if self.model.training else 0]
        return inputs

    def rows_of(self, inputs):
        """Return the number of completions; None with several processes, since splitting breaks collective calls."""
        return len(inputs["weights"]) if self.accelerator.num_processes == 1 else None

    # ---- the loss ----

    def _compute_loss(self, model, inputs):
        """Σ w (L + β KL) - entropy Σ w H over the micro-batch's tokens; also trains the critic."""
        rows, algorithm = batch_of(inputs), self.algorithm
        read = model(completions=rows)
        weights, importance = inputs["weights"], inputs.get("importance_sampling_ratio", 1.0)
        old = inputs.get("old_per_token_logps")
        old = read.logprob.detach() if old is None else old
        tokens = (read.logprob, old, inputs["advantages"], weights, rows.response)
        loss = token_objective(algorithm, *tokens, base=inputs.get("base"), importance=importance)
        if not isinstance(algorithm.rule, ClipRule | TokenLoss):
            completions = completions_of(self, read.logprob, rows, weights * importance, inputs)
            of_rule = completion_loss(algorithm.rule, completions, (weights * importance).sum(1), inputs)
            loss = loss._replace(total=loss.total + of_rule)
        self._account(loss, read, rows, inputs)
        if self.replay_buffer and self.model.training:
            self.replay_buffer.record_clipped(inputs["row"], loss.sums)
        if self.learner and self.model.training and inputs["value_weights"].any() and "valued" not in inputs:
            self._learn_values(self.learner, read, rows, inputs)
        if self.sources.learners and self.sources.reads_states and self.model.training:
            states = zip(inputs["row"].tolist(), own_states(read.states.detach(), rows), strict=True)
            fresh = self.args.per_device_train_batch_size * int(self.args.steps_per_generation or 1)
            self._states |= {row: state for row, state in states if row < fresh}  # the others are replayed
        regularised = algorithm.penalty.beta != 0 or algorithm.entropy != 0
        self.learns |= self.model.training and bool((inputs["advantages"] * weights).any())
        self.live |= self.learns or (self.model.training and regularised and bool(weights.any()))
        return loss.total - (algorithm.entropy * (weights * read.entropy).sum() if algorithm.entropy else 0.0)

    def _learn_values(self, learner: CriticLearner, read: Reading, rows: CompletionBatch, inputs: Batch) -> None:
        targets = Targets(inputs["values"], inputs["returns"], inputs["value_weights"] > 0, inputs["value_weights"])
        loss = learner.learn(at_completions(read.states.detach(), rows), targets)
        self.check_finite(loss, "the critic's loss")
        self._note("critic/loss", loss)
        inputs["valued"] = True  # not again if the piece is repeated for lack of memory

    def _account(self, loss: PolicyLoss, read: Reading, rows: CompletionBatch, inputs: Batch) -> None:
        """Log means over the micro-batch's tokens."""
        compares = self._compares
        for name, value in token_metrics(loss, read.entropy, rows.response, self.accelerator, compares=compares):
            self._note(name, value)
        if compares and not self._annotates and "compared" not in inputs:
            self._log_ratios.append(log_ratio(read.logprob.detach(), inputs["base"], rows.response))
            inputs["compared"] = True  # not again if the piece is repeated for lack of memory
            if not self.model.training:
                self._watch_kl()

    def _watch_kl(self) -> None:
        """Log the mean KL of the completions that were compared since the last call; the KL budget limits it."""
        if self._log_ratios:
            ratios = torch.cat(self._log_ratios)
            kl = self._sum(ratios.sum()) / self._sum(len(ratios))
            self._note("watch/kl", kl)
            self.kl = kl if self.model.training else self.kl
            self._log_ratios.clear()

    # ---- checkpoints ----

    def _save_checkpoint(self, model, trial):
        """Save TRL's checkpoint, and the state of formulas, critic, replay, curriculum and online reward models."""
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            save_beside(self, Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}")

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Load TRL's optimizer state and ours."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            load_beside(self, Path(checkpoint))

    def _run_epoch(self, **epoch):
        """Run an epoch; none if the checkpoint that was loaded has exhausted the KL budget."""
        self.control.should_training_stop |= self.kl > self.args.kl_budget
        if not self.control.should_training_stop:
            super()._run_epoch(**epoch)

    # ---- around an optimizer step ----

    def before_step(self, optimizer: Any) -> None:
        """Drop all-zero gradients if there is nothing to learn: AdamW would still move the weights."""
        if not self._sum(self.live):
            optimizer.zero_grad(set_to_none=True)
            self._note("skipped_steps", 1.0)
        self.signal += LearningSignal(updates=int(self._sum(self.learns) > 0))
        self.live = self.learns = False

    def after_step(self) -> None:
        """Step the critic's optimizer, and log the KL of the step's completions."""
        if self.learner:
            self.learner.step()
        self._watch_kl()

    def after_cycle(self) -> None:
        """Train online reward models and the curriculum after the last micro-batch of a cycle."""
        if self._cycle is None or self._step % self.args.cycle:
            return
        states = gather_object([self._states[row] for row in sorted(self._states)]) if self._states else None
        for name, learner in self.learners.items():
            for fact, value in learner.learn(self._cycle._replace(states=states)).items():
                self._note(f"{name}/{fact}", value)
        self._cycle, self._states = None, {}
