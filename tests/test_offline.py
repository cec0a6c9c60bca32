"""No telemetry: nothing that is imported, and no verb that needs no network, opens a connection."""

import subprocess

import pytest
from rewardlab.benchmarks import garden
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.registry import ROOT

from tests.apps.conftest import write
from tests.test_house import IMPORTABLE
from tests.test_house import ROOT as CHECKOUT

LISTENING = """
import sys
heard = []
def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        heard.append((event, str(arguments)))
sys.addaudithook(hear)
import os
os.environ.pop("HF_HUB_OFFLINE", None)  # the tests' own setting would hide an attempt
"""
VERBS_OFFLINE = """
from rewardlab.apps.cli import main
pairs, folder = sys.argv[1:]
words = ["train", "--kind", "linear", "--data", pairs, "--output", folder + "/rm"]
done = [
    main(["doctor", "--json"]),
    main(words),
    main(["lint", pairs]) in (0, 5),
    main(["eval", "--benchmark", "pairs", "--model", folder + "/rm", "--data", pairs, "--output", folder + "/eval"]),
    main(["verify", folder + "/eval"]),
    main(["score", "--model", folder + "/rm", "--data", pairs, "--output", folder + "/scores.jsonl"]),
]
assert done == [0, 0, True, 0, 0, 0], done
assert not heard, heard
"""


def modules() -> list[str]:
    """Every module of the package but those for libraries that are not installed."""
    found = [path.relative_to(CHECKOUT).with_suffix("") for path in IMPORTABLE]
    return [".".join([ROOT, *path.parts]).removesuffix(".__init__") for path in found if path.name != "__main__.py"]


@pytest.mark.slow
def test_importing_the_whole_package_opens_no_connection(script):
    text = LISTENING + "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    done = subprocess.run(script(text + "assert not heard, heard", *modules()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_verbs_that_need_no_network_open_no_connection(script, tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", map(pair_row, garden.pairs(60, 0)))
    done = subprocess.run(script(LISTENING + VERBS_OFFLINE, pairs, tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_listener_hears(script):
    text = LISTENING + "import socket\nwith socket.socket() as one:\n    one.connect_ex(('127.0.0.1', 9))\nassert heard"
    assert subprocess.run(script(text)).returncode == 0
