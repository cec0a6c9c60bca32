import pytest
import torch
from rewardlab.policy.decoding.static.forward import TRANSPOSED, FewRowsLinear, fast_linear
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_linear_layer_for_any_number_of_rows_and_precision(bias):
    torch.manual_seed(0)
    layer = nn.Linear(19, 7, bias=bias)
    for shape in [(rows, 1, 19) for rows in range(1, max(TRANSPOSED) + 3)] + [(2, 5, 19), (1, 3, 19), (4, 19)]:
        x = torch.randn(*shape, 2)[..., 0]  # strided
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            layer.to(dtype)
            expected = layer(x.to(dtype))
            layer.__class__ = FewRowsLinear
            found = layer(x.to(dtype))
            layer.__class__ = nn.Linear
            assert found.shape == expected.shape and found.is_contiguous() and found.dtype == dtype
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_layers_are_changed_within_the_context_alone_even_if_it_fails():
    config = AutoConfig.for_model("llama", vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                  num_attention_heads=1)  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    names = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    with pytest.raises(RuntimeError, match="no more"), fast_linear([model]):
        assert all(type(model.get_submodule(name)) is FewRowsLinear for name in names)
        raise RuntimeError("no more")
    assert len(names) == 8 and all(type(model.get_submodule(name)) is nn.Linear for name in names)
