"""Policy trainer: TRL's GRPOTrainer and its sampling, with our rewards, formulas, critic and checkpoints."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import use_adapter

from ...kernels.policy_loss import PolicyLoss
from ...rm.backbones.forward_hooks import language_model_of
from ...rm.backbones.tokenization import Encoder, describe_tokenizer
from ...rm.contract.scoring_contract import ScoringContract
from ...rm.data.conversation_split import as_prompt
from ...rm.training.checkpointing import MarkComplete
from ...rm.training.fault_tolerance import FaultTolerantTrainer, Piece
from ...rm.types import Example
from ..losses._kinds import compares_completions
from ..rewards.sources import RewardSources
from ..rewards.step_rewards import CompletionTokens
from ..step import metrics
from ..step.algorithm import Algorithm, Scored
from ..step.composition import RunInputs, check_composition
from ..step.forward import (
    Batch,
    CompletionBatch,
    PolicyOutputs,
    batch_of,
    completion_batch,
    completion_states,
    finished_rows,
    frozen_copy,
    install,
    own_states,
    prompt_logprobs,
    vocabulary_logprobs,
)
from ..step.step import PolicyStep, Processes
from ..types import ON_REQUEST, Cycle, Replay, Rollout
from .arguments import PolicyArguments, check_run, refuse_balancing
from .checkpoint import TrainedState
from .critic import CriticArguments, CriticLearner
from .prompts import CURRICULUM, CurriculumSampler, refuse_variants, spread_over_variants
from .replay_buffer import ReplayBuffer
from .rollout_files import write_rollouts
from .self_teacher import teacher_logprobs
from .trl_hooks import StepEvents, replace_statistics, uncalled_reward


class PolicyTrainer(GRPOTrainer, FaultTolerantTrainer):
    """Trainer of a policy with reward models, based on TRL's `GRPOTrainer`.

    `reference` is the reference policy of the KL penalty. By default it is the initial policy: the model with its
    adapter disabled, or a frozen copy.
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
        curriculum: CurriculumSampler | None = None,
        peft_config: Any = None,
        rollout_func: Any = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        check_run(args, algorithm, replay, sources.compares)
        if rollout_func or (args.use_vllm and args.vllm_mode == "server"):
            refuse_variants(train_dataset, eval_dataset)
        self.compares = args.measure_kl or algorithm.penalty.beta != 0
        # PEFT sets `peft_config`: the initial policy is the model without its adapter
        if self.compares and reference is None and peft_config is None and not hasattr(model, "peft_config"):
            reference = frozen_copy(model)
        super().__init__(
            model=model,
            reward_funcs=[uncalled_reward],
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            peft_config=peft_config,
            rollout_func=rollout_func,
            callbacks=[MarkComplete(), *callbacks],
        )
        self.mask_truncated_completions = False  # TRL would hide them from rewards too; `Algorithm` masks the loss
        if self.aux_loss_enabled:
            refuse_balancing(self.router_aux_loss_coef)
        self.cycle, self.attaches_slopes = args.cycle, compares_completions(algorithm.rule)
        self.run_folder = Path(args.output_dir)  # of rollouts; checkpoints are in args.output_dir
        self.sources, self.algorithm, self.curriculum = sources, algorithm, curriculum
        self.processes = Processes(self.accelerator)
        self.replay_buffer = ReplayBuffer(replay, args.steps_per_generation or 1) if replay else None
        self.encoder = Encoder(tokenizer, ScoringContract(kind="policy", **describe_tokenizer(tokenizer)))
        self.language_model = language_model_of(self.model)
        install(self.language_model, temperature=self.temperature)
        reads_head = "head" in algorithm.reads
        self._head = vocabulary_logprobs(self.language_model, self.temperature) if reads_head else None
        self.reference = reference
        if reference is not None:
            install(reference.requires_grad_(False).eval(), temperature=self.temperature)
            self.reference = self.accelerator.prepare_model(reference, evaluation_mode=True)
        width = self.language_model.config.get_text_config().hidden_size
        self.learner = CriticLearner(width, critic, self.accelerator.device) if critic else None
        learners = sources.learners | ({CURRICULUM: curriculum} if curriculum else {})
        self.trained_state = TrainedState(algorithm, sources, learners, self.learner, self.replay_buffer)
        self._log_ratios: list[Tensor] = []
        self.live, self.learns, self.kl, self.signal = False, False, 0.0, metrics.LearningSignal()
        check_composition(algorithm, self._run_inputs())
        self.add_callback(StepEvents(self.before_step, self.after_step, self.end_step))

    def _run_inputs(self) -> RunInputs:
        """Return the description of the inputs that this run provides to its formulas."""
        fields = {"tokens"} | ({"base"} if self.compares else set()) | ({"values", "after"} if self.learner else set())
        fields |= ({"logprobs", "entropy"} if self._annotates else set()) | (self.algorithm.reads & {*ON_REQUEST})
        sizes = [self.num_generations, *([self.num_generations_eval] if self.eval_dataset is not None else [])]
        s = self.sources
        return RunInputs(s.names, sizes, fields, s.ensembles, s.watched, s.process_rewards, s.step_names)

    @property
    def step(self) -> PolicyStep:
        """The computations of a step in training or evaluation."""
        size = self.num_generations if self.model.training else self.num_generations_eval
        return PolicyStep(self.algorithm, int(size), self.processes)

    # ---- forward passes over completions ----

    @property
    def _annotates(self) -> bool:
        """Whether log-probabilities, states or values are needed before the loss is computed."""
        later = self.args.gradient_accumulation_steps % self.cycle != 0
        annotates = self.learner or self.replay_buffer or self.sources.reads_states or self.algorithm.penalty.in_reward
        return bool(
            later or annotates or self.rollout_func or self.algorithm.reads & {"logprobs", "entropy", *ON_REQUEST}
        )

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False, **_
    ):
        """Override: compute the log-probabilities for TRL's importance correction in the same way as in the loss."""
        P = input_ids.shape[1] - logits_to_keep
        mask = attention_mask[:, P:]
        rows = completion_batch(input_ids[:, :P], attention_mask[:, :P], input_ids[:, P:], mask, mask.bool())
        reading = self._read(model, rows)
        return reading.logprob, reading.entropy, None

    @torch.no_grad()
    def _read(self, model: Any, rows: CompletionBatch) -> PolicyOutputs:
        """Run the model in chunks of the training batch size."""
        parts = zip(*(row.split(self.args.per_device_train_batch_size) for row in rows), strict=True)
        outputs = [model(completions=CompletionBatch(*part)) for part in parts]
        return PolicyOutputs(*(torch.cat(column) for column in zip(*outputs, strict=True)))

    def _read_reference(self, rows: CompletionBatch) -> PolicyOutputs:
        """Run the reference policy; by default this is the policy without its adapter."""
        if self.reference is not None:
            return self._read(self.reference, rows)
        model = self.accelerator.unwrap_model(self.model)
        # "ref" replaces the adapter
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            return self._read(self.model, rows)

    # ---- completions and their rewards ----

    def _tokenize_prompts(self, prompts: list):
        """Override: tokenize prompts as reward models and guided decoding do, instead of by TRL's template call."""
        return [self.encoder.encode_prompt(as_prompt(prompt)) for prompt in prompts], None, {}

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Override: store the completions and return rewards of 0. Rewards are computed later, from hidden states."""
        texts = self.processing_class.batch_decode(
            completion_ids_list, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        self._examples = [Example(as_prompt(prompt), text) for prompt, text in zip(prompts, texts, strict=True)]
        self._rows = [row.get("row", 0) for row in inputs]
        self._completion_ids = completion_ids_list
        return torch.zeros(len(prompts) * self.accelerator.num_processes, 1, device=self.accelerator.device)

    def _generate_and_score_completions(self, inputs):
        """Override: generate completions by TRL, then compute advantages and loss inputs by the algorithm."""
        training, step = self.model.training, self.step
        if self.curriculum and training:
            inputs = self.curriculum.draw(inputs, self.num_generations)
        inputs = spread_over_variants(inputs, step.size, first=self.accelerator.process_index * len(inputs))
        batch = super()._generate_and_score_completions(inputs)
        rows = batch_of(batch)
        writes = training and self.args.rollout_steps > 0 and self.state.global_step % self.args.rollout_steps == 0
        reading = self._read(self.model, rows) if self._annotates or writes else None
        base = self._read_reference(rows).logprob if self.compares else None
        finished = finished_rows(batch, rows.response, self.eos_token_ids)
        states = None if reading is None or not self.sources.reads_states else own_states(reading.states, rows)
        tokens = CompletionTokens(self.processing_class, self._completion_ids, rows.response.shape[1])
        rewards, faults = self.sources(self._examples, states, self._rows, tokens, finished.tolist())
        annotations = {} if reading is None else self._annotations(reading, rows, batch)
        rollout = step.rollout(rows.response, finished, tokens=batch["completion_ids"], base=base, **annotations)
        rollout = rollout._replace(head=self._head and torch.no_grad()(self._head))
        if "teacher" in self.algorithm.reads:
            rollout = rollout._replace(teacher=teacher_logprobs(self, rewards, batch, rows.response))
        scored = step.score(rewards, rollout, mask_truncated=self.args.mask_truncated_completions, training=training)
        is_own = torch.tensor([row.get("own", True) for row in inputs], device=rows.tokens.device)
        self._log_step(scored, rollout, int(self._sum(len(faults))), self.processes.gather(is_own))
        updates = int(self.args.steps_per_generation or 1) / self.args.gradient_accumulation_steps if training else 1.0
        critic = self.learner.loss_inputs(scored, rollout, self.algorithm.gamma, updates) if self.learner else None
        changes = {"updates": updates, "critic": critic, "corrected": bool(self.use_vllm)}
        batch |= step.loss_inputs(scored, rollout, width=rows.response.shape[1], **changes)
        if training:
            examples = gather_object(self._examples) if writes or self.trained_state.learners else []
            if writes:
                self._write_rollouts(examples, rollout, scored, inputs, batch)
            self.trained_state.start(Cycle(examples, rollout, scored.total, None, scored.advantage))
            if self.replay_buffer:
                self.replay_buffer.next_cycle(batch, scored, rollout)
        return batch

    def _annotations(self, reading: PolicyOutputs, rows: CompletionBatch, batch: Batch) -> dict[str, Tensor | None]:
        """Return the rollout fields from a forward pass of policy, reference policy and critic."""
        values, after = self.learner.values(reading.states, rows) if self.learner else (None, None)
        reads, annotations = self.algorithm.reads, {"values": values, "after": after}
        if "states" in reads:
            annotations["states"] = completion_states(reading.states, rows)[:, :-1]
        if "prompt_logprobs" in reads:
            annotations["prompt_logprobs"] = prompt_logprobs(partial(self._read, self.model), rows)
        written = batch.get("sampling_per_token_logps")
        return annotations | {"logprobs": reading.logprob, "entropy": reading.entropy, "written": written}

    def _write_rollouts(
        self, examples: Sequence[Example], rollout: Rollout, scored: Scored, inputs: Sequence[Mapping], batch: Batch
    ) -> None:
        """Write the rollout file of this step. The file names the model that generated the completions."""
        is_policy, other = "sampling_per_token_logps" not in batch, "vllm" if self.use_vllm else "rollout function"
        writers = gather_object(["policy" if is_policy else row.get("writer", other) for row in inputs])
        if self.accelerator.is_main_process:
            path = self.run_folder / "rollouts" / f"step-{self.state.global_step:06d}.parquet"
            record = (scored.rewards, scored.advantages, self.sources.versions, writers)
            write_rollouts(path, self.state.global_step, examples, rollout, *record)

    def _log_step(self, scored: Scored, rollout: Rollout, faults: int, is_own: Tensor) -> None:
        """Replace TRL's reward statistics by ours; `is_own` marks completions of this policy, not of partners."""
        replace_statistics(self._metrics[self._mode], self._logs, scored, rollout)
        facts = dict(metrics.step_metrics(scored, rollout, faults, is_own)) | self.sources.facts()
        for name, value in facts.items():
            self._note(name, value)
        if self.model.training:
            self.kl = facts.get("watch/kl", self.kl)
            signal = metrics.learning_signal(scored, rollout.group)
            if (warning := signal.warning(self.signal)) and self.accelerator.is_main_process:
                self.report(f"step {self.state.global_step + 1}: {warning}")
            self.signal += signal

    def _sum(self, number: Any) -> float:
        """Sum a number over all processes."""
        return self.processes.sum(torch.as_tensor(number).float()).item()

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    def _note(self, name: str, value: float) -> None:
        """Add a value to a metric of the current mode (train or eval)."""
        self._metrics[self._mode][name].append(float(value))

    # ---- the loss ----

    def _prepare_inputs(self, generation_batch):
        """Override: prepare micro-batches, with replayed completions and slopes of losses that compare completions."""
        if isinstance(generation_batch, Piece):
            return generation_batch
        inputs = super()._prepare_inputs(generation_batch)
        turn, index = divmod(self._step % self.cycle, self.args.steps_per_generation or 1)
        past = self.replay_buffer.micro_batches if self.replay_buffer and turn == 0 and self.model.training else None
        inputs = past[index] if past else inputs
        # all micro-batches are read before a step trains on the first
        if self.attaches_slopes:
            micro_batches: Any = past or (self._buffered_inputs if self.model.training else [inputs])
            if index == 0 or self._step % self.args.gradient_accumulation_steps == 0 or not self.model.training:
                self.step.attach_slopes(micro_batches, partial(self._read, self.model), **self._position(inputs))
            inputs = micro_batches[index if self.model.training else 0]
        return inputs

    def rows_of(self, inputs):
        """Override: allow splitting a micro-batch if memory is short, except in distributed training."""
        return len(inputs["weights"]) if self.accelerator.num_processes == 1 else None

    def _position(self, inputs: Batch) -> dict[str, int]:
        """Return this process's batch size, and the number of optimizer steps since the batch was generated.

        In evaluation a batch is one micro-batch.
        """
        rows = self.args.per_device_train_batch_size * int(self.args.steps_per_generation or 1)
        updates = self._step % self.cycle // self.args.gradient_accumulation_steps
        return {"batch_rows": rows if self.model.training else len(inputs["row"]), "updates": updates}

    def _compute_loss(self, model, inputs):
        """Override: compute the loss by `PolicyStep`, and train the critic on the same forward pass."""
        rows, algorithm, weights = batch_of(inputs), self.algorithm, inputs["weights"]
        reading, training = model(completions=rows), self.model.training
        loss = self.step.loss(reading.logprob, reading.entropy, rows.response, inputs, **self._position(inputs))
        if self._head and algorithm.auxiliary:
            loss = loss._replace(total=loss.total + self.step.auxiliary_term(reading.states, rows, inputs, self._head))
        self._log_micro_batch(loss, reading, rows, inputs)
        if self.replay_buffer and training:
            self.replay_buffer.record_clipped(inputs["row"], loss.sums)
        if self.learner and training and inputs["value_weights"].any() and "valued" not in inputs:
            value = self.learner.learn_batch(reading.states, rows, inputs)
            self.check_finite(value, "the critic's loss")
            self._note("critic/loss", value)
            inputs["valued"] = True  # not again if the piece is repeated for lack of memory
        if self.sources.learners and self.sources.reads_states and training:
            states = own_states(reading.states.detach(), rows)
            self.trained_state.record(inputs["row"].tolist(), states, self._position(inputs)["batch_rows"])
        regularised = algorithm.penalty.beta != 0 or algorithm.entropy != 0
        self.learns |= training and bool((inputs["advantages"] * weights).any())
        self.live |= self.learns or (training and regularised and bool(weights.any()))
        return loss.total

    def _log_micro_batch(self, loss: PolicyLoss, reading: PolicyOutputs, rows: CompletionBatch, inputs: Batch) -> None:
        """Log the means of token metrics over the micro-batch."""
        means = metrics.token_metrics(loss, reading.entropy, rows.response, self.processes, compares=self.compares)
        for name, value in means:
            self._note(name, value)
        if self.compares and not self._annotates and "compared" not in inputs:
            self._log_ratios.append(metrics.log_ratio(reading.logprob.detach(), inputs["base"], rows.response))
            inputs["compared"] = True  # not again if the piece is repeated for lack of memory
            if not self.model.training:
                self._log_kl()

    def _log_kl(self) -> None:
        """Log the mean KL to the reference policy since the last call. The KL budget limits this value."""
        if self._log_ratios:
            ratios = torch.cat(self._log_ratios)
            kl = self._sum(ratios.sum()) / self._sum(len(ratios))
            self._note("watch/kl", kl)
            self.kl = kl if self.model.training else self.kl
            self._log_ratios.clear()

    # ---- checkpoints ----

    def _save_checkpoint(self, model, trial):
        """Override: also save the state of critic, formulas, replay buffer and online reward models."""
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            self.trained_state.save(folder, self.kl, self.signal)

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Override: also load the state of critic, algorithm, replay buffer and online reward models."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.kl, self.signal = self.trained_state.load(Path(checkpoint), is_main=self.accelerator.is_main_process)

    def _run_epoch(self, **epoch):
        """Override: stop immediately if the KL budget was exhausted at the loaded checkpoint."""
        self.control.should_training_stop |= self.kl > self.args.kl_budget
        if not self.control.should_training_stop:
            super()._run_epoch(**epoch)

    # ---- phases of an optimizer step ----

    def before_step(self) -> None:
        """Delete the gradients if all advantages are 0, since AdamW would still change the weights."""
        if not self._sum(self.live):
            optimizer: Any = self.optimizer
            optimizer.zero_grad(set_to_none=True)
            self._note("skipped_steps", 1.0)
        self.signal += metrics.LearningSignal(updates=int(self._sum(self.learns) > 0))
        self.live = self.learns = False

    def after_step(self) -> None:
        """Step the critic's optimizer, and log the KL of the step's completions."""
        if self.learner:
            self.learner.step()
        self._log_kl()

    def end_step(self) -> bool:
        """Train online reward models and the curriculum after a cycle. Return whether the KL budget is exhausted."""
        if self._step % self.cycle == 0:
            for name, value in self.trained_state.learn():
                self._note(name, value)
        return self.kl > self.args.kl_budget
