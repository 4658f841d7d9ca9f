"""What a run leaves on disk: the state to resume from, the best weights, and their average.

last.pt            everything that the next update depends on; replaced atomically
best/STEP.pt       the weights of the best validations
model.safetensors  the average of those: the run's result
"""

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.model.optimizer import Optimizers
from dragoman.model.saved import SavedModel, SavedModelError, write_atomically

STATE = "last.pt"  # the name in the run folder
INITIAL_WEIGHTS = "initial_weights_sha256"  # a fact of runs that were begun with --init


@dataclass
class Progress:
    """Where a run stands. The order of batches follows from epoch and position alone."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # groups of batches done in this epoch
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0  # updates that were not finite
    stale: int = 0  # validations since the best one
    best: list[tuple[float, int]] = field(default_factory=list)  # (validation loss, step), best first


def save_state(
    path: Path,
    saved: SavedModel,
    optimizer: Optimizers,
    progress: Progress,
    random_states: list[Tensor],
    running_average: dict[str, Tensor],
) -> None:
    """`random_states` are those of all processes, in the order of their ranks."""
    state = {
        "network": saved.network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": asdict(progress),
        "random_states": random_states,
        "config": saved.config.to_dict(),
        "task": task_of(saved),
        "training": saved.training,
        "running_average": running_average,
    }
    write_atomically(path, lambda temporary: torch.save(state, temporary))


def task_of(saved: SavedModel) -> dict[str, Any]:
    """What all updates of a run have in common; the text's mix and the schedule may change on the way."""
    return {
        "pairs": sorted({f"{pair['source']}-{pair['target']}" for pair in saved.pairs}),
        "tokenizer": hashlib.sha256(saved.tokenizer.model).hexdigest(),
    }


def load_state(path: Path, saved: SavedModel) -> dict[str, Any]:
    """The state of a run that learned what `saved` is to learn, in a network of the same shape."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises whatever its unpickler meets
        raise SavedModelError(f"{path} is not a checkpoint that can be read: {error}") from error
    if "task" in state:  # the first versions did not write it
        refuse_another_task(path, state["task"], task_of(saved))
    if "training" in state:  # nor this
        refuse_other_initial_weights(path, state["training"], saved.training)
    config = saved.config.to_dict()
    different = [key for key, value in config.items() if state["config"].get(key) != value]
    if different:
        was, now = ({key: side.get(key) for key in different} for side in (state["config"], config))
        raise SavedModelError(f"{path} belongs to another configuration: it has {was}, this run asks for {now}")
    return state


def refuse_another_task(path: Path, was: dict[str, Any], now: dict[str, Any]) -> None:
    """The weights would fit, go on learning something else, and be averaged with those from before."""
    if was["pairs"] != now["pairs"]:
        old, new = (" and ".join(task["pairs"]) for task in (was, now))
        raise SavedModelError(f"{path} is of a run that learns {old}, not {new}: use a new run folder")
    if was["tokenizer"] != now["tokenizer"]:
        raise SavedModelError(f"{path} is of a run with another tokenizer: use a new run folder")


def refuse_other_initial_weights(path: Path, was: dict[str, Any], now: dict[str, Any]) -> None:
    """A run begins once: weights that are given later change nothing, and must not be told as if they had."""
    given, own = now.get(INITIAL_WEIGHTS), was.get(INITIAL_WEIGHTS)
    if given not in (None, own):
        begun = "without --init" if own is None else "with other weights"
        raise SavedModelError(
            f"{path} is of a run that was begun {begun}: --init changes nothing in it; use a new run folder"
        )


def facts_so_far(was: dict[str, Any], now: dict[str, Any], step: int) -> dict[str, Any]:
    """What a run that goes on tells about itself: where it began, and all the text that it ever learned from."""
    begun = {key: was[key] for key in ("preset", "initialized_from", INITIAL_WEIGHTS) if key in was}
    current = now.get("corpora", [])
    earlier = [
        {"until_update": step} | corpus
        for corpus in was.get("corpora", [])
        if {key: value for key, value in corpus.items() if key != "until_update"} not in current
    ]
    return now | begun | {"corpora": [*current, *earlier]}


def random_state(state: dict[str, Any], rank: int) -> Tensor:
    """That of one process; the first versions kept the first one's only."""
    states: list[Tensor] = state.get("random_states") or [state["rng"]]
    return states[rank % len(states)]  # a run may go on with more processes than it had


def keep_best(folder: Path, network: torch.nn.Module, progress: Progress, loss: float, count: int) -> None:
    """Remember this validation's weights if they are among the best `count`.

    What falls out stays on disk until a checkpoint no longer names it: then, `forget_others`.
    """
    ranked = sorted([*map(tuple, progress.best), (loss, progress.step)])
    progress.best = ranked[:count]
    if (loss, progress.step) in progress.best:
        weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        write_atomically(folder / f"{progress.step}.pt", lambda temporary: torch.save(weights, temporary))


def forget_others(folder: Path, progress: Progress) -> None:
    """Only after a checkpoint: a run that is killed in between must find all that its last one names."""
    named = {str(step) for _, step in progress.best}
    for path in folder.glob("*.pt"):
        if path.stem.isdigit() and path.stem not in named:
            path.unlink(missing_ok=True)


def drop_lost(folder: Path, progress: Progress) -> list[Path]:
    """Weights that are named and not there, no longer named."""
    lost = [step for _, step in progress.best if not (folder / f"{step}.pt").exists()]
    progress.best = [(loss, step) for loss, step in progress.best if step not in lost]
    return [folder / f"{step}.pt" for step in lost]
