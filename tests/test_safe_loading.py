"""Nothing that is read runs code: every call in the tree that could, and what Transformers does at a resume."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import transformers
from rewardlab.rm.backbones.hub import refuse_pickles
from rewardlab.rm.errors import DataError
from rewardlab.rm.load import load_reward_model

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path for room in ("apps", "benchmarks", "judges", "kernels", "policy", "rm") for path in (ROOT / room).rglob("*.py")
)
WITHOUT_WEIGHTS = ("Config", "Tokenizer", "Processor")
ADAPTERS = ("PeftModel", "AutoPeftModelForSequenceClassification")
"""PEFT takes `adapter_model.safetensors` where it is there, which `refuse_pickles` has seen to before."""
FORBIDDEN = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


WORDS = re.compile(
    r"from_pretrained|(torch|np|yaml)\.\w*load|(?<![.\w])(eval|exec|compile|__import__)\(|trust_remote_code|os\.system|shell="
    rf"|(import|from) ({'|'.join(FORBIDDEN)})"
)
"""What the calls and imports below are written with; a file without any of these words is not read further."""


class Syntax(NamedTuple):
    """What the product's sources call and import, each with its place; and annotations of `trust_remote_code`."""

    calls: list[tuple[str, str, dict[str, ast.expr]]]
    imports: list[tuple[str, str]]
    trusts: list[tuple[str, ast.expr | None]]


@cache
def syntax() -> Syntax:
    parts = Syntax([], [], [])
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if WORDS.search(text) else ():
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                named = {word.arg: word.value for word in node.keywords if word.arg}
                parts.calls.append((place, dotted(node.func), named))
            elif isinstance(node, ast.Import):
                parts.imports.extend((place, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                parts.imports.append((place, node.module or ""))
            elif isinstance(node, ast.arg) and node.arg == "trust_remote_code":
                parts.trusts.append((place, node.annotation))
    return parts


def dotted(node: ast.expr) -> str:
    """Return the name of what is called; what is called on a result is named without it."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_constant(value: ast.expr | None, constant: bool) -> bool:
    return isinstance(value, ast.Constant) and value.value is constant


def test_weights_are_asked_for_as_safetensors():
    loads = [(place, name, named) for place, name, named in syntax().calls if name.endswith(".from_pretrained")]
    assert len(loads) > 8
    for place, name, named in loads:
        owner = name.rpartition(".from_pretrained")[0].rpartition(".")[2]
        if not any(part in owner for part in WITHOUT_WEIGHTS) and owner not in ADAPTERS:
            safe = is_constant(named.get("use_safetensors"), True) or "gguf_file" in named
            assert safe, f"{place}: {name} without use_safetensors=True"


def test_torch_and_numpy_unpickle_nothing():
    for place, name, named in syntax().calls:
        if name == "torch.load":
            assert is_constant(named.get("weights_only"), True), f"{place}: torch.load without weights_only=True"
        if name == "np.load":
            assert is_constant(named.get("allow_pickle"), False), f"{place}: np.load without allow_pickle=False"
    for place, name in syntax().imports:
        assert name.partition(".")[0] not in FORBIDDEN, place


def test_yaml_is_loaded_safely_and_no_text_is_run():
    for place, name, _ in syntax().calls:
        assert name not in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.UnsafeLoader"), place
        assert name not in ("eval", "exec", "compile", "__import__"), f"{place}: {name}"


def test_code_of_strangers_is_never_trusted_by_the_text_of_ours():
    for place, name, named in syntax().calls:
        assert not is_constant(named.get("trust_remote_code"), True), f"{place}: {name} trusts remote code"
    for place, annotation in syntax().trusts:
        assert annotation is None or ast.unparse(annotation) == "bool", place


def test_no_program_is_started_through_a_shell():
    for place, name, named in syntax().calls:
        assert name != "os.system" and not is_constant(named.get("shell"), True), place


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pth"])
def test_a_folder_with_a_pickle_only_is_refused_and_told_how_to_convert(name, tmp_path):
    evil = Evil()
    evil.path = str(tmp_path / "ran")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    torch.save(evil, folder / name)
    with pytest.raises(DataError, match="a pickle, which can run code when it is read; .*(convert|ask its author)"):
        refuse_pickles(folder)
    with pytest.raises(DataError):
        load_reward_model(str(folder))
    assert not (tmp_path / "ran").exists()


def test_transformers_reads_what_its_trainer_left_without_running_it():
    """optimizer.pt, scheduler.pt and rng_state.pth of a checkpoint, at `--resume`."""
    text = inspect.getsource(transformers.Trainer)
    loads = [
        {word.arg: word.value for word in node.keywords}
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert len(loads) >= 3 and all(is_constant(named.get("weights_only"), True) for named in loads)
