"""Nothing that is read runs code: every call in the tree that could, and what Transformers does at a resume."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from rewardlab.rm.backbones.value_heads import refuse_pickles
from rewardlab.rm.contract.golden_scores import load_reward_model
from rewardlab.rm.errors import DataError

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path for room in ("apps", "benchmarks", "judges", "kernels", "policy", "rm") for path in (ROOT / room).rglob("*.py")
)
WITHOUT_WEIGHTS = ("Config", "Tokenizer", "Processor")
ADAPTERS = ("PeftModel", "AutoPeftModelForSequenceClassification")
"""PEFT takes `adapter_model.safetensors` where it is there, which `refuse_pickles` has seen to before."""
FORBIDDEN = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


def calls() -> Iterator[tuple[str, ast.Call, str, dict[str, ast.expr]]]:
    """Every call: its place, the node, what is called, and what is given by name."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                named = {one.arg: one.value for one in node.keywords if one.arg}
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node, ast.unparse(node.func), named


CALLS = list(calls())


def is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def test_weights_are_asked_for_as_safetensors():
    found = [(place, name, named) for place, _, name, named in CALLS if name.endswith(".from_pretrained")]
    assert len(found) > 8
    for place, name, named in found:
        owner = name.rpartition(".from_pretrained")[0].rpartition(".")[2]
        if not any(part in owner for part in WITHOUT_WEIGHTS) and owner not in ADAPTERS:
            assert is_true(named.get("use_safetensors")), f"{place}: {name} without use_safetensors=True"


def test_torch_and_numpy_unpickle_nothing():
    for place, _, name, named in CALLS:
        if name == "torch.load":
            assert is_true(named.get("weights_only")), f"{place}: torch.load without weights_only=True"
        if name == "np.load":
            assert is_false(named.get("allow_pickle")), f"{place}: np.load without allow_pickle=False"


def test_no_pickle_is_imported():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.partition(".")[0] for name in names} & FORBIDDEN, path


def test_yaml_is_loaded_safely_and_no_text_is_run():
    for place, _, name, _ in CALLS:
        assert name not in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.UnsafeLoader"), place
        assert name not in ("eval", "exec", "compile", "__import__"), f"{place}: {name}"


def test_code_of_strangers_is_never_trusted_by_the_text_of_ours():
    for place, _, name, named in CALLS:
        assert not is_true(named.get("trust_remote_code")), f"{place}: {name} trusts remote code"
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg) and node.arg == "trust_remote_code":
                assert node.annotation is None or ast.unparse(node.annotation) == "bool"


def test_no_program_is_started_through_a_shell():
    for place, _, name, named in CALLS:
        assert name != "os.system" and not is_true(named.get("shell")), place


# ---- pickles of strangers ----


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "pytorch_model-00001-of-00002.bin", "weights.pth"])
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
    found = [
        {one.arg: one.value for one in node.keywords}
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert len(found) >= 3 and all(is_true(named.get("weights_only")) for named in found)
