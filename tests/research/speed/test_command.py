"""`python -m rewardlab.research.speed`: names, help, exit codes, and what is said where a package is missing."""

import pytest
from rewardlab.research.speed import __main__ as command
from rewardlab.research.speed import kernels, report


@pytest.fixture
def without(monkeypatch):
    """Make every script's import fail as if a package were not there."""

    real = command.importlib.import_module

    def lacking(package: str):
        def fail(name: str, *rest: str):
            if name == "rewardlab.research.speed":  # the folder, whose names are listed
                return real(name, *rest)
            raise ModuleNotFoundError(f"No module named '{package}'", name=package)

        monkeypatch.setattr(command.importlib, "import_module", fail)

    return lacking


def test_help_names_every_script_without_importing_any(capsys, monkeypatch):
    monkeypatch.setattr(command, "_script", lambda name: pytest.fail(f"{name} was imported"))
    assert command.main(["--help"]) == 0 and command.main([]) == 2
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [words[0] for words in lines if words][: len(command.names(command.FOLDER))] == command.names(command.FOLDER)
    assert ["report", "Seconds", "from", "stored", "judgments"] in [words[:5] for words in lines]


def test_a_script_gets_its_own_arguments(capsys, monkeypatch):
    monkeypatch.setattr(report, "report_times", lambda: report.Times(2.5, {}))
    assert command.main(["report", "--runs", "1"]) == 0
    assert "report 2.50 s" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        command.main(["report", "--help"])
    assert "--runs" in capsys.readouterr().out


def test_wrong_words_and_figures_out_of_bounds_have_their_exit_codes(capsys, monkeypatch):
    assert command.main(["polcy"]) == 2
    assert "no speed script 'polcy'; did you mean 'policy'?" in capsys.readouterr().err
    monkeypatch.setattr(command, "_script", lambda name: kernels)
    monkeypatch.setattr(kernels, "main", lambda arguments: 5)
    assert command.main(["kernels"]) == 5
    assert "out of its bounds" in capsys.readouterr().err


def test_a_missing_package_is_named_with_what_to_install(without, capsys):
    without("triton.language")
    assert command.main(["kernels"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("pip install triton")


def test_a_fault_of_our_own_is_no_missing_package(without):
    without("rewardlab.research.speed.kernel")
    with pytest.raises(ModuleNotFoundError, match="speed.kernel"):
        command.main(["kernels"])
