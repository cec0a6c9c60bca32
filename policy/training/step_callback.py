"""The moments around an optimizer step, which Transformers' loop tells to callbacks alone."""

from typing import TYPE_CHECKING

from transformers import TrainerCallback

if TYPE_CHECKING:
    from .trainer import PolicyTrainer


class AroundSteps(TrainerCallback):
    """Calls the trainer where Transformers' loop has no method of its own; ends a run that has spent its KL budget."""

    def __init__(self, trainer: "PolicyTrainer"):
        self.trainer = trainer

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Gradients are complete."""
        self.trainer.before_step(self.trainer.optimizer)

    def on_optimizer_step(self, args, state, control, **kwargs):
        """The policy has moved, its gradients are still there."""
        self.trainer.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        """The step is counted."""
        self.trainer.after_cycle()
        control.should_training_stop |= self.trainer.kl > self.trainer.args.kl_budget
