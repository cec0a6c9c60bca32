"""What the tests of training share: an untrained base model on disk."""

import pytest
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("base")
    words = tokenizer()
    causal_lm(words).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)
