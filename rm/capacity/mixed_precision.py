"""Refusal of a mixed precision that this machine does not have, in place of Transformers' text."""

from transformers import TrainingArguments
from transformers.utils import is_torch_bf16_gpu_available

from ..errors import UsageError


def check_bf16(arguments: TrainingArguments) -> None:
    """Raise `UsageError` for bfloat16 without a GPU that has it, unless training on the CPU is requested."""
    name = "bf16" if arguments.bf16 else "bf16_full_eval"
    if (arguments.bf16 or arguments.bf16_full_eval) and not (arguments.use_cpu or is_torch_bf16_gpu_available()):
        raise UsageError(
            f"--{name} True: there is no GPU here that computes in bfloat16; leave it out, or add --use_cpu True to "
            "compute in bfloat16 on the CPU"
        )
