import shutil

import pytest
from rewardlab.rm.errors import DataError
from rewardlab.rm.io.checksums import folder_hash


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "blobs" / "heads").mkdir(parents=True)
    (tmp_path / "blobs" / "heads" / "a.safetensors").write_text("weights")
    (tmp_path / "blobs" / "config").write_text("{}")
    model = tmp_path / "model"
    model.mkdir()
    (model / "heads").symlink_to(tmp_path / "blobs" / "heads")
    (model / "config.json").symlink_to(tmp_path / "blobs" / "config")
    return model


def test_linked_subfolders_have_the_hash_of_their_copy_until_they_change(cache, tmp_path):
    copy = shutil.copytree(cache, tmp_path / "copy")
    assert not (copy / "heads").is_symlink() and folder_hash(cache) == folder_hash(copy)
    before = folder_hash(cache)
    (tmp_path / "blobs" / "heads" / "a.safetensors").write_text("other weights")
    assert folder_hash(cache) != before


def test_a_folder_that_contains_itself_by_a_link_is_refused(cache, tmp_path):
    (tmp_path / "blobs" / "back").symlink_to(cache)
    for target in (".", "..", "../blobs"):
        (cache / "again").symlink_to(cache / target)
        with pytest.raises(DataError, match="is a link to a folder that contains it; remove the link"):
            folder_hash(cache)
        (cache / "again").unlink()
