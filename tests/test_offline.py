"""No telemetry: nothing that is imported, and no verb that needs no network, opens a connection."""

import json
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
PROGRAM = """
import importlib, json, socket
from rewardlab.apps.cli import main
pairs, folder, *names = sys.argv[1:]
words = ["train", "--kind", "linear", "--data", pairs, "--output", folder + "/rm"]
codes = [
    main(["doctor", "--json"]),
    main(words),
    main(["lint", pairs]) in (0, 5),
    main(["eval", "--benchmark", "pairs", "--model", folder + "/rm", "--data", pairs, "--output", folder + "/eval"]),
    main(["verify", folder + "/eval"]),
    main(["score", "--model", folder + "/rm", "--data", pairs, "--output", folder + "/scores.jsonl"]),
]
by_verbs = [*heard]
for name in names:
    importlib.import_module(name)
by_imports = heard[len(by_verbs):]
with socket.socket() as client:
    client.connect_ex(("127.0.0.1", 9))
listens = len(heard) > len(by_verbs) + len(by_imports)
print(json.dumps({"codes": codes, "by verbs": by_verbs, "by imports": by_imports, "listens": listens}))
"""


def modules() -> list[str]:
    """Every module of the package but those for libraries that are not installed."""
    paths = [path.relative_to(CHECKOUT).with_suffix("") for path in IMPORTABLE]
    return [".".join([ROOT, *path.parts]).removesuffix(".__init__") for path in paths if path.name != "__main__.py"]


@pytest.fixture(scope="module")
def connections(script, tmp_path_factory) -> dict:
    """What one process heard of connections: of its verbs, of importing everything, and of one that it opens."""
    folder = tmp_path_factory.mktemp("offline")
    pairs = write(folder / "pairs.jsonl", map(pair_row, garden.pairs(60, 0)))
    done = subprocess.run(script(LISTENING + PROGRAM, pairs, folder, *modules()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().rpartition("\n")[2])


@pytest.mark.slow
def test_importing_the_whole_package_opens_no_connection(connections):
    assert connections["listens"] and connections["by imports"] == []


@pytest.mark.slow
def test_verbs_that_need_no_network_open_no_connection(connections):
    assert connections["codes"] == [0, 0, True, 0, 0, 0]
    assert connections["listens"] and connections["by verbs"] == []
