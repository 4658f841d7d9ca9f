"""The training loop: schedule, accumulation, guards, validation, checkpoints. The command line is in `train.py`.

The loss is summed over target tokens and divided by the number of them in
the whole update, over all passes and processes: two processes compute the gradient of one with twice the batch.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console

from dragoman.model.averaging import RunningAverage, mean_of_best
from dragoman.model.batches import Batch, Batches
from dragoman.model.checkpoint import (
    STATE,
    Progress,
    drop_lost,
    facts_so_far,
    forget_others,
    keep_best,
    load_state,
    random_state,
    save_state,
)
from dragoman.model.curve import Curve
from dragoman.model.evaluate import evaluate
from dragoman.model.loss import sampled_cross_entropy, smoothed_cross_entropy
from dragoman.model.meter import Meter
from dragoman.model.optimizer import make_optimizers
from dragoman.model.saved import RESULT, SavedModel, save_model
from dragoman.model.tokenizer import PAD_ID
from dragoman.model.train_options import TrainConfig
from dragoman.model.transformer import Transformer
from dragoman.model.workers import Workers

MAX_SKIPPED_IN_A_ROW = 10
LOG_EVERY = 20


class TrainingError(Exception):
    """Training cannot go on; the message says why."""


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, inverse square root, and a linear fall to zero at the end if a cool-down is asked for."""
    decay_from = max(config.warmup_steps, config.decay_from)
    rate = config.peak_lr * min(step / config.warmup_steps, 1.0, math.sqrt(decay_from / step))
    if config.cooldown_steps:
        rate *= min(1.0, (config.max_steps - step + 1) / config.cooldown_steps)
    return max(rate, 0.0)


def summed_loss(network: Transformer, batch: Batch, label_smoothing: float, sampled_pieces: int = 0) -> torch.Tensor:
    hidden = network(batch.source, batch.target_in)  # [B, T, d]
    real = batch.target_out != PAD_ID  # no work on padding in the output layer
    weight, targets = network.embedding.weight, batch.target_out[real]
    if sampled_pieces:
        return sampled_cross_entropy(hidden[real], weight, targets, label_smoothing, sampled_pieces)
    return smoothed_cross_entropy(hidden[real], weight, targets, label_smoothing)


@dataclass
class Trainer:
    folder: Path
    saved: SavedModel  # the network that is trained, its tokenizer, and what will be told about it
    batches: Batches
    valid: Batches
    valid_pairs: list[tuple[str, str]]  # for BLEU: source, reference of the first pair
    config: TrainConfig
    workers: Workers
    console: Console

    def __post_init__(self) -> None:
        self.network = self.saved.network
        self.optimizer = make_optimizers(self.network, self.config, self.workers)
        self.running_average = RunningAverage(self.network.state_dict(), self.config.average_decay)
        self.progress = Progress()
        self.skipped_in_a_row = 0
        self.asked_to_stop = False  # from outside
        self.stopping = False  # all processes know that one of them was asked, after the same update
        self.saved_at, self.checkpoint_due = time.monotonic(), False  # by the first one's clock, known to all

    def resume(self) -> bool:
        path = self.folder / STATE
        if not path.exists():
            return False
        state = load_state(path, self.saved)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])
        averaged = state.get("running_average", state["network"])  # the first versions kept none
        done = self.progress.step - self.progress.skipped
        self.running_average.restore(averaged, done if "running_average" in state else 0)
        self.saved.training.update(facts_so_far(state.get("training", {}), self.saved.training, self.progress.step))
        torch.set_rng_state(random_state(state, self.workers.rank))
        lost = drop_lost(self.folder / "best", self.progress)
        if lost and self.workers.is_first:
            names = ", ".join(map(str, lost))
            self.console.print(f"{names} is missing: the model will be averaged without it", markup=False)
        return True

    def checkpoint(self) -> None:
        """All processes together: each has a random state of its own."""
        self._save(self.workers.gather(torch.get_rng_state()))

    def _save(self, random_states: list[torch.Tensor]) -> None:
        if self.workers.is_first:
            averaged = self.running_average.weights
            save_state(self.folder / STATE, self.saved, self.optimizer, self.progress, random_states, averaged)
        self.saved_at = time.monotonic()

    def _is_late(self) -> bool:
        return self.workers.is_first and time.monotonic() - self.saved_at > self.config.checkpoint_seconds

    def groups(self) -> Iterator[list[Batch]]:
        """This process's batches of every update, from where the run stands, epoch after epoch."""
        together = self.workers.size * self.config.accumulate
        while True:
            epoch = islice(self.batches.epoch(self.progress.epoch), self.progress.position * together, None)
            while len(group := list(islice(epoch, together))) == together:
                self.progress.position += 1
                yield [self.batches.batch(items) for items in group[self.workers.rank :: self.workers.size]]
            if not self.progress.position:
                raise TrainingError(
                    f"the corpus makes only {len(group)} batches, one update needs {together}: "
                    "make --batch-tokens or --accumulate smaller"
                )
            self.progress.epoch, self.progress.position = self.progress.epoch + 1, 0

    def update(self, group: list[Batch]) -> float:
        """One optimizer step; returns the loss per target token, or NaN when the update was skipped."""
        self.network.train()
        total, target_tokens, tokens = 0.0, 0, 0
        for batch in group:
            with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                loss = summed_loss(self.network, batch, self.config.label_smoothing, self.config.sampled_pieces)
            loss.backward()
            total, target_tokens, tokens = (
                total + float(loss.detach()),
                target_tokens + batch.num_target_tokens,
                tokens + batch.num_tokens,
            )
        numbers = total, target_tokens, tokens, self.asked_to_stop, self._is_late()
        total, target_tokens, tokens, asked, late = self.workers.sum_gradients(self.network, *numbers)  # type: ignore[assignment]
        self.stopping, self.checkpoint_due = asked > 0, late > 0
        for parameter in self.network.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(target_tokens)
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip_norm)
        finite = math.isfinite(total) and bool(norm.isfinite())
        self._guard(finite)
        self.progress.step, self.progress.tokens = self.progress.step + 1, self.progress.tokens + int(tokens)
        if finite:
            self.optimizer.set_rate(learning_rate(self.progress.step, self.config))
            self.optimizer.step()
            if self.workers.is_first:  # which alone validates and publishes
                self.running_average.add(self.network.state_dict())
        self.optimizer.zero_grad()
        return total / target_tokens if finite else math.nan

    def _guard(self, finite: bool) -> None:
        """A batch may overflow once; a network that only gives NaN must not overwrite good checkpoints."""
        self.skipped_in_a_row = 0 if finite else self.skipped_in_a_row + 1
        self.progress.skipped += not finite
        if self.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise TrainingError(
                f"{MAX_SKIPPED_IN_A_ROW} updates in a row were not finite; the last good checkpoint is kept: "
                "resume with a smaller --peak-lr"
            )

    @torch.inference_mode()
    def validation_loss(self) -> float:
        self.network.eval()
        total, tokens = 0.0, 0
        for items in self.valid.epoch(0):
            batch = self.valid.batch(items)
            total += float(summed_loss(self.network, batch, 0.0))
            tokens += batch.num_target_tokens
        return total / tokens

    def validate(self, curve: Curve, random_states: list[torch.Tensor]) -> None:
        """Only the first process looks; its verdict (`stale`) is shared by `run`."""
        loss, averaged = self.validation_loss(), self.loss_of(self.running_average.weights)
        self.progress.stale = (
            0 if not self.progress.best or loss < self.progress.best[0][0] else self.progress.stale + 1
        )
        keep_best(self.folder / "best", self.network, self.progress, loss, self.config.average)
        curve.add(step=self.progress.step, valid_loss=loss, valid_loss_averaged=averaged, seconds=self.progress.seconds)
        self._save(random_states)  # before BLEU, which takes long: whatever happens then costs no update
        forget_others(self.folder / "best", self.progress)
        bleu = self._bleu(curve) if self.config.scored_sentences else ""
        curve.draw()
        self.console.print(f"update {self.progress.step}: validation loss {loss:.4f}, averaged {averaged:.4f}{bleu}")

    def _bleu(self, curve: Curve) -> str:
        pairs = self.valid_pairs[: self.config.scored_sentences]
        scored = evaluate(self.saved, pairs, self.saved.pairs[0], 1, 0, quiet=True)
        curve.add(step=self.progress.step, valid_bleu=scored["bleu"])
        return f", BLEU {scored['bleu']} on {scored['sentences']}"

    def loss_of(self, weights: dict[str, torch.Tensor]) -> float:
        """The validation loss of other weights; the network's own come back."""
        live = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        self.network.load_state_dict(weights)
        loss = self.validation_loss()
        self.network.load_state_dict(live)
        return loss

    def publish(self) -> Path:
        """The weights with the lowest validation loss as a saved model: an average is not always better."""
        candidates = {
            "the last update": self.network.state_dict(),
            "the running average": self.running_average.weights,
            f"the mean of updates {', '.join(str(step) for _, step in self.progress.best)}": mean_of_best(
                self.folder / "best", self.progress
            ),
        }
        losses = {name: self.loss_of(weights) for name, weights in candidates.items()}
        best = min(losses, key=losses.__getitem__)
        training = self.saved.training | {
            "updates": self.progress.step,
            "tokens": self.progress.tokens,
            "seconds": round(self.progress.seconds),
            "published": best,
            "validation_losses": losses,
        }
        network = Transformer(self.network.config)
        network.load_state_dict(candidates[best])
        path = self.folder / RESULT
        save_model(path, replace(self.saved, network=network, training=training))
        self.console.print(f"published {best}: validation loss {losses[best]:.4f}", markup=False)
        return path

    def run(self) -> Path | None:
        """Train to the end, or until validation stops getting better; returns the saved model.

        Asked to stop, it saves where it is and returns None: the next run goes on from there.
        """
        curve = Curve(self.folder, self.progress.step) if self.workers.is_first else None
        with Meter(self.console, self.config.max_steps, self.progress, visible=self.workers.is_first) as meter:
            groups = self.groups()
            while self.progress.step < self.config.max_steps and self.progress.stale < self.config.patience:
                loss = self.update(next(groups))  # drawn only to be learned from: a group that is drawn counts as done
                meter.show(loss)
                if self.stopping:  # at once: who asked may not wait for a validation
                    self.checkpoint()
                if curve and self.progress.step % LOG_EVERY == 0:
                    rate = learning_rate(self.progress.step, self.config)
                    curve.add(step=self.progress.step, loss=loss, lr=rate, tokens_per_second=meter.tokens_per_second())
                if self._validation_due():
                    self._validate_together(curve)
                if self.stopping:
                    return None
                if self.checkpoint_due:
                    self.checkpoint()
        self.checkpoint()
        return self.publish() if self.workers.is_first and self.progress.best else None

    def _validation_due(self) -> bool:
        return self.progress.step % self.config.validate_every == 0 or self.progress.step == self.config.max_steps

    def _validate_together(self, curve: Curve | None) -> None:
        random_states = self.workers.gather(torch.get_rng_state())
        if curve:
            self.validate(curve, random_states)
        self.progress.stale = self.workers.share(self.progress.stale)
