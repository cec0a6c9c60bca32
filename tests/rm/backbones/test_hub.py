from contextlib import nullcontext
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from rewardlab.benchmarks.garden import models
from rewardlab.rm.backbones.hub import Source, parse_source, record_model_commit
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.io import hub_names
from rewardlab.rm.io.hub_names import record_data_commit

OLD, NEW = "1" * 40, "2" * 40
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(hub_names, "RESOLVED", {})


def test_a_folder_is_no_name_with_a_revision_and_code_needs_a_full_commit(tmp_path):
    folder = tmp_path / "rm@v1"
    folder.mkdir()
    assert parse_source(str(folder), trust_remote_code=True) == Source(str(folder))
    assert parse_source("./not/yet@there") == Source("./not/yet@there")
    assert parse_source("org/model") == Source("org/model") and parse_source("org/model@v1") == Source(
        "org/model", "v1"
    )
    for source in ["org/model", "org/model@main", "org/model@0123456", f"org/model@{COMMIT}0"]:
        with pytest.raises(UsageError, match="give org/model@SHA, with all 40 digits, or a local folder"):
            parse_source(source, trust_remote_code=True)
        assert parse_source(f"org/model@{COMMIT}", trust_remote_code=True) == Source("org/model", COMMIT), source


@pytest.mark.parametrize("name, offline", [("ConnectError", True), ("ReadTimeout", False)])
def test_without_a_connection_the_hub_is_asked_once_and_then_only_its_cache_is_read(monkeypatch, name, offline):
    requests = []

    class Session:
        def head(self, url, timeout):
            requests.append(url)
            raise type(name, (Exception,), {})("no route")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    hub_names.check_connection.cache_clear()
    with pytest.warns(UserWarning, match="no connection to .*no route") if offline else nullcontext():
        assert [parse_source("org/model").name, parse_source("org/other").name] == ["org/model", "org/other"]
    hub_names.check_connection.cache_clear()
    assert (len(requests), huggingface_hub.constants.HF_HUB_OFFLINE) == (1, offline)


def test_the_commit_of_a_data_set_stands_in_its_files_addresses(tmp_path):
    info = SimpleNamespace(download_checksums={f"hf://datasets/org/data@{NEW}/train.parquet": {}})
    record_data_commit("org/data", SimpleNamespace(info=info))
    record_data_commit("folder", SimpleNamespace(info=SimpleNamespace(download_checksums={"/home/train.parquet": {}})))
    record_model_commit(str(tmp_path))
    assert hub_names.RESOLVED == {"org/data": NEW}


def test_a_model_is_read_at_its_revision_and_its_commit_is_known(tmp_path, monkeypatch):
    """Two commits of one model with other weights; `main` is the second."""
    home = tmp_path / "hub" / "models--org--model"
    words = models.tokenizer()
    for commit, seed in ((OLD, 1), (NEW, 2)):
        folder = home / "snapshots" / commit
        models.causal_lm(words, seed=seed).save_pretrained(folder)
        words.save_pretrained(folder)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(NEW)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for source, seed in ((f"org/model@{OLD}", 1), ("org/model@main", 2), ("org/model", 2)):
        found, expected = load_causal_lm(source, load_tokenizer(source)), models.causal_lm(words, seed=seed)
        assert torch.equal(found.get_input_embeddings().weight, expected.get_input_embeddings().weight), source
    assert {f"org/model@{OLD}": OLD, "org/model@main": NEW, "org/model": NEW} == hub_names.RESOLVED
    with pytest.raises(UsageError, match="give org/model@SHA"):
        load_tokenizer("org/model@main", trust_remote_code=True)
