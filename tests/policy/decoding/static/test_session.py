"""policy/decoding/static/session.py"""

import pytest
from rewardlab.policy.decoding.static.session import exclusively
from rewardlab.rm.errors import UsageError
from transformers import AutoConfig, AutoModelForCausalLM


def test_a_model_that_would_forget_what_it_has_read_is_refused():
    config = AutoConfig.for_model("mamba", vocab_size=8, hidden_size=8, num_hidden_layers=1)
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UsageError, match="MambaForCausalLM takes no past_key_values"), exclusively([model]):
        pass
