"""What a rollout function sees of a trainer, without one."""

from types import SimpleNamespace
from typing import Any

from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.rm.data.conversation_split import as_prompt


def stand_in_trainer(policy: Any, words: Any, training: bool = True, **fields: Any) -> SimpleNamespace:
    """A trainer after three steps with groups of 4; what it logs is kept in `noted`."""
    encoder, noted = decoding_model(policy, words).encoder, []
    made = {
        "model": SimpleNamespace(training=training, train=lambda training=True: None),
        "language_model": policy,
        "encoder": encoder,
        "state": SimpleNamespace(global_step=3),
        **{"num_generations": 4, "num_generations_eval": 1, "max_completion_length": 16},
        **{"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None},
        **{"repetition_penalty": 1.0, "generation_kwargs": None},
        "_tokenize_prompts": lambda prompts: ([encoder.encode_prompt(as_prompt(one)) for one in prompts], None, {}),
        "_note": lambda name, value: noted.append((name, value)),
        "noted": noted,
    }
    trainer = SimpleNamespace(**made | fields)
    trainer.args = trainer  # the arguments have the same names
    return trainer
