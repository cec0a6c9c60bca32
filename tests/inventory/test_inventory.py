"""What a user can call, read and load is that of commit 1820637 with the differences that the changelog names."""

import doctest

import pytest

from tests.conftest import ROOT
from tests.inventory import comparison, formats, surface
from tests.inventory.comparison import differences, expected, flat, read_accepted, read_baseline, refusal

FORMATS = ("models", "files", "summaries")
"""Sections of the baseline that are read from artefacts."""


def unrecorded(present: dict, of_formats: bool) -> list[str]:
    """Return a line for each entry of the inventory that differs from the baseline with the accepted differences."""
    recorded = expected(dict(flat(read_baseline())), read_accepted())
    concerned = {name: value for name, value in recorded.items() if (name.partition(" / ")[0] in FORMATS) == of_formats}
    return differences(concerned, dict(flat(present)))


def test_the_surface_differs_from_the_baseline_as_recorded():
    lines = unrecorded(surface.surface(), of_formats=False)
    assert not lines, refusal(lines)


@pytest.mark.slow
def test_the_files_of_every_verb_differ_from_the_baseline_as_recorded(tmp_path):
    from tests.inventory.artefacts import make

    make(tmp_path / "made")
    lines = unrecorded(formats.formats(tmp_path / "made"), of_formats=True)
    assert not lines, refusal(lines)


def test_an_accepted_difference_is_a_sentence_of_the_changelog_and_differs_from_the_baseline():
    changelog, baseline = " ".join((ROOT / "CHANGELOG.md").read_text().split()), dict(flat(read_baseline()))
    for accepted in read_accepted():
        assert accepted.changelog in changelog, accepted.changelog
        assert {name for name, value in accepted.entries.items() if baseline.get(name) == value} == set()


def test_the_examples_in_docstrings_hold():
    for module in [comparison, formats, surface]:
        assert not doctest.testmod(module).failed
