"""The bundle format: what is written is read back, older formats are understood, and what was changed is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.service.bundles.manifest import (
    Architecture,
    Bundle,
    BundleError,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    StateTensor,
    TokenizerFiles,
    read_bundle,
    record_file,
)

EMBEDDED = Path(__file__).parents[2] / "service" / "embedded"
FILES = ("encoder.onnx", "decoder.onnx", "weights.bin", "golden.jsonl", "tokenizer.model")


@pytest.fixture
def written(tmp_path: Path) -> Bundle:
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    bundle = Bundle(
        path=tmp_path,
        name="xx-yy",
        version="1",
        precision="int8",
        pairs=(Pair("xx", "yy", (4,)),),
        architecture=Architecture(32, 8, 16, 2, 1, 1, "pre", "sinusoidal", 64, False),
        limits=Limits(32, 40),
        tokenizer=TokenizerFiles("sentencepiece", {"model": "tokenizer.model"}),
        special_ids=SpecialIds(0, 1, 2, 3, (5, 6)),
        rules=Rules(),
        state=(
            StateTensor("self_k0", "grows", "float32", ("rows", 2, "target", 4), "self_k0_out"),
            StateTensor("cross_k0", "encoded", "float32", ("rows", 2, "source", 4), None, "cross_k0"),
            StateTensor("memory0", "replaced", "float32", ("rows", 8), "memory0_out"),
        ),
        files={name: record_file(tmp_path / name) for name in FILES},
        evidence={"parity": {"sentences": 200}},
        training={},
    )
    (tmp_path / "bundle.json").write_text(bundle.to_json(), "utf-8")
    return bundle


FORMAT_1_STATE = [
    {"name": "self_k0", "kind": "self", "shape": ["rows", 2, "target", 4], "output": "self_k0_out"},
    {"name": "self_v0", "kind": "self", "shape": ["rows", 2, "target", 4], "output": "self_v0_out"},
    {"name": "cross_k0", "kind": "cross", "shape": ["rows", 2, "source", 4], "output": "cross_k0_out"},
    {"name": "cross_v0", "kind": "cross", "shape": ["rows", 2, "source", 4], "output": None},
    {"name": "last_k0", "kind": "last", "shape": ["rows", 1, 8], "output": None},
    {"name": "last_v0", "kind": "last", "shape": ["rows", 1, 8], "output": None},
]


def edit(bundle: Bundle, change: Callable[[dict], object]) -> None:
    record = json.loads((bundle.path / "bundle.json").read_text("utf-8"))
    change(record)
    (bundle.path / "bundle.json").write_text(json.dumps(record), "utf-8")


def test_a_written_bundle_is_read_back_equal(written: Bundle) -> None:
    """Exporter and server share the file, not code paths: nothing may be lost between them."""
    assert read_bundle(written.path) == written


def as_format_1(record: dict) -> None:
    """What the exporter of format 1 wrote."""
    del record["tokenizer"]["source_special_ids"]
    record.update(format=1, state=[{**tensor, "dtype": "float32"} for tensor in FORMAT_1_STATE])


def test_format_1_is_read_as_the_same_bundle_in_format_2(written: Bundle) -> None:
    """Bundles outlive the exporter that wrote them; the runner is to see one description only."""
    edit(written, as_format_1)
    own, source, last = ("rows", 2, "target", 4), ("rows", 2, "source", 4), ("rows", 1, 8)
    expected = (
        StateTensor("self_k0", "grows", "float32", own, "self_k0_out"),
        StateTensor("self_v0", "grows", "float32", own, "self_v0_out"),
        StateTensor("cross_k0", "encoded", "float32", source, "cross_k0_out", "cross_k0"),
        StateTensor("cross_v0", "encoded", "float32", source, None, "cross_v0"),
        StateTensor("last_k0", "encoded", "float32", last, None, "cross_k0"),
        StateTensor("last_v0", "encoded", "float32", last, None, "cross_v0"),
    )
    assert read_bundle(written.path) == replace(written, state=expected)


@pytest.mark.parametrize("state", [None, 3, [3], [{}], [{"kind": 3}], [{"name": "x", "kind": "memory"}]])
def test_a_damaged_manifest_of_format_1_is_refused_in_one_sentence(written: Bundle, state: object) -> None:
    """It is rewritten before it is checked; the rewriting must not fail first."""
    edit(written, as_format_1)
    edit(written, lambda record: record.update(state=state))
    with pytest.raises(BundleError, match=r"bundle .* has "):
        read_bundle(written.path)


@pytest.mark.parametrize("pair", ["en-pt", "pt-en"])
def test_the_embedded_bundles_are_read(pair: str) -> None:
    """They are of format 1, and every installation has them."""
    bundle = read_bundle(EMBEDDED / pair, check_hashes=False)
    assert {tensor.kind for tensor in bundle.state} == {"grows", "encoded"}
    assert bundle.source_special_ids == bundle.special_ids


def test_each_side_may_have_its_own_vocabulary(written: Bundle) -> None:
    """Imported models often have one for each language."""
    special_ids = {"pad": 9, "unk": 8, "bos": 7, "eos": 6, "placeholder_ids": []}
    files = {"source": "weights.bin", "target": "tokenizer.model"}
    edit(written, lambda record: record["tokenizer"].update(files=files, source_special_ids=special_ids))
    bundle = read_bundle(written.path)
    assert bundle.tokenizer.files == files
    assert bundle.source_special_ids == SpecialIds(pad=9, unk=8, bos=7, eos=6, placeholder_ids=())
    assert bundle.special_ids == written.special_ids
    (written.path / "bundle.json").write_text(bundle.to_json(), "utf-8")
    assert read_bundle(written.path) == bundle


def test_one_changed_byte_is_refused(written: Bundle) -> None:
    """A flipped bit in the weights would give wrong translations without any error."""
    (written.path / "weights.bin").write_bytes(b"Weights.bin")
    with pytest.raises(BundleError, match=r"weights\.bin whose SHA-256 differs"):
        read_bundle(written.path)


def test_a_truncated_file_is_refused_before_hashing(written: Bundle) -> None:
    """A copy that stopped half-way is the usual accident; the sizes say so at once."""
    (written.path / "weights.bin").write_bytes(b"weig")
    with pytest.raises(BundleError, match=r"has 4 bytes in weights\.bin where bundle\.json says 11"):
        read_bundle(written.path)


def test_a_missing_file_is_refused(written: Bundle) -> None:
    """Otherwise the first request would find out."""
    (written.path / "decoder.onnx").unlink()
    with pytest.raises(BundleError, match=r"lacks decoder\.onnx"):
        read_bundle(written.path)


def test_a_file_that_the_manifest_does_not_list_is_refused(written: Bundle) -> None:
    """An unlisted graph would be served without a hash."""
    edit(written, lambda record: record["files"].pop("encoder.onnx"))
    with pytest.raises(BundleError, match=r"does not list encoder\.onnx"):
        read_bundle(written.path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r.update(format=3), "has format 3 but this server reads formats 1 and 2: upgrade the server"),
        (lambda r: r.update(format=0), "has format 0 but this server reads formats 1 and 2: export it again"),
        (lambda r: r.pop("format"), "has no usable 'format'"),
        (lambda r: r.update(precision="int3"), "has the unknown precision 'int3'"),
        (lambda r: r.update(pairs=[]), "serves no language pair"),
        (lambda r: r["limits"].update(max_new_tokens="many"), "has no usable 'max_new_tokens' in its limits"),
        (lambda r: r["limits"].update(max_new_tokens=True), "has no usable 'max_new_tokens' in its limits"),
        (lambda r: r["pairs"][0].update(source_prefix_ids=["a"]), "something other than integers"),
        (lambda r: r.update(rules=[]), "has no usable 'rules'"),
        (lambda r: r["tokenizer"]["files"].update(model=["x"]), "has no usable 'model'"),
        (lambda r: r["limits"].update(max_source_tokens=0), "has 0 for 'max_source_tokens' in its limits"),
        (lambda r: r["limits"].update(max_new_tokens=-1), "has -1 for 'max_new_tokens' in its limits"),
        (lambda r: r["rules"].update(default_beam_size=0), "has 0 for 'default_beam_size' in its rules"),
        (lambda r: r["rules"].update(alpha=-0.1), "has the alpha -0.1 in its rules"),
        (lambda r: r["rules"].update(alpha=float("nan")), "has the alpha nan"),
        (lambda r: r["rules"].update(alpha=float("inf")), "has the alpha inf"),
        (lambda r: r["special_ids"].update(placeholder_ids=[5, 32]), "placeholder id 32, which is not in its voc"),
        (lambda r: r["special_ids"].update(placeholder_ids=[-1]), "placeholder id -1"),
        (lambda r: r["tokenizer"].update(files={"source": "tokenizer.model"}), "names the tokenizer files source, but"),
        (lambda r: r["tokenizer"].update(files={}), "needs model, or source and target: export it again"),
        (lambda r: r["tokenizer"].update(source_special_ids={"pad": 0}), "no usable 'unk' in its source_special_ids"),
        (lambda r: r["state"][0].update(kind="self"), "has the unknown kind 'self' in its state"),
        (lambda r: r["state"][0].update(shape=["rows", 2, 40, 4]), "does not suit the kind grows"),
        (lambda r: r["state"][0].update(output=None), "self_k0, which lacks an output"),
        (lambda r: r["state"][1].update(shape=["rows", "source", "target"]), "does not suit the kind encoded"),
        (lambda r: r["state"][1].update(encoder_output=None), "cross_k0, which lacks an encoder_output"),
        (lambda r: r["state"][2].update(shape=["rows", "source"]), "does not suit the kind replaced"),
        (lambda r: r["state"][2].update(shape=[8]), "does not suit the kind replaced"),
        (lambda r: r["state"][2].update(encoder_output="x"), "memory0, which must not have an encoder_output"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_sentence(written: Bundle, change: Callable, sentence: str) -> None:
    """The operator reads this sentence at start-up, not a traceback."""
    edit(written, change)
    with pytest.raises(BundleError, match=sentence) as caught:
        read_bundle(written.path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "a\\b", "C:x", ""])
def test_a_file_name_that_leaves_the_bundle_is_refused(written: Bundle, name: str) -> None:
    """A manifest comes from anywhere; it must not make the server read other files."""
    edit(written, lambda record: record["files"].update({name: {"sha256": "", "bytes": 0}}))
    with pytest.raises(BundleError, match="not a plain file name"):
        read_bundle(written.path)


@pytest.mark.parametrize("text", ["{", "[]", "null", "\x80"])
def test_a_manifest_that_is_not_json_is_refused(written: Bundle, text: str) -> None:
    """Half a manifest is the usual result of a full disk."""
    (written.path / "bundle.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BundleError, match=r"bundle\.json"):
        read_bundle(written.path)


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    """A wrong path is the commonest mistake of all."""
    with pytest.raises(BundleError, match=r"has no bundle\.json: give the directory"):
        read_bundle(tmp_path)
