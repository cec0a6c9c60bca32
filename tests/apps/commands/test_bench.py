"""`rewardlab bench` where a package is missing."""

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.commands.bench import run as benching


@pytest.fixture
def without(monkeypatch):
    """Every script's import fails as if a package were not there."""

    imported = benching.importlib.import_module

    def lacking(package: str):
        def fail(name: str, *rest: str):
            if name == "rewardlab.research.speed":
                return imported(name, *rest)
            raise ModuleNotFoundError(f"No module named '{package}'", name=package)

        monkeypatch.setattr(benching.importlib, "import_module", fail)

    return lacking


def test_the_overview_runs_no_script(without):
    without("triton.language")
    lines = benching.overview().splitlines()
    assert [line.split()[0] for line in lines] == benching.names(benching.FOLDER)
    shown = "Time, memory and error of every kernel, compared with other libraries: `rewardlab bench kernels`."
    assert f"kernels {shown}" in [" ".join(line.split()) for line in lines]


def test_a_missing_package_is_named_with_what_to_install(without):
    without("triton.language")
    with pytest.raises(benching.UsageError, match="bench kernels cannot be run here: .* pip install triton$"):
        benching.run_bench(["kernels"])


def test_a_fault_of_our_own_is_no_missing_package(without):
    without("rewardlab.research.speed.kernel")
    with pytest.raises(ModuleNotFoundError, match="speed.kernel"):
        benching.run_bench(["kernels"])


def test_help_of_bench_lists_the_scripts(capsys):
    assert main(["bench", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in benching.names(benching.FOLDER))
