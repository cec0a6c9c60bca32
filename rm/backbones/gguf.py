"""GGUF files as models: each is converted once, to a folder of safetensors that is named after the file's hash."""

import json
import re
import shutil
import tempfile
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..errors import DataError, UsageError
from ..io.cache_folder import cache_folder, create_in_cache
from ..io.checksums import sha256
from ..io.disk_errors import full_disk_reason, no_room

SUFFIX = ".gguf"
MAGIC = b"GGUF"
ORIGIN = "dequantised_from"
"""Field of config.json that names the quantisation and the file's SHA-256; models trained from the folder keep it."""


def convert_gguf(source: str) -> str:
    """Return the folder of a GGUF file's model, dequantised to float32; the first call converts it.

    The folder is below `REWARDLAB_CACHE`, by default `~/.cache/rewardlab`. Raises `DataError` for a missing or damaged
    file and for an architecture that Transformers does not read, `UsageError` without the package gguf.
    """
    file = Path(source)
    _check_magic(file)
    digest = sha256(file)
    cache = cache_folder() / "gguf"
    folder = cache / f"{file.stem}-{digest[:16]}"
    if not folder.exists():
        if find_spec("gguf") is None:
            raise UsageError(f"{source}: reading GGUF files needs the package gguf; pip install 'rewardlab[gguf]'")
        create_in_cache(cache)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                _convert(file, digest, folder)
    return str(folder)


def _check_magic(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            start = opened.read(len(MAGIC))
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); give the path of a GGUF file") from error
    if start != MAGIC:
        raise DataError(f"{file}: not a GGUF file (it begins with {start!r}); fetch the file again")


def _convert(file: Path, digest: str, folder: Path) -> None:
    """Write the model and the tokenizer to a temporary folder, and rename it when both are complete."""
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        quantisation = _quantisation(file)
        model, tokenizer = _load_dequantised(file)
        setattr(model.config, ORIGIN, {"quantisation": quantisation, "sha256": digest})
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)
        work.rename(folder)
    except DataError:
        raise
    except Exception as error:  # damaged files raise the errors of their parsers
        if full := full_disk_reason(error):
            raise DataError(f"{no_room(folder, full)}, or name another folder with REWARDLAB_CACHE") from error
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(
            f"{file}: cannot be read as the GGUF file of a language model ({reason}); fetch the file again, or give "
            "the model's folder of safetensors"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    warnings.warn(f"{file}: {quantisation}, dequantised to float32 in {folder}", stacklevel=2)


def _quantisation(file: Path) -> str:
    """Return a text with the bits and the most common type of the weights, such as `4-bit weights (Q4_1)`."""
    from gguf import GGUFReader

    sizes: Counter[str] = Counter()
    for tensor in GGUFReader(file).tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_elements)
    name = sizes.most_common(1)[0][0]
    return f"{''.join(re.findall('[0-9]+', name)[:1])}-bit weights ({name})"


def _load_dequantised(file: Path) -> tuple[Any, Any]:
    """Return the dequantised model, whose config no longer states a quantisation, and the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, local_files_only=True
    )
    values = loaded.config.to_dict()
    values = {name: value for name, value in values.items() if name not in ("quantization_config", "_name_or_path")}
    model = type(loaded)(type(loaded.config)(**values))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    return model, _without_added_tokens(
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True),
        len(model.get_input_embeddings().weight),
    )


def _without_added_tokens(tokenizer: Any, rows: int) -> Any:
    """Return the tokenizer without tokens that Transformers added and for which the model has no embedding."""
    if len(tokenizer) <= rows:
        return tokenizer
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    description = json.loads(tokenizer.backend_tokenizer.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["id"] < rows]
    backend = Tokenizer.from_str(json.dumps(description))
    names = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=tokenizer.chat_template, **names)
