"""`dragoman-import firefox DIR OUT`: a student model of Firefox Translations as a proven bundle.

The folder has the files of one model as Mozilla ships them, gzipped or not: `model.*.bin`, `vocab.*.spm` (or
`srcvocab.*.spm` and `trgvocab.*.spm`), and usually the shortlist `lex.*.s2t.bin`.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from dragoman.export import ExportError
from dragoman.export.importers.imported import (
    Announce,
    ImportedModel,
    ImportPrecision,
    publish_imported,
    read_check_sentences,
)
from dragoman.export.importers.shortlist import Shortlist, read_shortlist
from dragoman.export.importers.student_file import read_bytes, read_student_file
from dragoman.export.importers.student_network import UNK_ID, read_network
from dragoman.export.operators import Ints
from dragoman.service.bundles.manifest import Bundle, Limits, Pair, SpecialIds, TokenizerFiles

LIMITS = Limits(max_source_tokens=256, max_new_tokens=512)
EOS_ID = 0
_MULTIPLE = 64  # of the tokens that may come out: whole blocks for the search of the best


def import_firefox(
    folder: Path,
    out: Path,
    pair: tuple[str, str] | None = None,
    precision: ImportPrecision = "int8",
    replace: bool = False,
    announce: Announce = lambda step: None,
    verify: Path | None = None,
) -> Bundle:
    """`pair` is read from the file names unless it is given; `verify` has source sentences to check the bundle with."""
    files = find_files(folder)
    chosen = Pair(*(pair or pair_of(files["model"])))
    sentences = read_check_sentences(chosen.source, verify)
    announce(f"reading {files['model'].name}")
    return publish_imported(read_firefox(files, chosen), out, sentences, precision, replace, announce)


def find_files(folder: Path) -> dict[str, Path]:
    """By role: `model`, `shortlist` if there is one, `vocabulary` or `source_vocabulary` and `target_vocabulary`."""
    if not folder.is_dir():
        raise ExportError(f"{folder} is not a folder: give the one with the files of a Firefox model")
    names = {"model": r"model\..*\.bin", "shortlist": r"lex\..*\.bin", "vocabulary": r"vocab\..*\.spm|vocab\.spm"}
    names |= {"source_vocabulary": r"srcvocab\..*spm", "target_vocabulary": r"trgvocab\..*spm"}
    found = {role: _only(folder, pattern) for role, pattern in names.items()}
    files = {role: path for role, path in found.items() if path is not None}
    if "model" not in files:
        raise ExportError(f"{folder} has no model file: one such as model.pten.intgemm.alphas.bin is expected there")
    if "vocabulary" not in files and not {"source_vocabulary", "target_vocabulary"} <= files.keys():
        raise ExportError(f"{folder} has no vocabulary: vocab.*.spm, or srcvocab.*.spm and trgvocab.*.spm, is expected")
    return files


def _only(folder: Path, pattern: str) -> Path | None:
    found = [path for path in sorted(folder.iterdir()) if re.fullmatch(f"(?:{pattern})(?:\\.gz)?", path.name)]
    if len(found) > 1:
        raise ExportError(f"{folder} has both {found[0].name} and {found[1].name}: give a folder with one model")
    return found[0] if found else None


def pair_of(model: Path) -> tuple[str, str]:
    """model.pten.intgemm.alphas.bin is from pt to en."""
    found = re.match(r"model\.([a-z]{2})([a-z]{2})\.", model.name)
    if found is None:
        raise ExportError(f"{model} does not name its languages as model.pten.… does: give --pair SOURCE-TARGET")
    return found[1], found[2]


def read_firefox(files: Mapping[str, Path], pair: Pair) -> ImportedModel:
    student = read_network(read_student_file(files["model"]), LIMITS)
    tokenizer, data = _vocabularies(files)
    source, target = (_pieces(files, data, tokenizer, text) for text in ("source", "target"))
    for text, pieces, size in (("source", source, student.source_size), ("target", target, student.target_size)):
        if pieces.get_piece_size() != size:
            raise ExportError(
                f"{_vocabulary(files, text)} has {pieces.get_piece_size()} pieces where {files['model'].name} has "
                f"{size}: take all files from one model"
            )
    ids = None
    if "shortlist" in files:
        ids = output_ids(read_shortlist(files["shortlist"], student.source_size, student.target_size), target)
    return ImportedModel(
        pair=pair,
        network=student.network,
        quantization=student.quantization,
        output_ids=ids,
        tokenizer=tokenizer,
        tokenizer_data=data,
        special_ids=SpecialIds(EOS_ID, UNK_ID, student.target_size, EOS_ID, ()),
        limits=LIMITS,
        origin=_origin(files),
    )


def _vocabularies(files: Mapping[str, Path]) -> tuple[TokenizerFiles, dict[str, bytes]]:
    roles = ["model"] if "vocabulary" in files else ["source", "target"]
    names = {role: "tokenizer.model" if role == "model" else f"{role}.model" for role in roles}
    paths = {role: files["vocabulary" if role == "model" else f"{role}_vocabulary"] for role in roles}
    return TokenizerFiles("plain_sentencepiece", names), {names[role]: read_bytes(paths[role]) for role in roles}


def _vocabulary(files: Mapping[str, Path], text: str) -> Path:
    return files["vocabulary"] if "vocabulary" in files else files[f"{text}_vocabulary"]


def _pieces(
    files: Mapping[str, Path], data: Mapping[str, bytes], tokenizer: TokenizerFiles, text: str
) -> sentencepiece.SentencePieceProcessor:
    path, name = _vocabulary(files, text), tokenizer.files.get("model") or tokenizer.files[text]
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=data[name])
    except RuntimeError as error:
        raise ExportError(f"{path} is not a SentencePiece model: get the file again") from error
    if processor.eos_id() != EOS_ID or processor.unk_id() != UNK_ID:
        raise ExportError(f"{path} does not begin with </s> and <unk>, as a vocabulary of Firefox Translations does")
    return processor


def output_ids(shortlist: Shortlist, target: sentencepiece.SentencePieceProcessor) -> Ints:
    """Ascending ids of the pieces that any list names, and of what any text may need: bytes and single characters."""
    size = target.get_piece_size()
    may_appear = np.zeros(size, bool)
    may_appear[: max(shortlist.first, UNK_ID + 1)] = True
    may_appear[shortlist.words] = True
    ids = list(range(size))
    for token_id, piece, is_byte in zip(ids, target.id_to_piece(ids), target.is_byte(ids), strict=True):
        may_appear[token_id] |= is_byte or len(piece.removeprefix("\u2581")) <= 1
    missing = -int(may_appear.sum()) % _MULTIPLE
    may_appear[np.flatnonzero(~may_appear)[:missing]] = True
    return np.flatnonzero(may_appear).astype(np.int64)


def _origin(files: Mapping[str, Path]) -> dict[str, Any]:
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files.values()}
    return {
        "project": "Firefox Translations, Mozilla",
        "address": "https://github.com/mozilla/translations",
        "licence": "MPL-2.0",
        "files": hashes,
    }
