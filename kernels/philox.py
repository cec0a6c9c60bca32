"""Counter-based random numbers (Philox4x32-10): a function of seed and position, independent of the order of calls."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROUNDS = 10
FACTORS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)  # what the key's words grow by from round to round
WORD = 0xFFFFFFFF


def philox4x32(counter: Int[Tensor, "4 ..."], key: Int[Tensor, "2 ..."]) -> Int[Tensor, "4 ..."]:
    """Return four random 32-bit words for every counter (c0, ..., c3) and key (k0, k1); each is an int64 in [0, 2³²).

    c0' = hi(F1 c2) ^ c1 ^ k0,  c1' = lo(F1 c2),  c2' = hi(F0 c0) ^ c3 ^ k1,  c3' = lo(F0 c0), ten times;
    k += constants mod 2³² between rounds                  Salmon et al. 2011, "Parallel random numbers", section 3.3

    F0 and F1 are Philox's multipliers; hi and lo are the upper and lower 32 bits of a product.
    """
    shape = (2,) + (1,) * (counter.dim() - 1)
    factors, steps = (torch.tensor(pair, device=counter.device).view(shape) for pair in (FACTORS, STEPS))
    even, odd = counter[0::2], counter[1::2]
    for step in range(ROUNDS):
        product = (even * factors).flip(0)  # mod 2⁶⁴: an int64 keeps the bits of the unsigned product
        even = ((product >> 32) & WORD) ^ odd ^ ((key + step * steps) & WORD)
        odd = product & WORD
    return torch.stack([even[0], odd[0], even[1], odd[1]])


def words(
    seed: Int[Tensor, "..."], index: Int[Tensor, "..."], position: Int[Tensor, "..."], stream: int
) -> Int[Tensor, "4 ..."]:
    """Return the Philox words of key `seed` (64 bits) and counter (index, position, stream, 0), each below 2³²."""
    seed, index, position = torch.broadcast_tensors(seed, index, position)
    counter = torch.stack([index, position & WORD, torch.full_like(index, stream), torch.zeros_like(index)])
    return philox4x32(counter, torch.stack([seed & WORD, (seed >> 32) & WORD]))


def uniform(word: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the uniform number (word + 1/2) 2⁻³² in float64, in the open interval (0, 1)."""
    return (word.double() + 0.5) * 2.0**-32


def gumbel(word: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the standard Gumbel variable -log E with E = -log(1 - U) in float64; U is the word's uniform number.

    The largest value, at the smallest U, is 22.9: tokens of probability 1e-8 are still sampled at the right rate.
    """
    return -torch.log(-torch.log1p(-uniform(word)))
