import pytest
from rewardlab.rm.errors import UsageError
from rewardlab.rm.io.cache_folder import cache_folder, create_in_cache


def test_a_cache_that_cannot_be_written_to_is_refused_with_the_variable_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("REWARDLAB_CACHE", str(tmp_path / "cache"))
    create_in_cache(cache_folder() / "gguf")
    assert (tmp_path / "cache" / "gguf").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file/gguf cannot be written to .*; set REWARDLAB_CACHE to a writable folder"):
        create_in_cache(tmp_path / "file" / "gguf")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UsageError, match=r"cannot be written to \(Permission denied\)"):
        create_in_cache(cache_folder() / "gguf")
