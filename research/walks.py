"""Files that walks through the product enter, and returns to files that were left.

`python -m rewardlab.research.walks` prints a table for this checkout, `--checkout FOLDER` for another one, such as that
of `git worktree add FOLDER COMMIT`; `--files` lists the files of each walk. The walks are a preference file to a saved
model (`train`), a file to scores (`score`), a pair to its rewards by a loaded model (`rate`), a guided request to
tokens (`decode`), and a prompt to a policy update (`rl`), all on a CPU.

- A file is a product file (under kernels, rm, judges, policy, benchmarks or apps) in which a function was entered.
- A stop is an entry into a function of a product file from a function of another product file; consecutive entries into
  the same file are one stop. The caller is the nearest function of the product on the stack.
- A return is a stop at a file that was entered before and left since. So returns = stops - files.

So that the figures measure the structure rather than numbers of rows and steps, each pair (calling function, called
function) is recorded once, in the order of first calls, and stops and returns are those of this sequence: a loop over
the same files adds nothing. Functions of the main thread of the main process count, without module and class bodies,
comprehensions, lambdas, dunder methods, and anything that runs within an import. Each walk runs in a process of its
own, so that no cached result shortens it.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

PRODUCT = ("kernels", "rm", "judges", "policy", "benchmarks", "apps")
LOADERS = ("rewardlab.rm.load", "rewardlab.rm.contract.golden_scores")
"""Modules of `load_reward_model`: the first that a checkout has."""
WORDS = ("which", "plant", "likes", "rain", "fern", "moss", "oak", "newt")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ' ' + message['content'] + ' </s> ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}"
)
STEPS = "--max_steps 2 --per_device_train_batch_size 4 --use_cpu True --disable_tqdm True"
GUIDE = (
    f"train --kind autoregressive --adapter genarm --model base --data pairs.jsonl --lora_r 2 {STEPS} --output guide"
)
WALKS = {
    "train": "train --data pairs.jsonl --eval_data pairs.jsonl --small_hidden 8 --small_layers 1 "
    f"--small_vocabulary 260 --max_length 96 {STEPS} --output scalar",
    "score": "score --model scalar --data conversations.jsonl --output scores.jsonl",
    "rate": "rate scalar",
    "decode": "decode --base base --arm guide --data prompts.jsonl --max_new_tokens 4 --output decoded.jsonl",
    "rl": "rl --model base --data prompts.jsonl --reward rm=scalar --advantage grpo --num_generations 4 "
    f"--max_completion_length 4 {STEPS} --max_steps 1 --output policy",
}
"""Arguments of each walk; `rate` is no verb: it loads the model of `train`, and rates a pair."""


class Function(NamedTuple):
    """A function of the product: its file relative to the checkout, and its qualified name."""

    file: str
    name: str


Call = tuple[Function | None, Function]
"""The calling function, which is None for the first function of a walk, and the called one."""


# ---- counts ----


def stops(calls: Iterable[Call]) -> list[str]:
    """Return the files that are entered from other files, in order; consecutive entries into a file are one stop."""
    entered = [called.file for caller, called in calls if caller is None or caller.file != called.file]
    return [file for file, _ in groupby(entered)]


def returns(files: Sequence[str]) -> int:
    """Return the number of stops at files that were left before."""
    return len(files) - len({*files})


# ---- one walk, in a process of its own ----


def product_function(code: CodeType, root: Path) -> Function | None:
    """Return the function of the product in a checkout that a code object belongs to, or None."""
    if not code.co_filename.startswith(f"{root}/"):
        return None
    file, name = Path(code.co_filename).relative_to(root), code.co_name
    is_class_body, is_dunder = not code.co_flags & inspect.CO_OPTIMIZED, name.startswith("__") and name.endswith("__")
    is_counted = file.parts[0] in PRODUCT and not (is_class_body or is_dunder or name.startswith("<"))
    return Function(str(file), code.co_qualname) if is_counted else None


class CallRecorder:
    """Records each pair of calling and called function once; `sys.setprofile` calls it."""

    def __init__(self, root: Path):
        self.root = root
        self.calls: dict[Call, None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call, unless it runs within an import."""
        called = product_function(frame.f_code, self.root) if event == "call" else None
        caller, outer = None, frame.f_back
        while called and outer:
            if outer.f_code.co_filename.startswith("<frozen importlib"):
                return
            caller, outer = caller or product_function(outer.f_code, self.root), outer.f_back
        if called:
            self.calls.setdefault((caller, called))


def pair_rater(model_folder: str) -> Callable[[], Any]:
    """Load a reward model and return a function that rates both completions of a pair."""
    module = next(name for name in LOADERS if find_spec(name))
    types, model = import_module("rewardlab.rm.types"), import_module(module).load_reward_model(model_folder)
    return partial(model.rate, [types.Example(types.user_turn("which plant"), text) for text in ("fern", "newt")])


def record(output: str, words: Sequence[str]) -> int:
    """Record the calls of a walk to a JSON file, and return its exit code."""
    is_verb = words[0] != "rate"
    walk = partial(import_module("rewardlab.apps.cli").main, words) if is_verb else pair_rater(words[1])
    recorder = CallRecorder(Path("path", "rewardlab").absolute())
    sys.argv = ["rewardlab", *words]
    sys.setprofile(recorder)
    try:
        result = walk()
    finally:
        sys.setprofile(None)
    Path(output).write_text(json.dumps([*recorder.calls]))
    return result if is_verb else 0


# ---- all walks ----


def write_inputs(folder: Path) -> None:
    """Write pairs, conversations, prompts, and an untrained language model of width 8 with one layer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    prompts = [{"prompt": f"which plant likes {WORDS[index]}"} for index in range(8)]
    rows = {
        "prompts": prompts,
        "conversations": [row | {"completion": "moss"} for row in prompts],
        "pairs": [row | {"chosen": "fern likes rain", "rejected": f"newt {WORDS[i]}"} for i, row in enumerate(prompts)],
    }
    for name, values in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in values))
    vocabulary = {word: index for index, word in enumerate(("<pad>", "<unk>", "</s>", "user", "assistant", *WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", chat_template=TEMPLATE
    )
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(vocabulary), pad_token_id=0, eos_token_id=2, **sizes, **heads))
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")


def walk_calls(words: str, folder: Path) -> list[Call]:
    """Run a walk in a folder whose `path/rewardlab` is the checkout, and return its calls."""
    environment = os.environ | {"PYTHONPATH": str(folder / "path"), "HOME": str(folder)}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--record", "calls.json", *words.split()]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError((process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    calls = json.loads((folder / "calls.json").read_text())
    if not calls:
        raise RuntimeError("no function of the checkout was called")
    return [(caller and Function(*caller), Function(*called)) for caller, called in calls]


def file_list(calls: Sequence[Call]) -> str:
    """Return lines of a walk's files in order of first entry, with the numbers of functions entered and of stops."""
    functions, visits = Counter(called.file for called in {called for _, called in calls}), Counter(stops(calls))
    return "\n".join(f"{functions[file]:4} functions {visits[file]:4} stops  {file}" for file in visits)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the walks, print their table, and return 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="rewardlab.research.walks", description="Count the files and returns of walks."
    )
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[1], help="default: this checkout")
    parser.add_argument("--files", action="store_true", help="list the files of each walk in order of first entry")
    options = parser.parse_args(argv)
    table, lists, failures = ["| walk | files | stops | returns |", "| --- | --- | --- | --- |"], [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        (folder / "path").mkdir()
        (folder / "path" / "rewardlab").symlink_to(options.checkout.resolve())
        write_inputs(folder)
        for name, words in {"guide": GUIDE, **WALKS}.items():
            try:
                calls = walk_calls(words, folder)
            except RuntimeError as error:
                failures.append(f"{name} failed: {error}")
                continue
            if name in WALKS:
                files = stops(calls)
                table.append(f"| {name} | {len({*files})} | {len(files)} | {returns(files)} |")
                lists.append(f"\n{name}\n{file_list(calls)}")
    print("\n".join([*table, *(lists if options.files else []), *failures]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(record(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == ["--record"] else main())
