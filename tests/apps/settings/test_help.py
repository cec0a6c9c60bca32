"""What help pages say of settings agrees with what the settings accept."""

import dataclasses

import pytest
from rewardlab.apps.settings.help import _choices, _default
from rewardlab.apps.verbs import VERBS


@pytest.mark.parametrize("name", VERBS)
def test_the_default_of_a_setting_is_one_of_its_choices(name):
    for group in VERBS[name].settings:
        if group.__module__.startswith("rewardlab.apps"):
            for field in dataclasses.fields(group):
                choices, default = _choices(field, None), _default(field)
                assert not choices or not default or default in choices, (name, field.name, default, choices)
