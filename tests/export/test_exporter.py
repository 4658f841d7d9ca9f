"""An export ends in a proven bundle under its name, or in nothing at all."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from rich.console import Console

from dragoman.export import ExportError
from dragoman.export.exporter import export
from dragoman.export.options import ExportOptions
from dragoman.export.plain_search import GraphDecoder
from dragoman.export.verify import VerificationError
from dragoman.model.saved import SavedModel, save_model
from dragoman.model.tokenizer import target_tag
from dragoman.service.bundles.manifest import Bundle, Limits, Precision, read_bundle, read_golden
from tests.conftest import export_tiny


def folder_content(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".safetensors")}


def test_a_bundle_carries_its_evidence_and_everything_it_needs(tiny_bundle: Bundle) -> None:
    """Whoever receives a bundle can see what was proven, without the machine that proved it."""
    bundle = read_bundle(tiny_bundle.path)
    assert bundle == tiny_bundle
    assert bundle.evidence["parity"] == {
        "sentences": 3,
        "beam_sizes": [1, 4],
        "different": 0,
        "ties": 0,
        "largest_tie": 0.0,
    }
    assert bundle.evidence["invariance"]["different"] == 0
    assert bundle.evidence["quality"][0]["exported"]["sentences"] > 50
    assert len(bundle.special_ids.placeholder_ids) == 32
    assert {path.name for path in bundle.path.iterdir()} == {*bundle.files, "bundle.json"}


def test_the_model_card_names_what_was_measured(tiny_bundle: Bundle) -> None:
    """People read the card, not the manifest."""
    card = tiny_bundle.file("MODEL_CARD.md").read_text("utf-8")
    assert "pt to en" in card
    assert "0 of" in card
    assert "The saved model does not say" in card


def test_the_card_lists_corpora_and_what_was_machine_made(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path
) -> None:
    """A model card that hides machine-made text would mislead."""
    corpora = [
        {"files": ["a.pt", "a.en"], "pairs": 12, "weight": 0.5, "machine_made": "pt"},
        {"files": ["b.tsv"], "pairs": 3, "weight": 1.0, "machine_made": None, "into": "en"},
    ]
    saved = SavedModel(tiny_saved.network, tiny_saved.tokenizer, tiny_saved.pairs, {"corpora": corpora})
    bundle = export_tiny(saved, tmp_path / "out", "fp32", few_sentences)
    card = bundle.file("MODEL_CARD.md").read_text("utf-8")
    assert "| a.pt, a.en | 12 | 0.5 | pt | every target |" in card
    assert "| b.tsv | 3 | 1.0 | none | en |" in card


def test_the_card_tells_all_that_the_weights_went_through(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path
) -> None:
    """Weights that were trained on learned from the first text too; and whose text it was, people must be told."""
    first = {"corpora": [{"files": ["a.pt", "a.en"], "pairs": 12}], "updates": 900, "tokens": 2_000_000}
    then = {"corpora": [{"files": ["b.tsv"], "pairs": 5}], "updates": 60, "tokens": 300_000, "initialized_from": first}
    saved = SavedModel(tiny_saved.network, tiny_saved.tokenizer, tiny_saved.pairs, then)
    sources = tmp_path / "sources.md"
    sources.write_text("All of it was written by hand.\n", "utf-8")
    bundle = export_tiny(saved, tmp_path / "out", "fp32", few_sentences, sources=sources)
    card = bundle.file("MODEL_CARD.md").read_text("utf-8")
    told = ["First, in 900 updates over 2.0 million", "a.pt, a.en", "Then, in 60 updates over 0.3", "b.tsv", "by hand."]
    places = [card.find(words) for words in told]
    assert -1 not in places
    assert places == sorted(places)


def test_a_model_of_several_pairs_gives_one_bundle_for_each(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path
) -> None:
    """Scales, tokens and evidence are of one pair: to claim another would be to serve what nobody has checked."""
    tags = [tiny_saved.tokenizer.symbol_id(target_tag(language)) for language in ("en", "pt")]
    ways = [("pt", "en", tags[0]), ("en", "pt", tags[1])]
    pairs = [{"source": source, "target": target, "source_prefix_ids": [tag]} for source, target, tag in ways]
    saved = SavedModel(tiny_saved.network, tiny_saved.tokenizer, pairs, {})
    with pytest.raises(ExportError, match=r"pt-en, en-pt; name one with --pair"):
        export_tiny(saved, tmp_path / "out", "int8", few_sentences)
    bundle = export_tiny(saved, tmp_path / "out", "int8", few_sentences, pair="pt-en")
    assert (bundle.name, [(pair.source, pair.target) for pair in bundle.pairs]) == ("pt-en", [("pt", "en")])
    assert all(sentence.source_ids[0] == tags[0] for sentence in read_golden(bundle))


def test_golden_sentences_come_out_again(tiny_bundle: Bundle, tiny_saved: SavedModel) -> None:
    """A server replays them: they must be reproducible from the files alone."""
    golden = read_golden(tiny_bundle)
    assert golden
    decoder = GraphDecoder(tiny_bundle.path, tiny_bundle.state, tiny_bundle.limits)
    for sentence in golden:
        assert list(sentence.source_ids) == [*tiny_saved.tokenizer.encode(sentence.text), 3]
        trace = decoder.greedy([sentence.source_ids], [80])[0]
        assert tuple(trace.hypothesis().ids) == sentence.target_ids
        assert tuple(trace.log_probs) == sentence.log_probs


def test_the_same_checkpoint_gives_the_same_bytes(
    tiny_saved: SavedModel, tiny_bundle: Bundle, few_sentences: Path, tmp_path: Path
) -> None:
    """Two people who export the same model must be able to compare hashes."""
    again = export_tiny(tiny_saved, tmp_path / "pt-en", "int8", few_sentences)
    assert again.files == tiny_bundle.files
    assert again.file("bundle.json").read_bytes() == tiny_bundle.file("bundle.json").read_bytes()


def test_the_embedding_is_stored_once_in_int8(tiny_bundle: Bundle, tiny_saved: SavedModel) -> None:
    """It is the largest weight of a small model; twice, or in fp32, the bundle would not be small."""
    parameters = sum(parameter.numel() for parameter in tiny_saved.network.parameters())
    positions, block_ids = (96 + 80) * 32 * 4, 480 * 8
    assert tiny_bundle.files["weights.bin"].bytes < 1.5 * parameters + positions + block_ids
    assert tiny_bundle.files["encoder.onnx"].bytes + tiny_bundle.files["decoder.onnx"].bytes < 40_000


def test_an_export_below_the_bars_leaves_nothing(tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path) -> None:
    """A bundle that failed its proof must not exist, not even half of it."""
    with pytest.raises(VerificationError, match="more than -101 lost"):  # a bar that nothing passes
        export_tiny(tiny_saved, tmp_path / "out", "int8", few_sentences, max_loss=-101)
    assert folder_content(tmp_path) == set()


class Interruption(Console):
    """Ctrl-C, at the last step that is announced."""

    def print(self, *objects: object, **options: object) -> None:
        if "alone against in a crowd" in str(objects):
            raise KeyboardInterrupt


def test_an_interrupted_export_leaves_nothing(tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path) -> None:
    """Ctrl-C in mid-write is an ordinary end."""
    with pytest.raises(KeyboardInterrupt):
        export_tiny(tiny_saved, tmp_path / "out", "fp32", few_sentences, console=Interruption())
    assert folder_content(tmp_path) == set()


def test_an_old_bundle_is_replaced_only_when_asked(tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path) -> None:
    """Nobody overwrites a served bundle by accident; and a failed replacement keeps the old one."""
    out = tmp_path / "out"
    export_tiny(tiny_saved, out, "fp32", few_sentences, version="1")
    with pytest.raises(ExportError, match="exists"):
        export_tiny(tiny_saved, out, "fp32", few_sentences, version="2")
    export_tiny(tiny_saved, out, "fp32", few_sentences, version="2", replace=True)
    assert read_bundle(out).version == "2"
    with pytest.raises(ExportError, match="no usable sentence"):
        export_tiny(tiny_saved, out, "int8", few_sentences, calibration=empty_file(tmp_path), replace=True)
    assert read_bundle(out).version == "2"
    assert folder_content(tmp_path) == {"out", "empty.txt"}


@pytest.mark.parametrize("content", [{"thesis.txt": "years of work"}, {}])
def test_only_a_bundle_is_ever_replaced(tmp_path: Path, content: dict[str, str]) -> None:
    """A slip in the name must not cost a folder of something else; it is refused before the model is even read."""
    out = tmp_path / "out"
    out.mkdir()
    for name, text in content.items():
        (out / name).write_text(text)
    request = ExportOptions(Path("absent.safetensors"), out, "fp32", golden=out, tests=((out, out),), replace=True)
    with pytest.raises(ExportError, match=r"out is not a bundle \(it has no bundle.json\).* give another name"):
        export(request, Console(quiet=True))
    assert folder_content(out) == set(content)


def test_what_came_while_the_bundle_was_made_is_not_replaced(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path
) -> None:
    """An export takes minutes, and somebody else may take the name."""

    class Newcomer(Console):
        def print(self, *objects: object, **options: object) -> None:
            (tmp_path / "out").mkdir(exist_ok=True)

    with pytest.raises(ExportError, match="is not a bundle"):
        export_tiny(tiny_saved, tmp_path / "out", "fp32", few_sentences, console=Newcomer(), replace=True)
    assert folder_content(tmp_path) == {"out"}


def empty_file(folder: Path) -> Path:
    path = folder / "empty.txt"
    path.write_text("")
    return path


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tests": ()}, "--verify SRC REF"),
        ({"golden": None}, "--golden FILE"),
        ({"calibration": None}, "--calibration FILE"),
        ({"parity_sentences": 10_000}, "usable sentences; parity needs 10000"),
        ({"pair": "xx-yy"}, "this model translates pt-en"),
        ({"calibration": Path("absent.txt")}, "cannot read absent.txt"),
        ({"golden": Path("/dev/null")}, "of 0 sentences in /dev/null none .* give more and shorter ones"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_sentence(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path, changes: dict, sentence: str
) -> None:
    """The sentence says what to give; nothing is written."""
    with pytest.raises(ExportError, match=sentence):
        export_tiny(tiny_saved, tmp_path / "out", "int8", few_sentences, **changes)
    assert folder_content(tmp_path) == set()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_tokens_of_a_float_bundle_are_not_restricted(precision: Precision) -> None:
    """Only int8 graphs can leave tokens out: the option was taken, and did nothing."""
    file = Path("a.en")
    request = ExportOptions(file, file, precision, golden=file, tests=((file, file),), target_texts=(file,))
    with pytest.raises(ExportError, match=f"works with int8 only, not with {precision}: leave --target-text"):
        export(request, Console(quiet=True))


def test_a_bundle_below_a_file_is_refused(tiny_saved: SavedModel, tmp_path: Path) -> None:
    """A place where nothing can be written is told before anything is computed."""
    file = tmp_path / "m.safetensors"
    save_model(file, tiny_saved)
    request = ExportOptions(file, file / "out", "fp32", golden=file, tests=((file, file),))
    with pytest.raises(ExportError, match=r"out cannot be written \(.*\): give another name"):
        export(request, Console(quiet=True))


def test_files_of_unequal_length_are_refused(tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path) -> None:
    """Scores against shifted references would be nonsense."""
    texts = tmp_path / "a.pt", tmp_path / "a.en"
    texts[0].write_text("um\ndois\n")
    texts[1].write_text("one\n")
    with pytest.raises(ExportError, match=r"a\.pt has 2 sentences but .*a\.en has 1"):
        export_tiny(tiny_saved, tmp_path / "out", "fp32", few_sentences, tests=(texts,))


def test_limits_never_exceed_the_positions_that_the_network_has(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path
) -> None:
    """Position 129 of a table of 128 does not exist."""
    save_model(tmp_path / "m.safetensors", tiny_saved)
    request = ExportOptions(
        checkpoint=tmp_path / "m.safetensors",
        out=tmp_path / "out",
        precision="fp32",
        golden=few_sentences,
        tests=((few_sentences, few_sentences),),
        parity_sentences=2,
        invariance_sentences=2,
    )
    assert export(request, Console(quiet=True)).limits == Limits(128, 128)


def test_half_precision_runs_on_the_cpu_and_agrees(
    tiny_float_bundles: dict[Precision, Bundle], tiny_saved: SavedModel
) -> None:
    """The graphs of a GPU bundle are the same network: they can be checked where there is no GPU."""
    half, full = (
        GraphDecoder(tiny_float_bundles[kind].path, tiny_float_bundles[kind].state, tiny_float_bundles[kind].limits)
        for kind in ("fp16", "fp32")
    )
    sources = [golden.source_ids for golden in read_golden(tiny_float_bundles["fp32"])][:8]
    traces = zip(half.greedy(sources, [40] * 8), full.greedy(sources, [40] * 8), strict=True)
    for ours, theirs in traces:
        assert ours.ids == theirs.ids
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=0.05)
    session = ort.InferenceSession(str(tiny_float_bundles["fp16"].file("decoder.onnx")))
    assert {value.type for value in session.get_inputs() if value.name.startswith("self_")} == {"tensor(float16)"}


def test_the_manifest_is_plain_json(tiny_bundle: Bundle) -> None:
    """Other tools read it too."""
    record = json.loads(tiny_bundle.file("bundle.json").read_text("utf-8"))
    assert record["format"] == 2
    assert record["pairs"] == [{"source": "pt", "target": "en", "source_prefix_ids": []}]
