"""Facet vectors from hidden states: attention of learned facet anchors, aggregated over granularities."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot


def masked_softmax(logits: Float[Tensor, "..."], mask: Bool[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the softmax over the last axis where the mask is true. A row without true entries is uniform."""
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(-1)


def unit_vectors(
    states: Float[Tensor, "N L D"], logits: Float[Tensor, "N F L"], member: Bool[Tensor, "N U L"]
) -> Float[Tensor, "N F U D"]:
    """Compute v_fu = Σ_{t in u} softmax_{t in u}(s_ft) h_t, the vector of facet f for unit u of a text.

    s_ft is the attention logit of facet f for token t with hidden state h_t. A unit without tokens has no defined
    vector.
    """
    return masked_softmax(logits[:, :, None], member[:, None]) @ states[:, None]


def members(unit: Int[Tensor, "N L"], attention: Bool[Tensor, "N L"]) -> Bool[Tensor, "N U L"]:
    """Return which tokens belong to each unit. U is the largest number of units of a text in the batch."""
    return (one_hot(unit).bool() & attention[..., None]).transpose(1, 2)


class MeanPooling(nn.Module):
    """Mean pooling: z = W mean_t h_t / |W mean_t h_t|, one vector per text. It is the control without facets.

    h_t are the hidden states of tokens t, and W is a learned projection.
    """

    def __init__(self, hidden: int, width: int):
        super().__init__()
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(
        self, states: Float[Tensor, "N L D"], attention: Bool[Tensor, "N L"], sentence: Int[Tensor, "N L"]
    ) -> Float[Tensor, "N 1 W"]:
        """Return the unit vector of each text. `sentence` is not used."""
        weight = attention[..., None].to(states.dtype)
        mean = (states * weight).sum(1) / weight.sum(1).clamp(min=1)
        return normalize(self.output(mean), dim=-1)[:, None]


class FacetPooling(nn.Module):
    """Facet vectors of a text: anchors attend over tokens within units, then over units, then over granularities.

        s_ft = a_f · K h_t / √D,   v_fu = Σ_{t in u} softmax_{t in u}(s_ft) h_t          tokens of a unit
        β_fu = softmax_{u in g}(b_f · v_fu / √D),   v_fg = Σ_{u in g} β_fu v_fu          units of a granularity
        λ_fg = softmax_g(w_fg + c_g · v_fg / √D),   z_f = W Σ_g λ_fg v_fg, of length 1   granularities

    for F facets f, hidden states h_t [D] of tokens t, and the granularities g sentence, segment (consecutive sentences)
    and text. UniFAR (Dou et al. 2026, arXiv:2602.23766) introduced facet anchors and aggregation over granularities.
    The equations are ours, since only the paper's abstract was available. K, W, a, b, w and c are learned. w and c
    start at 0, so that all granularities have equal weight.
    """

    def __init__(self, hidden: int, width: int, facets: int, granularities: Sequence[str], segment_sentences: int):
        super().__init__()
        self.granularities, self.segment_sentences, self.scale = tuple(granularities), segment_sentences, hidden**-0.5
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, width, bias=False)
        self.anchors = nn.Parameter(torch.randn(facets, hidden))
        self.unit_anchors = nn.Parameter(torch.randn(facets, hidden) / math.sqrt(hidden))
        self.level_bias = nn.Parameter(torch.zeros(facets, len(self.granularities)))
        self.level_vectors = nn.Parameter(torch.zeros(len(self.granularities), hidden))

    def forward(
        self, states: Float[Tensor, "N L D"], attention: Bool[Tensor, "N L"], sentence: Int[Tensor, "N L"]
    ) -> Float[Tensor, "N F W"]:
        """Return the facet vectors of each text. `sentence` is the index of each token's sentence."""
        levels = self.levels(states, attention, sentence)
        scores = torch.einsum("gd,nfgd->nfg", self.level_vectors, levels) * self.scale
        weights = (self.level_bias + scores).softmax(-1)
        return normalize(self.output((weights[..., None] * levels).sum(2)), dim=-1)

    def levels(
        self, states: Float[Tensor, "N L D"], attention: Bool[Tensor, "N L"], sentence: Int[Tensor, "N L"]
    ) -> Float[Tensor, "N F G D"]:
        """Return v_fg, the vector of each facet f at each granularity g."""
        logits = torch.einsum("fd,nld->nfl", self.anchors, self.key(states)) * self.scale
        units = {
            "sentence": sentence,
            "segment": sentence // self.segment_sentences,
            "text": torch.zeros_like(sentence),
        }
        return torch.stack(
            [self._pool_units(states, logits, members(units[name], attention)) for name in self.granularities], dim=2
        )

    def _pool_units(
        self, states: Float[Tensor, "N L D"], logits: Float[Tensor, "N F L"], member: Bool[Tensor, "N U L"]
    ) -> Float[Tensor, "N F D"]:
        vectors = unit_vectors(states, logits, member)
        scores = torch.einsum("fd,nfud->nfu", self.unit_anchors, vectors) * self.scale
        shares = masked_softmax(scores, member.any(2)[:, None])
        return (shares[..., None] * vectors).sum(2)


def similarity(
    first: Float[Tensor, "Q F W"], second: Float[Tensor, "N F W"], how: str = "mean"
) -> Float[Tensor, "Q N"]:
    """Return the similarity of texts in [-1, 1] from their unit facet vectors z_f and z'_f, f = 1, ..., F [ours].

    mean: 1/F Σ_f z_f · z'_f          all facets have equal weight
    max:  max_f z_f · z'_f            similarity in one facet suffices
    """
    by_facet = torch.einsum("qfw,nfw->fqn", first, second)
    return by_facet.mean(0) if how == "mean" else by_facet.amax(0)


def diversity(vectors: Float[Tensor, "N F W"]) -> Float[Tensor, ""]:
    """Return mean_{f ≠ f'} (z_f · z_f')² over the facet vectors of a text, in [0, 1].

    0 means orthogonal facets. A single facet has 0.
    """
    facets = vectors.shape[1]
    if facets == 1:
        return vectors.new_zeros(())
    products = vectors @ vectors.transpose(1, 2)
    others = ~torch.eye(facets, dtype=torch.bool, device=vectors.device)
    return products[:, others].square().mean()
