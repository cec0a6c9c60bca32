"""A published GGUF file and the folder that it is converted to: the same tokens and the same logits."""

import torch
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = ["What is the capital?\n", "<|im_start|>user\nNaïve 日本 \t 3.14<|im_end|>\n", " def f(x):\n    return x"]


def test_the_converted_folder_has_the_tokens_and_logits_of_the_file_in_transformers(smollm2, smollm2_file):
    by_transformers = {"gguf_file": smollm2_file.name, "local_files_only": True}
    peer_tokenizer = AutoTokenizer.from_pretrained(smollm2_file.parent, **by_transformers)
    peer = AutoModelForCausalLM.from_pretrained(smollm2_file.parent, dtype=torch.float32, **by_transformers).eval()
    tokenizer = load_tokenizer(smollm2)
    model = load_causal_lm(smollm2, tokenizer).eval()
    rows = tokenizer(TEXTS).input_ids
    assert rows == peer_tokenizer(TEXTS).input_ids and tokenizer.chat_template == peer_tokenizer.chat_template
    with torch.inference_mode():
        for row in rows:
            tokens = torch.tensor([row])
            torch.testing.assert_close(model(tokens).logits, peer(tokens).logits, rtol=0, atol=1e-5)


def test_the_file_names_the_same_model_as_the_folder(smollm2, smollm2_file):
    tokenizer = load_tokenizer(str(smollm2_file))
    assert tokenizer.get_vocab() == load_tokenizer(smollm2).get_vocab() and len(tokenizer) == 49_152
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<|im_start|>", *2 * ["<|im_end|>"])
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert tokenizer(text).input_ids.count(tokenizer.bos_token_id) == 2  # of the system's and the user's turn
