"""Random Marian models as the real `transformers` saves them, with logits that are peaked and hypotheses that end."""

import json
import shutil
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.engine.job import DecodingOptions, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.sessions import OrtSessions
from tests.data.make_tokenizers import path_of

LIMIT = 30


def save_marian(
    folder: Path, tags: tuple[str, ...] = (), separate: bool = False, seed: int = 0, **changes: Any
) -> MarianMTModel:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path_of(480)))
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    pieces = ["</s>", "<unk>", *tags, *(piece for piece in pieces if not piece.startswith("<"))]
    target = [*pieces[:2], *reversed(pieces[2:-40])] if separate else pieces
    vocabularies = [{piece: i for i, piece in enumerate([*each, "<pad>"])} for each in (pieces, target)]
    torch.manual_seed(seed)
    pad = len(target)
    shape = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "activation_function": "swish"}
    shape |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64} | changes
    config = MarianConfig(
        vocab_size=len(pieces) + 1,
        decoder_vocab_size=pad + 1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=128,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        scale_embedding=True,
        init_std=0.25,
        share_encoder_decoder_embeddings=not separate,
        **shape,
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight[pad] = 0
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[0, 0] = 4.0
    model.generation_config = GenerationConfig(
        bad_words_ids=[[pad]], renormalize_logits=True, num_beams=4, max_length=128, forced_eos_token_id=0,
        eos_token_id=0, pad_token_id=pad, decoder_start_token_id=pad,
    )  # fmt: skip
    model.save_pretrained(folder)
    for name in ("source.spm", "target.spm"):
        shutil.copy(path_of(480), folder / name)
    (folder / "vocab.json").write_text(json.dumps(vocabularies[0]))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(vocabularies[1]))
    about = {
        "source_lang": "pt",
        "target_lang": "en",
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return model


def random_sources(vocab_size: int, count: int, seed: int = 1) -> list[list[list[int]]]:
    """Groups of sources of one length, so that nothing is padded; all end with eos."""
    chance, groups = torch.Generator().manual_seed(seed), []
    for length in (3, 5, 8, 12):
        ids = torch.randint(2, vocab_size - 1, (count // 4, length), generator=chance)
        groups.append([[*row, 0] for row in ids.tolist()])
    return groups


def generated(model: MarianMTModel, group: list[list[int]], beams: int) -> list[tuple[int, ...]]:
    sources = torch.tensor(group)
    rows = model.generate(sources, attention_mask=torch.ones_like(sources), num_beams=beams, max_length=LIMIT + 1)
    return [_until_end(row[1:]) for row in rows.tolist()]


def _until_end(ids: list[int]) -> tuple[int, ...]:
    return tuple(ids[: ids.index(0)]) if 0 in ids else tuple(ids)


def served(bundle: Bundle, sources: list[list[int]], beams: int) -> list[tuple[int, ...]]:
    engine = Engine([OrtRunner(OrtSessions(bundle), 32)], DecodingRules.of(bundle))
    engine.start()
    try:
        options = DecodingOptions(beam_size=beams, max_new_tokens=LIMIT)
        futures = [engine.submit(Job(tuple(source), options)) for source in sources]
        return [future.result().hypotheses[0].ids for future in futures]
    finally:
        engine.stop()
