"""Callback for the phases of an optimizer step for which Transformers' Trainer has no overridable method."""

from typing import TYPE_CHECKING

from transformers import TrainerCallback

if TYPE_CHECKING:
    from .trainer import PolicyTrainer


class AroundSteps(TrainerCallback):
    """Forwards the events of a step to the trainer, and stops a run that has exhausted its KL budget."""

    def __init__(self, trainer: "PolicyTrainer"):
        self.trainer = trainer

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Handle complete gradients before the optimizer steps."""
        self.trainer.before_step(self.trainer.optimizer)

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Handle the updated policy, before its gradients are zeroed."""
        self.trainer.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        """Handle the end of a step, after `global_step` was incremented."""
        self.trainer.after_cycle()
        control.should_training_stop |= self.trainer.kl > self.trainer.args.kl_budget
