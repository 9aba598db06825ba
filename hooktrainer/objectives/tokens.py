"""Losses of language models: fine-tuning (SFT), preferences (DPO), rewards (GRPO and relatives)."""

from __future__ import annotations

from abc import abstractmethod
from itertools import product
from typing import Any, Literal, TypeAlias

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from ..base.checks import check_choice, check_count, check_positive, check_rate
from ..errors import ConfigError, NonFiniteError
from ..networks.language_model import Sampling
from .common import Entries, Loss
from .gae import discounted_suffix_sums
from .targets import target_copy

Average: TypeAlias = Literal["sequence", "token", "constant"]

_LEAST = -1e4  # log-probability of a token that top_k or top_p cut: finite, and its exp is 0
_DISTRIBUTION = Sampling()


class Targets:
    """The tokens of a batch that are trained on, and where a model predicts them.

    Sequences without such a token are not given to the model. The first token of a sequence is
    never trained on, since nothing predicts it.

    Args:
        tokens: Right-padded, int64 ``[N, T]``.
        length: Length of each sequence, int64 ``[N]``.
        sampled: The tokens to train on, bool ``[N, T]``.
        kept: Sequences to train on, bool ``[N]``; ``None`` for all.

    Attributes:
        mask: The tokens that are trained on, bool ``[N, T]``; there are M.
        tokens: These tokens, ``[M]``.
        count: How many of them each sequence has, at least 1, ``[N]``.

    Raises:
        ValueError: If shapes or lengths are wrong, or there is no token to train on.
    """

    def __init__(
        self, tokens: Tensor, length: Tensor, sampled: Tensor, kept: Tensor | None = None
    ) -> None:
        if tokens.ndim != 2 or sampled.shape != tokens.shape or length.shape != tokens.shape[:1]:
            shapes = (tuple(each.shape) for each in (tokens, length, sampled))
            raise ValueError(
                "tokens {}, length {} and sampled {}: must be [N, T], [N] and [N, T].".format(
                    *shapes
                )
            )
        lengths = length.tolist()
        if not 1 <= min(lengths) <= max(lengths) <= tokens.shape[1]:
            raise ValueError(
                f"lengths from {min(lengths)} to {max(lengths)}: must be from 1 to the "
                f"{tokens.shape[1]} columns of tokens."
            )
        inside = torch.arange(tokens.shape[1], device=tokens.device) < length.unsqueeze(-1)
        mask = sampled & inside
        mask[:, 0] = False
        if not mask.any():
            raise ValueError(
                f"no token of these {len(lengths)} sequences is marked in 'sampled' (first tokens "
                "and padding do not count), so there is nothing to train on."
            )
        mask = mask if kept is None else mask & kept.view(-1, 1)
        used = mask.any(1)
        if used.any():  # otherwise the loss is 0, and still needs a gradient
            inside = inside & used.unsqueeze(-1)
            lengths = length[used].tolist()
        self.mask = mask
        self.tokens = tokens[mask]
        self.count = mask.sum(1).clamp_min(1)
        self._packed, self._lengths = tokens[inside], lengths
        self._rows = mask.roll(-1, 1)[inside]

    def predict(self, model: nn.Module) -> Tensor:
        """Return what a model computes where it predicts the tokens, ``[M, ...]``."""
        return model(self._packed, self._lengths)[self._rows]

    def log_prob(self, log_probs: Tensor) -> Tensor:
        """Return the log-probabilities ``[M]`` of the tokens; of one that is cut, a low number."""
        return log_probs.gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1).clamp_min(_LEAST)

    def padded(self, values: Tensor) -> Tensor:
        """Return values ``[M]`` as ``[N, T]``, zero elsewhere."""
        full = values.new_zeros(self.mask.shape)
        return full.masked_scatter(self.mask, values)

    def sequence_mean(self, values: Tensor) -> Tensor:
        """Return the mean of values ``[M]`` over each sequence, ``[N]``."""
        return self.padded(values).sum(1) / self.count

    def spread(self, values: Tensor) -> Tensor:
        """Return a value ``[N]`` of each sequence for each of its tokens, ``[M]``."""
        return values.unsqueeze(-1).expand(self.mask.shape)[self.mask]


class TokenLoss(Loss):
    """Base class of losses that are an average over tokens.

    ``average="token"`` is the mean over all tokens of the batch (DAPO, arXiv:2503.14476).
    ``"sequence"`` is the mean over sequences of the mean over the tokens of each (GRPO).
    ``"constant"`` divides the sum by the number of sequences times ``max_tokens``, so that the
    weight of a token depends on no length (Dr. GRPO, arXiv:2503.20783).

    Accumulated gradients and gradients of several processes count by the number of sequences.
    ``"sequence"`` and ``"constant"`` then equal the loss of the large batch. ``"token"`` does not
    if parts have unequal numbers of tokens: use ``"constant"``, which counts by tokens.

    Args:
        model: Maps packed tokens and their lengths to logits, as `LanguageModel` does.
        average: ``"token"``, ``"sequence"`` or ``"constant"``.
        max_tokens: For ``"constant"``, such as the number of tokens that are generated at most.
        **keys: Keys of further entries.
    """

    model: Any

    def __init__(
        self, model: nn.Module, average: Average, max_tokens: int | None, **keys: NestedKey
    ) -> None:
        super().__init__(tokens="tokens", length="length", sampled="sampled", **keys)
        check_choice("average", average, ("sequence", "token", "constant"))
        if (average == "constant") != (max_tokens is not None):
            raise ConfigError(
                f"average={average!r} with max_tokens={max_tokens}: 'constant' takes max_tokens, "
                "and no other average does."
            )
        check_count("max_tokens", max_tokens, none="for other averages")
        self.model = model
        self.average = average
        self.max_tokens = max_tokens

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        return [keys.tokens, keys.length, keys.sampled]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        return self._losses_of(entries, self._targets(entries))

    @abstractmethod
    def _losses_of(self, entries: Entries, targets: Targets) -> dict[str, Tensor]:
        """Return losses and diagnostics, given the tokens that are trained on."""

    def _targets(self, entries: Entries) -> Targets:
        keys, kept = self.tensor_keys, self._kept(entries)
        return Targets(entries[keys.tokens], entries[keys.length], entries[keys.sampled], kept)

    def _kept(self, entries: Entries) -> Tensor | None:
        """Return the sequences to train on, bool ``[N]``; ``None`` for all."""
        return None

    def _mean(self, values: Tensor, targets: Targets) -> Tensor:
        """Return the average of values ``[M]``."""
        if self.average == "sequence":
            return targets.sequence_mean(values).mean()
        if self.max_tokens is not None:
            return values.sum() / (len(targets.mask) * self.max_tokens)
        return values.sum() / max(len(values), 1)


class SFTLoss(TokenLoss):
    """The negative log-likelihood of the tokens marked in ``"sampled"``.

    Reads ``"tokens"``, ``"length"`` and ``"sampled"``. Returns ``loss_nll``, and over all tokens
    ``accuracy``, the fraction that were the most probable, and ``perplexity``.

    Args:
        model: The language model.
        average: How tokens are averaged, see `TokenLoss`. With accumulated gradients,
            ``"constant"`` makes every token count alike.
        max_tokens: For ``average="constant"``.

    Examples:
        >>> loss = SFTLoss(CausalTransformer(vocab_size=64, context_length=32))
    """

    hint = "'sampled' marks the tokens to train on, such as those after the prompt."
    out_keys = ("loss_nll",)

    def __init__(
        self, model: nn.Module, *, average: Average = "token", max_tokens: int | None = None
    ) -> None:
        super().__init__(model, average, max_tokens)

    def _losses_of(self, entries: Entries, targets: Targets) -> dict[str, Tensor]:
        log_probs = _DISTRIBUTION.log_probs(targets.predict(self.model))
        nll = -targets.log_prob(log_probs)
        right = log_probs.detach().argmax(-1) == targets.tokens
        return {
            "loss_nll": self._mean(nll, targets),
            "accuracy": right.to(nll.dtype).mean(),
            "perplexity": nll.detach().mean().exp(),
        }


class DPOLoss(Loss):
    """Direct preference optimization (Rafailov et al., 2023, arXiv:2305.18290) and variants.

    With ``d``, the difference between a chosen and a rejected completion in the log-ratio of the
    model to the reference, summed over tokens, the mean over pairs of:

    - ``"sigmoid"``: ``-log sigmoid(beta * d)``. With ``label_smoothing``, this fraction of the
      pairs is taken to be swapped (conservative DPO, Mitchell, 2023);
    - ``"hinge"``: ``max(0, 1 - beta * d)`` (SLiC, arXiv:2305.10425);
    - ``"ipo"``: ``(d - 1 / (2 * beta))^2`` (Azar et al., 2023, arXiv:2310.12036), with log-ratios
      that are means over tokens.

    Reads ``"tokens"``, ``"length"`` and ``"sampled"`` under ``"chosen"`` and ``"rejected"``.
    Returns ``loss_preference`` and diagnostics: of the implicit rewards, which are ``beta`` times
    the log-ratios, ``reward_chosen``, ``reward_rejected`` and ``reward_margin``; ``accuracy``, the
    fraction of pairs with a positive margin.

    Args:
        model: The language model.
        reference: Model whose frozen copy is the reference; ``None`` for a copy of ``model``. The
            copy is saved with the loss, so that a resumed run has the same.
        beta: Inverse strength of the preferences, or strength of the penalty for leaving the
            reference.
        label_smoothing: Probability that a preference is wrong, below 0.5.
        variant: ``"sigmoid"``, ``"ipo"`` or ``"hinge"``.
    """

    hint = "A batch has pairs of completions under 'chosen' and 'rejected'."
    out_keys = ("loss_preference",)
    model: Any
    beta: Any

    def __init__(
        self,
        model: nn.Module,
        reference: nn.Module | None = None,
        *,
        beta: float = 0.1,
        label_smoothing: float = 0.0,
        variant: Literal["sigmoid", "ipo", "hinge"] = "sigmoid",
    ) -> None:
        super().__init__()
        check_choice("variant", variant, ("sigmoid", "ipo", "hinge"))
        check_positive("beta", beta)
        if not 0 <= label_smoothing < 0.5 or (label_smoothing and variant != "sigmoid"):
            raise ConfigError(
                f"label_smoothing={label_smoothing} with variant={variant!r}: pass a number from 0 "
                "to 0.5, and only with 'sigmoid'."
            )
        self.model = model
        self.reference = target_copy(model if reference is None else reference)
        self._register_coefficients(beta=beta)
        self.label_smoothing = label_smoothing
        self._variant = variant

    @property
    def in_keys(self) -> list[NestedKey]:
        return list(product(("chosen", "rejected"), ("tokens", "length", "sampled")))

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        columns = [
            _joined(*(entries[side, name] for side in ("chosen", "rejected")))
            for name in ("tokens", "length", "sampled")
        ]
        targets = Targets(*columns)
        log_prob = targets.log_prob(_DISTRIBUTION.log_probs(targets.predict(self.model)))
        log_ratio = log_prob - _fixed_log_prob(self.reference, targets, _DISTRIBUTION)
        sums = targets.padded(log_ratio).sum(1)
        reward, rejected_reward = (self.beta * sums.detach()).chunk(2)
        scores = sums / targets.count if self._variant == "ipo" else sums
        chosen, rejected = scores.chunk(2)
        margin = reward - rejected_reward
        return {
            "loss_preference": self._distance(chosen - rejected).mean(),
            "reward_chosen": reward.mean(),
            "reward_rejected": rejected_reward.mean(),
            "reward_margin": margin.mean(),
            "accuracy": (margin > 0).to(margin.dtype).mean(),
        }

    def _distance(self, difference: Tensor) -> Tensor:
        if self._variant == "ipo":
            return (difference - 1 / (2 * self.beta)).square()
        scaled = self.beta * difference
        if self._variant == "hinge":
            return (1 - scaled).relu()
        swapped = self.label_smoothing
        return -(1 - swapped) * logsigmoid(scaled) - swapped * logsigmoid(-scaled)


class GRPOLoss(TokenLoss):
    """Group relative policy optimization (Shao et al., 2024, arXiv:2402.03300) and relatives.

    With the ratio ``r`` of the probability of a token now to the recorded one, and its advantage
    ``A``, it maximizes the average of ``min(r * A, clip(r, 1 - clip, 1 + clip_high) * A)``:

    - GRPO: the defaults. Dr. GRPO: ``average="constant"`` and advantages that are not scaled. DAPO:
      ``average="token"``, ``clip_high=0.28``, ``mask_cut_off=True``;
    - GSPO (arXiv:2507.18071): ``importance="sequence"``, the geometric mean of the ratios of a
      sequence in place of each, with ``clip`` about 3e-4;
    - REINFORCE, RLOO (arXiv:2402.14740): ``clip=None``, the average of ``r * A``.

    **Old tokens.** With ``correction``, the ratio has two factors (Hilton et al., 2021,
    arXiv:2110.00641): from the recorded policy to an old one, which is a bounded weight without a
    gradient, and from the old policy to the present one, which is clipped. ``"truncate"`` clamps
    weights to the bounds, ``"mask"`` makes those outside 0. The log-probability of the old policy
    is ``"old_log_prob"``, computed as training on the batch begins. With ``clip=None`` it is the
    present policy's, and nothing is read: the gradient is that of truncated importance sampling.

    Reads ``"tokens"``, ``"length"``, ``"sampled"``, ``"log_prob"``, ``"advantage"``, ``[N]`` or
    ``[N, T]``, ``"stopped"`` with ``mask_cut_off``, and, with ``correction`` and ``clip``,
    ``"old_log_prob"``, which `hooktrainer.sequences.RecomputeLogProbs` writes. Returns
    ``loss_objective``, ``loss_kl`` and ``loss_entropy``, each averaged in the same way, and over
    all tokens

    - ``entropy`` of the distribution that is sampled; ``kl`` from the reference;
    - of the ratios to the recorded policy, of tokens or of sequences: ``mean_ratio``,
      ``max_ratio``, ``ESS`` (effective sample size, as a fraction), ``kl_approx`` (minus the mean
      of the logarithm), ``correction_fraction`` outside the bounds;
    - ``clip_fraction`` of the ratios that are outside the clipping range.

    Args:
        model: The language model.
        sampling: How the tokens were drawn, as given to `Engine`.
        clip: Bound of the ratio below 1, and above without ``clip_high``; ``None`` for none.
        clip_high: Bound of the ratio above 1.
        importance: ``"token"`` or ``"sequence"``: what has a ratio.
        average: How tokens are averaged, see `TokenLoss`.
        max_tokens: For ``average="constant"``.
        kl_coeff: Factor of the divergence from the reference.
        kl: Its estimate (Schulman, 2020, joschu.net/blog/kl-approx.html); by default ``"k3"``.
            ``"k1"``, whose own gradient is 0 on average, has the gradient of ``"k2"``. It is of the
            distribution that ``top_k`` and ``top_p`` do not cut.
        reference: As for `DPOLoss`.
        correction: ``"truncate"`` or ``"mask"``: how weights are bounded; ``None`` for no weights.
        bounds: The lowest and the highest weight; by default 0 and 2.
        entropy_coeff: Factor of an entropy bonus.
        mask_cut_off: Whether completions that have not stopped are left out. They count among the
            sequences that the loss is divided by.
    """

    hint = "Generation writes the tokens; a reward and `group_advantage` make 'advantage'."
    clip: Any
    clip_high: Any
    kl_coeff: Any
    entropy_coeff: Any

    def __init__(
        self,
        model: nn.Module,
        *,
        sampling: Sampling = _DISTRIBUTION,
        clip: float | None = 0.2,
        clip_high: float | None = None,
        importance: Literal["token", "sequence"] = "token",
        average: Average = "sequence",
        max_tokens: int | None = None,
        kl_coeff: float = 0.0,
        kl: Literal["k1", "k2", "k3"] | None = None,
        reference: nn.Module | None = None,
        correction: Literal["truncate", "mask"] | None = None,
        bounds: tuple[float, float] | None = None,
        entropy_coeff: float = 0.0,
        mask_cut_off: bool = False,
    ) -> None:
        more = ("log_prob", "old_log_prob", "advantage", "stopped")
        super().__init__(model, average, max_tokens, **{name: name for name in more})
        check_choice("importance", importance, ("token", "sequence"))
        check_choice("kl", kl, (None, "k1", "k2", "k3"))
        check_choice("correction", correction, (None, "truncate", "mask"))
        for name, value, needed, without in (
            ("clip_high", clip_high, "clip", clip is None),
            ("kl", kl, "kl_coeff", not kl_coeff),
            ("reference", reference, "kl_coeff", not kl_coeff),
            ("bounds", bounds, "correction", correction is None),
        ):
            if value is not None and without:
                shown = type(value).__name__ if name == "reference" else repr(value)
                raise ConfigError(f"{name}={shown} has no effect without {needed}: pass that too.")
        for name, value in (("clip", clip), ("clip_high", clip_high)):
            check_positive(name, value, none="no bound")
        low, high = bounds or (0.0, 2.0)
        if not 0 <= low < high or not low <= 1 <= high:
            raise ConfigError(f"bounds={bounds}: pass two numbers of 0 or more around 1.")
        self.sampling = sampling
        self.importance = importance
        self.kl = kl or "k3"
        self.correction = correction
        self.bounds = low, high
        self.mask_cut_off = mask_cut_off
        self.reference = (
            target_copy(model if reference is None else reference) if kl_coeff else None
        )
        self._register_coefficients(
            clip=clip,
            clip_high=clip if clip_high is None else clip_high,
            kl_coeff=check_rate("kl_coeff", kl_coeff) or None,
            entropy_coeff=check_rate("entropy_coeff", entropy_coeff) or None,
        )
        others = {"loss_kl": kl_coeff, "loss_entropy": entropy_coeff}
        self.out_keys = ["loss_objective", *(name for name, coeff in others.items() if coeff)]

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        read = [*super().in_keys, keys.log_prob, keys.advantage]
        read += [keys.stopped] if self.mask_cut_off else []
        return [*read, keys.old_log_prob] if self._reads_old else read

    @property
    def _reads_old(self) -> bool:
        return self.correction is not None and self.clip is not None

    def _losses_of(self, entries: Entries, targets: Targets) -> dict[str, Tensor]:
        keys = self.tensor_keys
        logits = targets.predict(self.model)
        log_probs = self.sampling.log_probs(logits)
        log_prob, recorded = targets.log_prob(log_probs), entries[keys.log_prob][targets.mask]
        change = log_prob.detach() - recorded
        out = self._objective(log_prob, recorded, entries, targets)
        entropy = entropy_of(log_probs if self.entropy_coeff is not None else log_probs.detach())
        if self.entropy_coeff is not None:
            out["loss_entropy"] = -self.entropy_coeff * self._mean(entropy, targets)
        if self.reference is not None:
            sampling = Sampling(self.sampling.temperature)
            if sampling != self.sampling:
                log_prob = targets.log_prob(sampling.log_probs(logits))
            difference = log_prob - _fixed_log_prob(self.reference, targets, sampling)
            kl = _divergence(self.kl, difference)
            out["loss_kl"] = self.kl_coeff * self._mean(kl, targets)
            out["kl"] = kl.detach().sum() / max(len(kl), 1)
        if len(change):
            out |= {"entropy": entropy.detach().mean(), "kl_approx": -change.mean()}
            ratio = self._level(change, targets).exp()
            out |= {"mean_ratio": ratio.mean(), "max_ratio": ratio.max()}
            out["ESS"] = ratio.mean().square() / ratio.square().mean()
        return out

    def _kept(self, entries: Entries) -> Tensor | None:
        return entries[self.tensor_keys.stopped] if self.mask_cut_off else None

    def _objective(
        self, log_prob: Tensor, recorded: Tensor, entries: Entries, targets: Targets
    ) -> dict[str, Tensor]:
        advantage = _advantage(entries[self.tensor_keys.advantage], targets)
        old, out = recorded, {}
        if self.correction is not None:
            old = log_prob.detach()
            if self._reads_old:
                old = entries[self.tensor_keys.old_log_prob][targets.mask]
            weight = self._level(old - recorded, targets).exp()
            bounded = weight.clamp(*self.bounds)
            within = weight == bounded
            out["correction_fraction"] = (~within).to(weight.dtype).sum() / max(len(weight), 1)
            bounded = torch.where(within, weight, 0.0) if self.correction == "mask" else bounded
            advantage = advantage * bounded
        ratio = self._level(log_prob - old, targets).exp()
        gain = ratio * advantage
        if self.clip is not None:
            clipped = ratio.clamp(1 - self.clip, 1 + self.clip_high)
            gain = torch.minimum(gain, clipped * advantage)
            outside = (ratio != clipped).to(ratio.dtype)
            out["clip_fraction"] = outside.sum() / max(len(outside), 1)
        return {"loss_objective": -self._mean(gain, targets), **out}

    def _level(self, log_ratio: Tensor, targets: Targets) -> Tensor:
        """Return log-ratios of tokens, or those of their sequences, ``[M]``.

        The gradient of the latter is that of each token. Its mean over the sequence is the gradient
        of GSPO, and advantages may differ among tokens (GSPO-token, equation 13).
        """
        if self.importance == "token":
            return log_ratio
        fixed = log_ratio.detach()
        return targets.spread(targets.sequence_mean(fixed)) + (log_ratio - fixed)


class TokenPPOLoss(GRPOLoss):
    """Proximal policy optimization of a language model, with a value of each token.

    It is `GRPOLoss` with the advantages ``[N, T]`` of `token_gae`, and ``loss_critic``, the average
    squared error of the values. It also reads ``"value_target"``, ``[N, T]``, and returns the
    ``explained_variance`` of these.

    Args:
        model: The language model.
        value_model: Maps packed tokens and their lengths to values, ``[total]`` or ``[total, 1]``.
            The row before a token has the value before it is drawn.
        critic_coeff: Factor of ``loss_critic``.
        average: How tokens are averaged, see `TokenLoss`.
        **options: As for `GRPOLoss`.
    """

    hint = "`values` and `token_gae` make 'advantage' and 'value_target'."
    value_model: Any
    critic_coeff: Any

    def __init__(
        self,
        model: nn.Module,
        value_model: nn.Module,
        *,
        critic_coeff: float = 0.5,
        average: Average = "token",
        **options: Any,
    ) -> None:
        super().__init__(model, average=average, **options)
        vars(self.tensor_keys)["value_target"] = "value_target"
        self.value_model = value_model
        self._register_coefficients(critic_coeff=check_rate("critic_coeff", critic_coeff))
        self.out_keys = [*self.out_keys, "loss_critic"]

    @property
    def in_keys(self) -> list[NestedKey]:
        return [*super().in_keys, self.tensor_keys.value_target]

    @torch.no_grad()
    def values(self, batch: TensorDictBase) -> Tensor:
        """Return the value before each token, ``[N, T]``; zero where none is trained on."""
        targets = self._targets(batch)
        return targets.padded(targets.predict(self.value_model).view(-1))

    def _losses_of(self, entries: Entries, targets: Targets) -> dict[str, Tensor]:
        out = super()._losses_of(entries, targets)
        wanted = entries[self.tensor_keys.value_target][targets.mask]
        error = targets.predict(self.value_model).view(-1) - wanted
        out["loss_critic"] = self.critic_coeff * self._mean(error.square(), targets)
        if len(wanted) > 1:
            spread = wanted.var() + torch.finfo(wanted.dtype).eps
            out["explained_variance"] = 1 - error.detach().var() / spread
        return out


def token_gae(
    reward: Tensor, value: Tensor, sampled: Tensor, *, gamma: float = 1.0, lmbda: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Compute generalized advantage estimates over the tokens that were sampled.

    Each is a step; tokens that were given between them are not. A completion ends with its last
    sampled token, also if it was cut off.

    Args:
        reward: Of each completion, ``[N]``, or of each token, ``[N, T]``. That of a token which was
            not sampled counts for the sampled one before it.
        value: Before each token, ``[N, T]``.
        sampled: bool ``[N, T]``.
        gamma: Discount factor.
        lmbda: The lambda of GAE.

    Returns:
        Advantages and value targets, ``[N, T]``, zero where no token was sampled.
    """
    if reward.ndim == 1:
        reward = pad(reward.unsqueeze(-1), (value.shape[1] - 1, 0))
    given = (~sampled).to(value.dtype)

    def following(entry: Tensor, discount: Tensor) -> Tensor:
        return pad(discounted_suffix_sums(entry, discount, 1)[:, 1:], (0, 1))

    value = value.where(sampled, 0.0)
    earned = reward + following(reward * given, given)
    delta = (earned + gamma * following(value, given) - value).where(sampled, 0.0)
    discount = torch.where(sampled, gamma * lmbda, 1.0).to(delta.dtype)
    advantage = discounted_suffix_sums(delta, discount, 1).where(sampled, 0.0)
    return advantage, advantage + value


def group_advantage(
    reward: Tensor,
    group: Tensor,
    *,
    baseline: Literal["mean", "leave_one_out"] | None = "mean",
    scale: bool | Literal["batch"] = True,
) -> Tensor:
    """Compute the advantages of completions from their rewards and those of their group.

    | | ``baseline`` | ``scale`` |
    |---|---|---|
    | GRPO | ``"mean"`` | ``True`` |
    | Dr. GRPO | ``"mean"`` | ``False`` |
    | RLOO | ``"leave_one_out"`` | ``False`` |
    | REINFORCE++ (arXiv:2501.03262) | ``None`` | ``"batch"`` |
    | REINFORCE++ with a baseline | ``"mean"`` | ``"batch"`` |

    Args:
        reward: ``[N]``.
        group: Number of the group of each, ``[N]``. Completions of one prompt are a group.
        baseline: Subtracted from a reward: the mean of its group, or the mean of the others in its
            group; ``None`` for nothing.
        scale: Whether to divide by the standard deviation of the group's rewards, plus 1e-4.
            ``"batch"`` subtracts the mean and divides by the deviation of all that results.

    Returns:
        ``[N]``, float32; exactly 0 for a group whose rewards are all equal, but without a baseline.

    Raises:
        ValueError: If the shapes are wrong.
        NonFiniteError: If a reward is NaN or infinite.
        ConfigError: If a group is too small for ``baseline``, or the options do not go together.
    """
    check_choice("baseline", baseline, (None, "mean", "leave_one_out"))
    check_choice("scale", scale, (True, False, "batch"))
    if baseline is None and scale is True:
        raise ConfigError(
            "scale=True with baseline=None: dividing by the deviation of a group needs its mean as "
            "the baseline. Pass scale=False, or 'batch' for REINFORCE++."
        )
    if reward.ndim != 1 or reward.shape != group.shape:
        raise ValueError(
            f"reward {tuple(reward.shape)} and group {tuple(group.shape)}: must both be [N]."
        )
    finite = reward.isfinite()
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"the reward of completion {row}, of group {int(group[row])}, is {float(reward[row])}: "
            "give a completion that cannot be judged a finite reward, or leave it out."
        )
    # On the CPU, since sums by index have no fixed order on an accelerator. Sums of single numbers
    # in double precision are exact, so that equal rewards have their own value as the mean.
    rewards = reward.float().double().cpu()
    _, of, sizes = torch.unique(group.cpu(), return_inverse=True, return_counts=True)
    count, sums = sizes[of], rewards.new_zeros(len(sizes))
    mean = (sums.index_add(0, of, rewards) / sizes)[of]
    advantage = rewards if baseline is None else rewards - mean
    if baseline == "leave_one_out":
        if (alone := (count == 1).nonzero()).numel():
            raise ConfigError(
                f"baseline='leave_one_out': completion {int(alone[0])} is alone in its group "
                f"{int(group[alone[0]])}; draw at least 2 for each prompt."
            )
        advantage = advantage * count / (count - 1)
    if scale == "batch":
        deviation = advantage.std() if len(advantage) > 1 else torch.zeros_like(advantage)
        advantage = (advantage - advantage.mean()) / (deviation + 1e-4)
    elif scale:
        squares = sums.index_add(0, of, (rewards - mean).square())[of]
        advantage = advantage / ((squares / (count - 1).clamp_min(1)).sqrt() + 1e-4)
    return advantage.to(reward.device, torch.float32)


def entropy_of(log_probs: Tensor) -> Tensor:
    """Return the entropy of distributions ``[..., n]``, some of whose probabilities may be 0."""
    return -(log_probs.exp() * log_probs.masked_fill(log_probs == -torch.inf, 0.0)).sum(-1)


def _divergence(kind: str, difference: Tensor) -> Tensor:
    """Estimate the divergence from a reference by the difference of log-probabilities."""
    if kind == "k3":
        return (-difference).expm1() + difference
    half_square = difference.square() / 2
    if kind == "k2":
        return half_square
    return difference.detach() + (half_square - half_square.detach())


def _fixed_log_prob(reference: nn.Module, targets: Targets, sampling: Sampling) -> Tensor:
    """Return the log-probabilities ``[M]`` of a model in evaluation mode, without gradient."""
    with torch.no_grad():
        return targets.log_prob(sampling.log_probs(targets.predict(reference.eval())))


def _joined(first: Tensor, second: Tensor) -> Tensor:
    """Concatenate padded batches ``[N, T]`` of unequal T, or vectors."""
    if first.ndim == 1:
        return torch.cat([first, second])
    most = max(first.shape[1], second.shape[1])
    return torch.cat([pad(each, (0, most - each.shape[1])) for each in (first, second)])


def _advantage(advantage: Tensor, targets: Targets) -> Tensor:
    """Return the advantage of each token, ``[M]``."""
    shape = targets.mask.shape
    if advantage.shape == shape:
        return advantage[targets.mask]
    if advantage.shape != shape[:1]:
        raise ValueError(
            f"'advantage' is {list(advantage.shape)}: must be [{shape[0]}], one for each "
            f"completion, or {list(shape)}, one for each token. Remove dimensions of size 1."
        )
    return targets.spread(advantage)
