"""Two small models with pretrained weights, which `make models` fetches; without them the tests here are skipped."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rewardlab.examples.fetch_models import PACKAGES, cache_folder, fetched
from rewardlab.rm.types import PreferencePair, user_turn

from tests.conftest import need

QUESTIONS = ("What is the capital of France?", "Where is the Louvre?", "Name a city on the Seine.", "Where is Orly?")
ANSWERS = ("It is Paris, the capital.", "I do not know, and I do not care about it.")
PAIRS = [PreferencePair(str(index), user_turn(text), *ANSWERS) for index, text in enumerate(2 * QUESTIONS)]


def fetched_folder(name: str) -> str:
    """The folder of a fetched model's safetensors; nothing is downloaded."""
    folder = cache_folder() / name
    need("models", folder.is_dir(), f"there is no model {folder}; run `make models`")
    return fetched(name)


@pytest.fixture(scope="session")
def minilm() -> str:
    """all-MiniLM-L6-v2: an encoder without a chat template."""
    return fetched_folder("minilm")


@pytest.fixture(scope="session")
def smollm2() -> str:
    """SmolLM2-135M-Instruct: pad is EOS, and BOS opens every turn."""
    return fetched_folder("smollm2")


@pytest.fixture(scope="session")
def smollm2_file(smollm2) -> Path:
    """The GGUF file that the folder was converted from."""
    return cache_folder() / "smollm2" / PACKAGES["smollm2"].inside


@pytest.fixture
def large_folder() -> Iterator[Path]:
    """A folder that goes with its test, because pytest keeps its own of three runs and a saved model takes 0.5 GB."""
    with TemporaryDirectory() as folder:
        yield Path(folder)
