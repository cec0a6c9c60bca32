"""`rewardlab doctor`: complete for a program, readable for people, silent about secrets."""

import json
import shutil
from types import SimpleNamespace

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.installation import machine
from rewardlab.apps.installation.machine import Check, checks, disk, environment, extras, table, templates


@pytest.fixture
def told(capsys):
    def run(*words):
        code = main(["doctor", *words])
        out, err = capsys.readouterr()
        return code, json.loads(out.strip().split("\n")[-1]), out, err

    return run


def test_json_is_all_that_a_program_reads(told):
    code, facts, out, err = told("--json")
    assert code == 0 and out.count("\n") == 1 and "python" not in err
    assert {"versions", "python", "devices", "kernels", "extras", "environment", "cache", "disk", "checks", "ok"} <= {
        *facts
    }
    assert all({*one} == {"name", "status", "found", "way_out"} for one in facts["checks"])
    assert {one["status"] for one in facts["checks"]} <= {"ok", "warn", "fail"}
    names = [one["name"] for one in facts["checks"]]
    assert {"python", "kernels", "device", "disk here", "cache", "safetensors", "chat templates"} <= {*names}
    assert facts["disk"]["here"] == pytest.approx(shutil.disk_usage(".").free / 1e9, abs=5)


def test_a_secret_is_told_to_be_set_and_no_more_and_what_is_none_is_shown(monkeypatch, told):
    """To people, who get a line for each check, as to programs."""
    monkeypatch.setenv("HF_TOKEN", "hf_thisisnottobeshown000000")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-thisisnottobeshown")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:thisisnottobeshown@proxy:3128")
    _, facts, out, err = told()
    lines = [line.split() for line in err.split("\n")]
    for one in facts["checks"]:
        assert [one["status"], *f"{one['name']}:".split()] in [line[: 1 + len(one["name"].split())] for line in lines]
    assert "thisisnottobeshown" not in out + err
    assert facts["environment"]["HF_TOKEN"] == "(set, not shown)"
    assert facts["environment"]["HTTPS_PROXY"] == "http://***@proxy:3128"
    given = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HOME": "/root"}
    assert environment(given) == {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


def test_an_extra_that_is_absent_comes_with_the_line_that_installs_it(monkeypatch):
    requires = ["torch>=2", "vllm>=0.31 ; extra == 'vllm'", "pytest ; extra == 'dev'"]
    metadata = SimpleNamespace(get_all=lambda _: ["vllm", "dev"])
    monkeypatch.setattr("importlib.metadata.requires", lambda _: requires)
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: metadata)
    monkeypatch.setattr(machine, "installed_version", lambda name: None if name == "vllm" else "9")
    assert extras() == {
        "dev": {"present": True, "absent": [], "install": "pip install 'rewardlab[dev]'"},
        "vllm": {"present": False, "absent": ["vllm"], "install": "pip install 'rewardlab[vllm]'"},
    }


FACTS = {"kernels": "eager", "devices": ["cpu"], "environment": {}, "extras": {}}


def by_name(facts) -> dict[str, Check]:
    return {one.name: one for one in checks(FACTS | facts)}


def test_the_folder_of_converted_models_is_checked(monkeypatch, tmp_path):
    monkeypatch.setenv("REWARDLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    results = by_name({})
    assert results["rewardlab cache"] == Check(
        "rewardlab cache", "fail", str(tmp_path / "cache"), "set REWARDLAB_CACHE to a writable folder"
    )
    assert results["cache"].status == "ok" and "disk rewardlab cache" in results
    assert environment({"REWARDLAB_CACHE": "/x"}) == {"REWARDLAB_CACHE": "/x"}


def test_a_package_in_a_version_that_does_not_fit_fails_with_the_way_out(monkeypatch):
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["trl<1.17,>=1.16", "absent-package>=1"])
    monkeypatch.setattr(machine, "installed_version", lambda name: "1.20" if name == "trl" else None)
    found = by_name({})
    assert found["trl"] == Check("trl", "fail", "1.20", "pip install 'trl<1.17,>=1.16'")
    assert found["absent-package"].found == "not installed" and found["absent-package"].status == "fail"
    assert "2 of" in table(FACTS, [found["trl"], found["absent-package"]])


def test_disks_devices_and_kernels_are_judged():
    assert [disk("here", free).status for free in (0.4, 0.6, 9.9, 10.1)] == ["fail", "warn", "warn", "ok"]
    gpu = {"devices": ["H100"], "environment": {"TRITON_INTERPRET": "1"}}
    assert by_name(gpu)["device"].status == "warn" and by_name({"devices": ["H100"]})["device"].status == "ok"
    assert by_name({"kernels": "none: no Triton"})["kernels"].status == "fail"


def test_a_sandbox_that_lets_out_is_a_failure(monkeypatch):
    assert templates().status == "ok"
    monkeypatch.setattr(machine, "fault_of", lambda template: "")
    assert templates().status == "fail"
