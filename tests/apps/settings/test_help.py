"""What help pages say of settings agrees with what the settings accept."""

import dataclasses
import re

from rewardlab.apps.settings.help import _choices, _default
from rewardlab.apps.settings.preflight import is_trainers
from rewardlab.apps.verbs import VERBS


def test_the_default_of_a_setting_is_one_of_its_choices():
    for name, verb in VERBS.items():
        for group in verb.settings:
            for field in dataclasses.fields(group) if group.__module__.startswith("rewardlab.apps") else ():
                choices, default = _choices(field, None), _default(field)
                assert not choices or not default or default in choices, (name, field.name, default, choices)


def test_help_has_no_words_of_the_project_s_own():
    own = re.compile(r"\b(verbs?|suites?|garden|worlds?|scorers?|arms?|golden scores?)\b")
    for name, verb in VERBS.items():
        texts = [field.metadata.get("help", "") for group in verb.outlines for field in dataclasses.fields(group)]
        assert not [text for text in (verb.help, *texts) if own.search(text)], name


def test_no_verb_hides_all_of_its_own_settings():
    for name, verb in VERBS.items():
        assert not is_trainers(verb.config), name
