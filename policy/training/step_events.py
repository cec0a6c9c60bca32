"""Callback for the phases of an optimizer step for which Transformers' Trainer has no overridable method."""

from collections.abc import Callable

from transformers import TrainerCallback


class StepEvents(TrainerCallback):
    """Calls functions before and after the optimizer's step, and at the end of a step."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None], end: Callable[[], bool]):
        self.before, self.after, self.end = before, after, end
        """`end` is called after `global_step` was incremented, and returns whether training stops."""

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Handle complete gradients before the optimizer steps."""
        self.before()

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Handle the updated policy, before its gradients are zeroed."""
        self.after()

    def on_step_end(self, args, state, control, **kwargs):
        """Stop training where `end` says so."""
        control.should_training_stop |= self.end()
