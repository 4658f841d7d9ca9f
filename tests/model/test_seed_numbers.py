"""The worked examples of the lectures that this project grew from, computed by our own layers.

What the slides made up, and what the formulas really give (so that nobody hunts for a bug here):

- "I like cats": the slides' attention weights [[.7 .2 .1] [.2 .6 .2] [.4 .1 .5]] are marked as made up. The softmax of
  their own Q K^T / sqrt(2) is [[.281 .227 .491] [.827 .161 .012] [.075 .094 .831]] (tested below).
- "I am space invader": masking then softmax of the scores given there is shown as rows [1], [.48 .52], [.45 .21 .34],
  [.25 .16 .33 .26]. The softmax of those scores is [1], [.416 .584], [.496 .272 .232], [.311 .287 .210 .192].
- "Sally adored reading": [80 53 43 . 75] are 112, 75, 60 and 105 divided by 1.4; with sqrt(2) their softmax is 0.993
  for the first and 0.007 for the last of them, not .48 and .32.
"""

import pytest
import torch

from dragoman.model.transformer import attend, attention_weights, causal_mask, sinusoids

Q = torch.tensor([[1.3, 0.8], [0.7, 3.5], [1.9, 0.1]])
K = torch.tensor([[0.6, 2.4], [0.8, 1.7], [2.5, 0.3]])
V = torch.tensor([[0.4, 1.0], [1.2, 2.8], [1.7, 0.2]])


def test_query_times_key_of_i_like_cats_is_what_the_slide_says() -> None:
    """The first matrix product a learner does by hand."""
    expected = torch.tensor([[2.7, 2.4, 3.49], [8.82, 6.51, 2.8], [1.38, 1.69, 4.78]])
    torch.testing.assert_close(Q @ K.T, expected, atol=1e-6, rtol=0)


def test_values_weighted_by_the_given_attention_are_z() -> None:
    """Attention is a weighted mean of the values: Z from the weights given."""
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.4, 0.1, 0.5]])
    torch.testing.assert_close(weights @ V, torch.tensor([[0.69, 1.28], [1.14, 1.92], [1.13, 0.78]]), atol=1e-6, rtol=0)


def test_true_attention_of_i_like_cats() -> None:
    """What the softmax really gives, where the slide says that its values are made up."""
    expected = torch.tensor([[0.281, 0.227, 0.491], [0.827, 0.161, 0.012], [0.075, 0.094, 0.831]])
    torch.testing.assert_close(attention_weights(Q, K), expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(attend(Q[None], K[None], V[None])[0], attention_weights(Q, K) @ V)


def test_thinking_machines_scores_become_88_and_12_percent() -> None:
    """Scores 112 and 96 with d_k = 64: divided by 8 they are 14 and 12."""
    query = torch.zeros(1, 64)
    keys = torch.zeros(2, 64)
    query[0, 0], keys[0, 0], keys[1, 0] = 1.0, 112.0, 96.0
    torch.testing.assert_close(attention_weights(query, keys), torch.tensor([[0.88, 0.12]]), atol=0.005, rtol=0)


def weights_of_scores(scores: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Through our own function: queries that pick out the given scores, undoing its division by sqrt(d_k)."""
    size = scores.shape[-1]
    return attention_weights(scores * size**0.5, torch.eye(size), mask)


def test_masked_softmax_of_the_lecture() -> None:
    """A word sees itself and what came before; the rows are the slide's to two places."""
    scores = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]])
    expected = torch.tensor(
        [[1, 0, 0, 0], [0.37, 0.62, 0, 0], [0.26, 0.31, 0.43, 0], [0.21, 0.26, 0.26, 0.26]], dtype=torch.float32
    )
    torch.testing.assert_close(weights_of_scores(scores, causal_mask(4)), expected, atol=0.01, rtol=0)


def test_true_masked_softmax_of_space_invader() -> None:
    """The slide's distribution does not follow from its scores; this one does."""
    scores = torch.tensor(
        [[0.11, 0.04, 0.05, 0.3], [0.19, 0.53, 0.42, 0.37], [0.81, 0.21, 0.05, 0.09], [0.51, 0.43, 0.12, 0.03]]
    )
    made_up = torch.tensor([[1, 0, 0, 0], [0.48, 0.52, 0, 0], [0.45, 0.21, 0.34, 0], [0.25, 0.16, 0.33, 0.26]])
    truth = weights_of_scores(scores, causal_mask(4))
    expected = torch.tensor(
        [[1, 0, 0, 0], [0.416, 0.584, 0, 0], [0.496, 0.272, 0.232, 0], [0.311, 0.287, 0.210, 0.192]]
    )
    torch.testing.assert_close(truth, expected, atol=1e-3, rtol=0)
    assert (truth - made_up).abs().max() > 0.1


def test_true_softmax_of_sally() -> None:
    """Scaled scores that far apart leave nearly everything to the largest."""
    scores = torch.tensor([[112.0, 75.0, 60.0, 12.0, 105.0]]) / 2**0.5
    truth = weights_of_scores(scores)
    assert truth[0, 0] == pytest.approx(0.993, abs=1e-3)
    assert truth[0, 4] == pytest.approx(0.007, abs=1e-3)


def test_positions_follow_the_formula() -> None:
    """Even columns are sines, odd columns cosines, wavelengths from 2 pi to 10000 x 2 pi."""
    table = sinusoids(10, 6)
    for position in range(10):
        for i in range(3):
            angle = torch.tensor(position / 10000 ** (2 * i / 6), dtype=torch.float64)
            assert table[position, 2 * i].item() == pytest.approx(angle.sin().item(), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(angle.cos().item(), abs=1e-6)
