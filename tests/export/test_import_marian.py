"""Marian and CTranslate2 models become bundles that translate as their own frameworks do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from dragoman.export import ExportError
from dragoman.export.importers.ctranslate2_model import read_ctranslate2
from dragoman.export.importers.marian import read_marian
from dragoman.export.importers.proving import ImportOptions, publish_imported
from dragoman.export.importers.reference import Reference
from dragoman.service.bundles.manifest import WEIGHTS
from tests.data.make_tokenizers import path_of
from tests.export.imported_models import generated, random_sources, save_marian, served

QUIET = Console(quiet=True)
# The embedding of `transformers` warns about itself; that is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPES: list[Any] = [
    {},
    pytest.param({"activation_function": "relu", "encoder_layers": 1, "decoder_layers": 1}, marks=pytest.mark.full),
    pytest.param({"separate": True}, marks=pytest.mark.full),
    pytest.param({"encoder_layers": 6, "decoder_layers": 6}, marks=pytest.mark.full),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_marian_model_translates_as_generate_does(tmp_path: Path, shape: dict[str, Any]) -> None:
    """Who moves from `transformers` gets the same translations: logits, greedy and beam 4."""
    model = save_marian(tmp_path / "hf", **shape)
    imported = read_marian(tmp_path / "hf")
    (bundle,) = publish_imported(imported, ImportOptions(tmp_path / "bundle", "fp32"), QUIET)
    groups = random_sources(model.config.vocab_size, 200)
    target = [model.config.decoder_start_token_id, 5, 9, 7]
    with torch.inference_mode():
        theirs = model(torch.tensor(groups[0][:1]), decoder_input_ids=torch.tensor([target])).logits[0, :, :-1].numpy()
    ours = Reference(imported.network).logits(groups[0][0], target)[:, :-1]
    assert np.abs(ours - theirs).max() < 1e-4
    lengths = set()
    for beams in (1, 4):
        for group in groups:
            expected = generated(model, group, beams)
            lengths |= set(map(len, expected))
            assert served(bundle, group, beams) == expected
    assert len(lengths) > 2  # or the model proves little


def test_a_multilingual_model_gives_one_bundle_for_each_tag(tmp_path: Path) -> None:
    """The weights of a large model are on the disk once, and each pair has its own tag before the source."""
    save_marian(tmp_path / "hf", tags=(">>fr<<", ">>es<<"))
    imported = read_marian(tmp_path / "hf", ["en-fr", "en-es"])
    french, spanish = publish_imported(imported, ImportOptions(tmp_path / "bundles", "fp32"), QUIET)
    assert french.pairs[0].source_prefix_ids == (2,)
    assert spanish.pairs[0].source_prefix_ids == (3,)
    assert (french.path / WEIGHTS).samefile(spanish.path / WEIGHTS)


def test_int8_keeps_most_translations(tmp_path: Path) -> None:
    """swish has negative values, which the rounding for a ReLU would cut off."""
    save_marian(tmp_path / "hf")
    words = tmp_path / "words.txt"
    words.write_text("o gato dorme\na casa grande\nbom dia\nonde fica a praia\n" * 5)
    options = ImportOptions(tmp_path / "bundle", "int8", words)
    (bundle,) = publish_imported(read_marian(tmp_path / "hf"), options, QUIET)
    found = bundle.evidence["agreement"]
    assert found["identical"] >= 0.5 * found["sentences"]
    assert bundle.evidence["invariance"]["different"] == 0


@pytest.mark.parametrize("quantization", ["float32", pytest.param("int8", marks=pytest.mark.full)])
def test_a_converted_model_translates_as_ctranslate2_does(tmp_path: Path, quantization: str) -> None:
    """The directory that CTranslate2's own converter writes is read, not only what we think it writes."""
    import ctranslate2

    model = save_marian(tmp_path / "hf")
    converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "hf"))
    converter.convert(str(tmp_path / "ct2"), quantization=quantization)
    imported = read_ctranslate2(tmp_path / "ct2", ["pt-en"], [path_of(480)])
    (bundle,) = publish_imported(imported, ImportOptions(tmp_path / "bundle", "fp32"), QUIET)
    sources = [source for group in random_sources(model.config.vocab_size, 200) for source in group]
    numbers = json.loads((tmp_path / "hf" / "vocab.json").read_text())
    tokens = {number: piece for piece, number in numbers.items()}
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32", intra_threads=1)
    asked = [[tokens[i] for i in source] for source in sources]
    results = translator.translate_batch(asked, beam_size=1, max_decoding_length=30, min_decoding_length=0)
    expected = [tuple(numbers[token] for token in result.hypotheses[0]) for result in results]
    same = sum(ours == theirs for ours, theirs in zip(served(bundle, sources, 1), expected, strict=True))
    assert same >= 0.98 * len(sources)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config.json", b"{", "config.json is not JSON"),
        ("config.json", b'{"model_type": "t5"}', "type t5"),
        ("model.safetensors", b"\x08\0\0\0", "not a whole safetensors file"),
        ("vocab.json", b'{"<unk>": 1, "</s>": 0, "x": 9999}', "do not belong together"),
        ("source.spm", b"no model", "not a SentencePiece model"),
    ],
)
def test_a_broken_directory_is_named_in_one_sentence(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    """Whoever copied half a model reads which file, and nothing half-written stays."""
    save_marian(tmp_path / "hf")
    (tmp_path / "hf" / name).write_bytes(content)
    with pytest.raises(ExportError, match=told):
        publish_imported(read_marian(tmp_path / "hf"), ImportOptions(tmp_path / "out" / "bundle", "fp32"), QUIET)
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True


@pytest.mark.parametrize("content", [b"", b"\x09\0\0\0", b"\x06\0\0\0\x0c\0WhisperSpec\0\x03\0\0\0"])
def test_a_foreign_model_bin_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whisper, newer formats and empty files are refused by name."""
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ExportError, match=r"model\.bin (ends too early|has the binary version 9|holds a WhisperSpec)"):
        read_ctranslate2(tmp_path, ["pt-en"], [path_of(480)])
