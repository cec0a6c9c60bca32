import math

import numpy as np
import pytest
import torch
from rewardlab.judges.retrieval.encoder import sentence_starts, sentences_of_tokens
from rewardlab.judges.retrieval.pooling import (
    FacetPooling,
    MeanPooling,
    diversity,
    masked_softmax,
    members,
    similarity,
    unit_vectors,
)

ALL = ("sentence", "segment", "text")


def attended(*lengths: int) -> torch.Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def pooling(granularities=ALL, facets=3, hidden=6, width=4, segment_sentences=2) -> FacetPooling:
    torch.manual_seed(0)
    made = FacetPooling(hidden, width, facets, granularities, segment_sentences)
    torch.nn.init.normal_(made.level_vectors)
    torch.nn.init.normal_(made.level_bias)
    return made


def test_where_sentences_start_and_which_tokens_they_have():
    for text, starts in [
        ("", [0]), ("One", [0]), ("One. Two", [0, 5]), ("3.5 cm. Ok", [0, 8]), ("a\n\nb\nc", [0, 3, 5]),
        ('He said "no." Then', [0, 14]), ("\n first", [0]), ("end. ", [0]),
    ]:  # fmt: skip
        assert sentence_starts(text) == starts
    text = "A. B. C"
    assert sentences_of_tokens(text, [(0, 2), (2, 4), (4, 5), (5, 7)]) == [0, 1, 1, 2]
    assert sentences_of_tokens(text, [(0, 2), (5, 7)]) == [0, 1]  # the tokenizer has no token in the second one
    assert sentences_of_tokens("", []) == []


def test_a_facet_reads_the_tokens_of_a_unit_by_their_softmax_which_is_finite_without_a_place():
    states = torch.tensor([[[1.0], [2.0], [4.0]]])
    logits = torch.tensor([[[0.0, math.log(3.0), 7.0]]])
    member = members(torch.tensor([[0, 0, 1]]), attended(3))
    assert member.tolist() == [[[True, True, False], [False, False, True]]]
    # 1/4 · 1 + 3/4 · 2, and the only token of the second unit
    torch.testing.assert_close(unit_vectors(states, logits, member), torch.tensor([[[[1.75], [4.0]]]]))
    logits = torch.tensor([[1.0, 2.0], [1.0, 2.0]], requires_grad=True)
    shares = masked_softmax(logits, torch.tensor([[True, False], [False, False]]))
    assert shares[0].tolist() == [1.0, 0.0]
    shares.sum().backward()
    assert torch.isfinite(shares).all() and torch.isfinite(logits.grad).all()


def test_the_pooling_by_its_equations_token_by_token():
    """One text of two sentences, one facet, sentence and text; every sum is written out."""
    made = pooling(("sentence", "text"), facets=1, hidden=2, width=2)
    states = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]])
    sentence = torch.tensor([[0, 0, 1]])
    with torch.no_grad():
        found = made(states, attended(3), sentence)[0, 0].numpy()
        h, K, W = states[0].double().numpy(), made.key.weight.numpy(), made.output.weight.numpy()
        a, b = made.anchors[0].numpy(), made.unit_anchors[0].numpy()
        w, c = made.level_bias[0].numpy(), made.level_vectors.numpy()

    def softmax(x):
        return np.exp(x) / np.exp(x).sum()

    root = math.sqrt(2)
    s = np.array([a @ (K @ token) for token in h]) / root
    first = softmax(s[:2]) @ h[:2]
    beta = softmax(np.array([b @ first, b @ h[2]]) / root)
    by_sentence = beta[0] * first + beta[1] * h[2]
    by_text = softmax(s) @ h
    weights = softmax(w + np.array([c[0] @ by_sentence, c[1] @ by_text]) / root)
    z = W @ (weights[0] * by_sentence + weights[1] * by_text)
    np.testing.assert_allclose(found, z / np.linalg.norm(z), rtol=1e-5)


def test_mean_pooling_similarity_and_diversity_by_hand():
    made = MeanPooling(2, 2)
    torch.nn.init.eye_(made.output.weight)
    states = torch.tensor([[[3.0, 0.0], [0.0, 4.0], [9.0, 9.0]]])
    # the mean of the two attended tokens is (1.5, 2), of length 2.5
    found = made(states, torch.tensor([[True, True, False]]), torch.zeros(1, 3, dtype=torch.long))
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.8]]]))
    first = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    second = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.6, 0.8], [0.0, -1.0]]])
    torch.testing.assert_close(similarity(first, second), torch.tensor([[0.5, -0.2]]))
    torch.testing.assert_close(similarity(first, second, "max"), torch.tensor([[1.0, 0.6]]))
    # orthogonal, equal, and a cosine of -0.8: the mean of 0, 1 and 0.64
    assert diversity(torch.cat([first, second])).item() == pytest.approx(1.64 / 3)
    assert diversity(first[:, :1]).item() == 0.0


def test_padding_and_the_other_texts_change_nothing_and_segments_are_runs_of_sentences():
    for made in [pooling(), pooling(("sentence",)), pooling(("text",)), MeanPooling(6, 4)]:
        torch.manual_seed(1)
        states, sentence = torch.randn(1, 5, 6), torch.tensor([[0, 0, 1, 2, 2]])
        alone = made(states, attended(5), sentence)
        other, many = torch.randn(1, 9, 6), torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8]])
        padded = torch.cat([states, torch.full((1, 4, 6), 1e3)], 1)
        both = made(
            torch.cat([padded, other]), attended(5, 9), torch.cat([torch.nn.functional.pad(sentence, (0, 4)), many])
        )
        torch.testing.assert_close(both[:1], alone, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(alone.norm(dim=-1), torch.ones(alone.shape[:2]))
    levels = pooling().levels(torch.randn(1, 4, 6), attended(4), torch.zeros(1, 4, dtype=torch.long))
    torch.testing.assert_close(levels[:, :, 0], levels[:, :, 2])
    torch.testing.assert_close(levels[:, :, 1], levels[:, :, 2])
    torch.manual_seed(2)
    states, sentence = torch.randn(1, 6, 6), torch.tensor([[0, 0, 1, 2, 3, 3]])
    made = pooling(("segment",))
    pairs = made.levels(states, attended(6), sentence)
    as_sentences = pooling(("sentence",)).levels(states, attended(6), torch.tensor([[0, 0, 0, 1, 1, 1]]))
    torch.testing.assert_close(pairs, as_sentences)
