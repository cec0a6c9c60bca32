import json
from dataclasses import asdict

import pytest
from rewardlab.rm.contract.scoring_contract import FILE, ScoringContract, contract_class, load_contract
from rewardlab.rm.errors import DataError


def test_objectives_have_different_names():
    assert ScoringContract(kind="scalar", objectives=("helpful", "overall")).objectives == ("helpful", "overall")
    with pytest.raises(DataError, match="two objectives are named 'overall'"):
        ScoringContract(kind="scalar", objectives=("helpful", "overall", "overall"))


OWN = {
    "scalar": {"reward_mean": 0.25, "reward_std": 2.0},
    "process": {"step_separator": "\n\n", "step_token": None, "aggregate": "min"},
    "latent": {"latent_steps": 2, "latent_depth": "head"},
    "autoregressive": {"beta": 0.5, "token_offset": None, "token_baseline": "base"},
    "implicit": {"beta": 0.5},
    "r2m": {"reward_mean": None, "reward_std": None},
}
HASHES = {
    "scalar": "4373e5f556d9cb89",
    "process": "7f5b509b6fe88a1f",
    "latent": "4b787614079bf68c",
    "autoregressive": "f42f1e1575a307a1",
    "implicit": "5f0eec0a8f1a7aa3",
    "r2m": "8c5e7d9defd9b033",
}
"""Of the same contracts when every kind had the fields of all kinds."""


def written(folder, values: dict) -> None:
    (folder / FILE).write_text(json.dumps(values))


@pytest.mark.parametrize("kind", OWN)
def test_a_file_with_null_for_the_fields_of_other_kinds_is_read_and_saved_without_them(kind, tmp_path):
    fields = {name: None for own in OWN.values() for name in own} | OWN[kind]
    written(tmp_path, {"kind": kind, "objectives": ["reward"], "hash": HASHES[kind], **fields})
    contract = load_contract(tmp_path)
    assert type(contract) is contract_class(kind) and contract.hash() == HASHES[kind]
    contract.save(tmp_path)
    saved = json.loads((tmp_path / FILE).read_text())
    assert saved.keys() == asdict(ScoringContract(kind)).keys() | OWN[kind].keys() | {"hash"}
    assert load_contract(tmp_path) == contract


def test_a_field_of_another_kind_or_a_missing_one_is_refused(tmp_path):
    for kind, own in (("linear", OWN["latent"]), ("process", {"aggregate": "min"})):
        written(tmp_path, {"kind": kind, "objectives": ["reward"], "hash": HASHES["r2m"], **own})
        with pytest.raises(DataError, match="not a scoring contract.*(latent_steps|step_separator)"):
            load_contract(tmp_path)


def test_a_kind_that_is_not_registered_is_not_imported(tmp_path):
    written(tmp_path, {"kind": "my_code.py:kind", "objectives": ["reward"], "hash": ""})
    with pytest.raises(DataError, match="does not match these fields"):
        load_contract(tmp_path)
    assert contract_class("my_code.py:kind") is ScoringContract
