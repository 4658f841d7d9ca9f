"""Assemble what `bundle.json` says of an exported model. Writing and publishing it is left to `export.publish`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.export.graphs import Graphs
from dragoman.export.network import Network
from dragoman.export.options import ExportOptions
from dragoman.export.publish import content_version
from dragoman.export.sentence_files import read_lines
from dragoman.model.saved import SavedModel
from dragoman.model.tokenizer import BOS_ID, EOS_ID, NUM_PLACEHOLDERS, PAD_ID, UNK_ID, Tokenizer
from dragoman.service.bundles.manifest import (
    Bundle,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    TokenizerFiles,
)

TOKENIZER = "tokenizer.model"


def assemble_bundle(
    folder: Path,
    options: ExportOptions,
    saved: SavedModel,
    network: Network,
    pair: Pair,
    limits: Limits,
    graphs: Graphs,
) -> Bundle:
    """The manifest without files and evidence, which `Staging.seal` adds; the graphs are in the folder already."""
    # One pair, even if the model knows more: scales, tokens that may come out and evidence belong to this pair.
    return Bundle(
        path=folder,
        name=options.name or f"{pair.source}-{pair.target}",
        version=options.version or content_version(folder, [TOKENIZER]),
        precision=options.precision,
        pairs=(pair,),
        architecture=network.architecture,
        limits=limits,
        tokenizer=TokenizerFiles("sentencepiece", {"model": TOKENIZER}),
        special_ids=_special_ids(saved.tokenizer),
        rules=Rules(default_beam_size=options.default_beam_size),
        state=graphs.state,
        files={},
        evidence={},
        training={**saved.training, **_sources(options.sources), "config": saved.config.to_dict()},
    )


def _special_ids(tokenizer: Tokenizer) -> SpecialIds:
    placeholders = tuple(tokenizer.placeholder_id(number) for number in range(NUM_PLACEHOLDERS))
    return SpecialIds(pad=PAD_ID, unk=UNK_ID, bos=BOS_ID, eos=EOS_ID, placeholder_ids=placeholders)


def _sources(path: Path | None) -> Mapping[str, Any]:
    return {} if path is None else {"sources": "\n".join(read_lines(path))}
