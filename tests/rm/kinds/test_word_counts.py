from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rewardlab.rm.kinds.linear import model
from rewardlab.rm.kinds.linear.model import gram_counts
from sklearn.feature_extraction.text import CountVectorizer


def test_grams_are_counted_in_alphabetical_order_in_as_many_documents_as_their_texts_stand_for():
    counts = gram_counts(["to be or not to be", "to Be, so"], np.ones(2, int), least=1)
    # be, be or, be so, not, not to, or, or not, so, to, to be
    assert counts.toarray().tolist() == [[2, 1, 0, 1, 1, 1, 1, 0, 2, 2], [1, 0, 1, 0, 0, 0, 0, 1, 1, 1]]
    assert gram_counts(["stone", "river"], np.array([2, 1]), least=2).toarray().tolist() == [[1], [0]]
    assert gram_counts(["stone", "stone"], np.array([1, 1]), least=2).toarray().tolist() == [[1], [1]]
    assert gram_counts(["stone", "stone"], np.array([1, 0]), least=2).shape == (2, 0)
    for texts in [[], [""], ["a", "!"]]:
        assert gram_counts(texts, np.ones(len(texts), int), least=1).shape == (len(texts), 0)


@settings(max_examples=30)
@given(st.lists(st.text("abz Ä中_-1\n", max_size=40), min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 9))
def test_counts_are_those_of_scikit_learn_for_every_size_of_the_parts(texts, least, part):
    with mock.patch.object(model, "PART", part):
        counts = gram_counts(texts, np.ones(len(texts), int), least)
    try:
        expected = CountVectorizer(ngram_range=(1, 2), min_df=least).fit_transform(texts)
    except ValueError:  # no word is left
        assert counts.shape == (len(texts), 0)
        return
    assert counts.toarray().tolist() == expected.toarray().tolist()
    assert counts.has_sorted_indices
