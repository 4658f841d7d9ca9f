"""Fixtures that several packages' tests share: a small random model, really exported."""

from pathlib import Path

import pytest
import torch
from rich.console import Console

from dragoman.export.exporter import export
from dragoman.export.options import ExportOptions
from dragoman.model.network_config import TransformerConfig
from dragoman.model.saved import SavedModel, save_model
from dragoman.model.tokenizer import EOS_ID, Tokenizer
from dragoman.model.transformer import Transformer
from dragoman.service.bundles.manifest import Bundle, Limits, Precision
from tests.data.make_tokenizers import path_of

SENTENCES = Path(__file__).parent / "data" / "sentences.tsv"
TINY_LIMITS = Limits(max_source_tokens=96, max_new_tokens=80)


def tiny_config(**changes: object) -> TransformerConfig:
    fields: dict[str, object] = {
        "vocab_size": 480,
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
        "norm": "pre",
        "max_positions": 128,
    }
    return TransformerConfig(**(fields | changes))  # type: ignore[arg-type]


def random_network(config: TransformerConfig, seed: int = 0) -> Transformer:
    """Untrained, but it does not only repeat its last token, and it does end: eos is likelier than other tokens."""
    torch.manual_seed(seed)
    network = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter += 0.1 * torch.randn_like(parameter)
            if name.endswith("cross_attention.q.weight"):
                parameter *= 6  # looks at some source words more than at others
        network.embedding.weight[EOS_ID] *= 3.6
        if network.decoder.norm is not None:
            network.decoder.norm.weight *= 4 * (2 * torch.randint(0, 2, (config.d_model,)) - 1)  # and sure of itself
    return network


def export_tiny(
    saved: SavedModel,
    out: Path,
    precision: Precision,
    sentences: Path = SENTENCES,
    console: Console | None = None,
    **changes: object,
) -> Bundle:
    checkpoint = out.with_suffix(".safetensors")
    save_model(checkpoint, saved)
    request = {
        "checkpoint": checkpoint,
        "out": out,
        "precision": precision,
        "golden": sentences,
        "calibration": sentences,
        "tests": ((sentences, sentences),),
        "limits": TINY_LIMITS,
        "parity_sentences": 3,
        "invariance_sentences": 16,
        "calibration_sentences": 16,
    }
    return export(ExportOptions(**(request | changes)), console or Console(quiet=True))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def few_sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of our own sentences, both languages; short ones, so that an export takes seconds."""
    header, *rows = SENTENCES.read_text("utf-8").splitlines()
    path = tmp_path_factory.mktemp("sentences") / "few.tsv"
    path.write_text("\n".join([header, *[row for row in rows if len(row) < 130][::2]]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer(path_of(tiny_config().vocab_size).read_bytes())


@pytest.fixture(scope="session")
def tiny_saved(tiny_tokenizer: Tokenizer) -> SavedModel:
    pairs = [{"source": "pt", "target": "en", "source_prefix_ids": []}]
    return SavedModel(random_network(tiny_config()), tiny_tokenizer, pairs, {"note": "random"})


@pytest.fixture(scope="session")
def tiny_bundle(tiny_saved: SavedModel, few_sentences: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The tiny model as it is served on a CPU."""
    return export_tiny(tiny_saved, tmp_path_factory.mktemp("bundles") / "pt-en", "int8", few_sentences)


@pytest.fixture(scope="session")
def tiny_float_bundles(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[Precision, Bundle]:
    """The tiny model as it is served on any device: fp32 and fp16."""
    folder = tmp_path_factory.mktemp("bundles")
    precisions: tuple[Precision, ...] = ("fp32", "fp16")
    return {kind: export_tiny(tiny_saved, folder / kind, kind, few_sentences) for kind in precisions}
