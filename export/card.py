"""MODEL_CARD.md: what a bundle is, which text it suits, what it learned from and what was measured, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dragoman.service.bundles.manifest import Bundle


def model_card(bundle: Bundle, about: str = "") -> str:
    """`about` says in Markdown which text the model suits."""
    pairs = ", ".join(f"{pair.source} to {pair.target}" for pair in bundle.pairs)
    sections = [
        f"# {bundle.name}",
        f"Translates {pairs}. Version {bundle.version}, {bundle.precision}, a bundle for Dragoman "
        f"written by `{'dragoman-import' if 'origin' in bundle.training else 'dragoman-export'}`.",
        *(["## What it suits", about] if about else []),
        "## The network",
        _network(bundle),
        *_history(bundle.training),
        *([bundle.training["sources"].strip()] if "sources" in bundle.training else []),
        "## What was measured",
        *_evidence(bundle.evidence),
        "## Limits",
        "It translates sentence by sentence, without wider context. Like every such model it can be fluent and "
        "wrong: check names, numbers and negations. Sources of up to "
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
        f"{shape.norm}-norm, {shape.positions} positions, {_vocabulary(bundle)}"
        f"{'' if shape.decoder == 'attention' else '; recurrent cells in the place of the decoder self-attention'}."
    )


def _vocabulary(bundle: Bundle) -> str:
    if "model" in bundle.tokenizer.files or "vocabulary" in bundle.tokenizer.files:
        return f"a vocabulary of {bundle.architecture.vocab_size} pieces shared by both sides and the output"
    return f"a vocabulary for each side, that of the target of {bundle.architecture.vocab_size} pieces"


def _history(training: Mapping[str, Any]) -> list[str]:
    """Where the network comes from: somebody else, or training text."""
    if "origin" not in training:
        return ["## What it learned from", *_lessons(training)]
    origin = training["origin"]
    told = f"{origin['project']} ({origin['address']}). Licence of the weights: {origin['licence']}."
    files = [[name, digest] for name, digest in origin["files"].items()]
    return ["## Where it comes from", told, _table(["original file", "SHA-256"], files)]


def _lessons(training: Mapping[str, Any]) -> list[str]:
    """The corpora of every training run that the weights went through, in order."""
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
    rows = []
    for corpus in corpora:
        made, into = corpus.get("machine_made") or "none", corpus.get("into") or "every target"
        rows.append([", ".join(corpus.get("files", [])), corpus.get("pairs", "?"), corpus.get("weight", 1), made, into])
    return _table(["files", "pairs", "weight", "machine-made side", "learned into"], rows)


def _evidence(evidence: Mapping[str, Any]) -> list[str]:
    """Only what was measured: an imported model has no PyTorch original to compare with."""
    parts = ["\n".join(f"- {line}" for line in _checks(evidence))]
    if "quality" in evidence:
        parts.append(_quality(evidence["quality"]))
    if "scores" in evidence:
        parts += ["### By kind of text", _scores(evidence["scores"])]
    if "behaviour" in evidence:
        parts += ["### Behaviour", *_behaviour(evidence["behaviour"])]
    return [part for part in parts if part]


def _checks(evidence: Mapping[str, Any]) -> Iterator[str]:
    if parity := evidence.get("parity"):
        yield (
            f"fp32 graphs against PyTorch: {parity['sentences']} sentences, greedy and beam, {parity['different']} "
            f"different, {parity['ties']} ties under 0.0001."
        )
    if reference := evidence.get("reference"):
        yield (
            f"fp32 graphs against the network in NumPy: {reference['sentences']} sentences, {reference['different']} "
            f"different, {reference['ties']} ties."
        )
    if precision := evidence.get("precision"):
        yield (
            f"This precision against fp32: {precision['same']} of {precision['sentences']} sentences the same, "
            f"chrF {precision['chrf']}."
        )
    if invariance := evidence.get("invariance"):
        yield (
            f"Decoded alone and in a crowd of {invariance['crowd']}: {invariance['different']} of {invariance['rows']} "
            "rows differ in any bit."
        )


def _quality(tests: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for test in tests:
        ours, fp32 = test["exported"], test["fp32"]
        rows.append([test["test_set"], ours["sentences"], ours["bleu"], fp32["bleu"], ours["chrf"], fp32["chrf"]])
        for length, of_length in test["by_length"].items():
            rows.append([f"… {length}", of_length["sentences"], of_length["bleu"], "", of_length["chrf"], ""])
    return _table(["test set, greedy", "sentences", "BLEU", "BLEU in fp32", "chrF", "chrF in fp32"], rows)


def _scores(texts: Sequence[Mapping[str, Any]]) -> str:
    """A row for every text and for every length in it; two columns for every other system."""
    systems = list(dict.fromkeys(system for text in texts for system in text["beside"]))
    columns = ["text, greedy", "sentences", "BLEU", "chrF"]
    columns += [f"{measure} of {system}" for system in systems for measure in ("BLEU", "chrF")]
    rows = []
    for text in texts:
        others = [text["beside"].get(system) for system in systems]
        rows.append([text["test_set"], *_row(text["all"], [other and other["all"] for other in others])])
        for length, ours in text["by_length"].items():
            rows.append([f"… {length}", *_row(ours, [other and other["by_length"][length] for other in others])])
    return _table(columns, rows)


def _row(ours: Mapping[str, Any], others: Sequence[Mapping[str, Any] | None]) -> list[object]:
    of_others = [other[measure] if other else "" for other in others for measure in ("bleu", "chrf")]
    return [ours["sentences"], ours["bleu"], ours["chrf"], *of_others]


def _behaviour(found: Mapping[str, Any]) -> list[str]:
    told = (
        f"Short texts with known answers, translated greedily as a server does: {found['passed']} of {found['cases']} "
        f"right ({found['percent']} %)."
    )
    rows = [[kind, each["cases"], each["passed"], each["percent"]] for kind, each in found["classes"].items()]
    overlap = found.get("overlap")
    listed = overlap and (
        f"Of {overlap['short_cases']} texts of one or two words, {overlap['listed']} also stand with a right answer in "
        f"{', '.join(overlap['lists'])}."
    )
    return [told, _table(["class", "cases", "right", "%"], rows), *([listed] if listed else [])]


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])
