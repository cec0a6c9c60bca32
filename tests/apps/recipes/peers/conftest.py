"""Adapters imported beside the installed library, or beside a stand-in of its interface."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from tests.apps.judging import longer

STAND_INS = Path(__file__).parents[3] / "stand_ins" / "peers"


@pytest.fixture(params=["stand-in", "installed"])
def adapter(request, monkeypatch):
    """A function that imports an adapter, which imports `library`."""

    def load(name: str, library: str):
        for loaded in [*sys.modules]:
            if loaded.partition(".")[0] == library or loaded == f"rewardlab.apps.recipes.peers.{name}":
                monkeypatch.delitem(sys.modules, loaded)
        if request.param == "stand-in":
            monkeypatch.syspath_prepend(str(STAND_INS))
        elif importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed here; `make lane-peers` installs it and runs this test")
        return importlib.import_module(f"rewardlab.apps.recipes.peers.{name}")

    return load


@pytest.fixture
def judge_settings():
    """Settings of a judge that gives a point per letter, up to ten, and abstains where the text is `garbled`."""
    from rewardlab.tests.stand_ins.chat_server import ChatServer

    with ChatServer(answer=lambda asked: "no verdict" if "garbled" in str(asked) else longer(asked)) as server:
        yield {"endpoint": server.url, "model": "qwen", "retries": 0}
