"""The operators for the precision that was asked for: floats as they are, or int8 with calibrated scales."""

from collections.abc import Callable
from dataclasses import dataclass

from dragoman.export import ExportError
from dragoman.export.calibrate import observe
from dragoman.export.network import Network
from dragoman.export.operators import FloatOperators, Int8Operators, Ints, Operators, Quantization
from dragoman.export.options import ExportOptions
from dragoman.export.quantize import quantize
from dragoman.export.sentence_files import SentenceReader, read_sentences
from dragoman.export.verify import GraphTranslator
from dragoman.export.vocabulary import output_ids
from dragoman.model.saved import SavedModel


@dataclass(frozen=True)
class OperatorChoice:
    options: ExportOptions
    saved: SavedModel
    network: Network
    reader: SentenceReader
    announce: Callable[[str], None]

    def operators(self, reference: GraphTranslator) -> Operators:
        """`reference` runs the fp32 graphs: int8 scales are chosen by its translations."""
        match self.options.precision:
            case "fp32":
                return FloatOperators(self.network, "float32")
            case "fp16":
                return FloatOperators(self.network, "float16")
            case "int8":
                return Int8Operators(*self._quantized(reference), self.reader.limits, self._output_ids())

    def _quantized(self, reference: GraphTranslator) -> tuple[Network, Quantization]:
        assert self.options.calibration is not None, "checked before"
        self.announce("calibration")
        usable = self.reader.read_sources(self.options.calibration)
        sources = [ids for _, ids in usable][: self.options.calibration_sentences]
        if not sources:
            raise ExportError(f"{self.options.calibration} has no usable sentence to calibrate with")
        targets = [trace.hypothesis().ids for trace in reference.greedy(sources)]
        return quantize(self.network, observe(self.saved.network, zip(sources, targets, strict=True)))

    def _output_ids(self) -> Ints | None:
        if not self.options.target_texts:
            return None
        self.announce("output vocabulary")
        language = self.reader.pair.target
        texts = (text for path in self.options.target_texts for text in read_sentences(path, language))
        return output_ids(self.saved.tokenizer, texts)
