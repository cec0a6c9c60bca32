"""What help pages say of settings agrees with what the settings accept."""

import dataclasses

from rewardlab.apps.settings.help import _choices, _default, is_trainers
from rewardlab.apps.verbs import VERBS


def test_the_default_of_a_setting_is_one_of_its_choices():
    for name, verb in VERBS.items():
        for group in verb.settings:
            for field in dataclasses.fields(group) if group.__module__.startswith("rewardlab.apps") else ():
                choices, default = _choices(field, None), _default(field)
                assert not choices or not default or default in choices, (name, field.name, default, choices)


def test_no_verb_hides_all_of_its_own_settings():
    for name, verb in VERBS.items():
        assert not is_trainers(verb.config), name
