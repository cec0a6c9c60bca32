"""Third-party warnings and progress bars in normal use."""

import warnings

import pytest
from rewardlab.apps.installation.libraries import quiet_libraries
from rewardlab.rm.backbones.loading import hidden_weight_bars
from transformers.utils import logging


def bar(capsys) -> str:
    for _ in logging.tqdm([1, 2, 3], desc="Loading weights", mininterval=0):
        pass
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def bars(monkeypatch):
    """Transformers' bars are on, as by default."""
    monkeypatch.setattr(logging, "_tqdm_active", True)


def test_bars_of_weights_are_hidden_within_the_block_only(capsys):
    for quiet in (hidden_weight_bars, quiet_libraries):
        with quiet():
            assert bar(capsys) == ""
        assert "Loading weights" in bar(capsys)


def test_bars_are_hidden_until_the_last_of_overlapping_blocks_ends(capsys):
    """Such as those of two threads."""
    first, second = hidden_weight_bars(), hidden_weight_bars()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert bar(capsys) == ""
    second.__exit__(None, None, None)
    assert "Loading weights" in bar(capsys)


def test_bars_of_downloads_stay():
    from huggingface_hub.utils import are_progress_bars_disabled

    before = are_progress_bars_disabled()
    with quiet_libraries():
        assert are_progress_bars_disabled() == before


def test_future_warnings_are_hidden_and_others_are_not():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet_libraries():
            warnings.warn("`is_gradient_checkpointing` is deprecated", FutureWarning, stacklevel=1)
            warnings.warn("the padding side is wrong", UserWarning, stacklevel=1)
        warnings.warn("of own code", FutureWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["the padding side is wrong", "of own code"]


def test_an_error_within_the_block_restores_the_bars(capsys):
    with pytest.raises(ValueError), quiet_libraries():
        raise ValueError
    assert "Loading weights" in bar(capsys)
