"""Checks that this machine supports bfloat16, with a clearer error than Transformers', and removal of autocast."""

from accelerate.utils import extract_model_from_parallel
from torch import nn
from transformers import TrainingArguments
from transformers.utils import is_torch_bf16_gpu_available

from ..errors import UsageError


def check_bf16(arguments: TrainingArguments) -> None:
    """Raise `UsageError` if bfloat16 is requested but no GPU supports it, unless training runs on the CPU."""
    if (arguments.bf16 or arguments.bf16_full_eval) and not arguments.use_cpu:
        name = "bf16" if arguments.bf16 else "bf16_full_eval"
        require_bf16_gpu(name, "leave it out, or add --use_cpu True to compute in bfloat16 on the CPU")


def require_bf16_gpu(name: str, remedy: str = "leave it out") -> None:
    """Raise `UsageError`, naming the setting `name`, if no GPU here computes in bfloat16."""
    if not is_torch_bf16_gpu_available():
        raise UsageError(f"--{name} True: there is no GPU here that computes in bfloat16; {remedy}")


def stop_autocast(model: nn.Module) -> None:
    """Remove Accelerate's autocast from `forward`, in place, so that rewards equal the loaded model's."""
    extract_model_from_parallel(model, keep_fp32_wrapper=False)
