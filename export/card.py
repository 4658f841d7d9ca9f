"""MODEL_CARD.md: what a bundle is, what it learned from and what was measured, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.service.bundles.manifest import Bundle


def model_card(bundle: Bundle) -> str:
    pairs = ", ".join(f"{pair.source} to {pair.target}" for pair in bundle.pairs)
    sections = [
        f"# {bundle.name}",
        f"Translates {pairs}. Version {bundle.version}, {bundle.precision}, a bundle for Dragoman "
        "written by `dragoman-export`.",
        "## The network",
        _network(bundle),
        "## What it learned from",
        *_lessons(bundle.training),
        *([bundle.training["sources"].strip()] if "sources" in bundle.training else []),
        "## What was measured",
        _evidence(bundle.evidence),
        "## Limits",
        "It translates sentence by sentence and knows no wider context. Like every such model it can be fluent and "
        "wrong: names, numbers and negations deserve a second look. Sources of up to "
        f"{bundle.limits.max_source_tokens} tokens give up to {bundle.limits.max_new_tokens} tokens; "
        "longer text is split, never cut.",
    ]
    return "\n\n".join(sections) + "\n"


def _network(bundle: Bundle) -> str:
    shape = bundle.architecture
    shared = ", one layer's weights shared by all of a side" if shape.share_layers else ""
    return (
        f'The Transformer of "Attention Is All You Need": {shape.encoder_layers} encoder and {shape.decoder_layers} '
        f"decoder layers{shared}, d_model {shape.d_model}, d_ff {shape.d_ff}, {shape.num_heads} heads, "
        f"{shape.norm}-norm, {shape.positions} positions, a vocabulary of {shape.vocab_size} pieces shared by both "
        "sides and the output."
    )


def _lessons(training: Mapping[str, Any]) -> list[str]:
    """The corpora, once for every run that the weights went through, the first one first."""
    earlier = training.get("initialized_from")
    own = _corpora(training.get("corpora", []))
    if not earlier and "then" not in training:
        return [own]
    told = f"in {training.get('updates', '?')} updates over {training.get('tokens', 0) / 1e6:.1f} million tokens:"
    before = _lessons({**earlier, "then": True}) if earlier else []
    return [*before, f"{'Then' if before else 'First'}, {told}", own]


def _corpora(corpora: Sequence[Mapping[str, Any]]) -> str:
    if not corpora:
        return "The saved model does not say."
    lines = ["| files | pairs | weight | machine-made side | learned into |", "|---|---|---|---|---|"]
    for corpus in corpora:
        files = ", ".join(corpus.get("files", []))
        made, into = corpus.get("machine_made") or "none", corpus.get("into") or "every target"
        lines.append(f"| {files} | {corpus.get('pairs', '?')} | {corpus.get('weight', 1)} | {made} | {into} |")
    return "\n".join(lines)


def _evidence(evidence: Mapping[str, Any]) -> str:
    parity, invariance = evidence["parity"], evidence["invariance"]
    lines = [
        f"- fp32 graphs against PyTorch: {parity['sentences']} sentences, greedy and beam, {parity['different']} "
        f"different, {parity['ties']} ties under 0.0001.",
        f"- Alone against in a crowd of {invariance['crowd']}: {invariance['different']} of {invariance['rows']} rows "
        "differ in any bit.",
        "",
        "| test set, greedy | sentences | BLEU | BLEU in fp32 | chrF | chrF in fp32 |",
        "|---|---|---|---|---|---|",
    ]
    for test in evidence["quality"]:
        ours, fp32 = test["exported"], test["fp32"]
        scores = [ours["sentences"], ours["bleu"], fp32["bleu"], ours["chrf"], fp32["chrf"]]
        lines.append(f"| {test['test_set']} | " + " | ".join(map(str, scores)) + " |")
        for length, of_length in test["by_length"].items():
            cells = [of_length["sentences"], of_length["bleu"], "", of_length["chrf"], ""]
            lines.append(f"| … {length} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
