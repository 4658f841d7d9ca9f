"""Loads the graphs of a bundle into onnxruntime, on the requested device or on the CPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import onnxruntime as ort

from dragoman.service.bundles.manifest import DECODER, ENCODER, LEAP, Bundle, BundleError, Precision

Provider = Literal["auto", "cpu", "cuda"]
Device = Literal["cpu", "cuda"]
_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"

logger = logging.getLogger(__name__)


def choose_device(wanted: Provider, precision: Precision, available: Sequence[str]) -> tuple[Device, str | None]:
    """The device to run on, and why it is not the requested one."""
    if wanted == "cpu" or (wanted == "auto" and (precision == "int8" or _CUDA not in available)):
        return "cpu", None
    if precision == "int8":
        return "cpu", "an int8 bundle runs on the CPU only; export it with --precision fp16 for CUDA"
    if _CUDA not in available:
        return "cpu", f"this onnxruntime has no {_CUDA}; install the extra `gpu` instead of `cpu`"
    return "cuda", None


class OrtSessions:
    """The graphs of a bundle, loaded once; several runners share them."""

    def __init__(self, bundle: Bundle, threads: int = 1, provider: Provider = "auto") -> None:
        self.bundle, self.threads = bundle, threads
        self.device, warning = choose_device(provider, bundle.precision, ort.get_available_providers())
        self.encoder = self.load(ENCODER)
        if self.device == "cuda" and _CUDA not in self.encoder.get_providers():
            # The runtime logs its own reason, and goes on without the device.
            self.device, warning = "cpu", "CUDA did not start; onnxruntime's log says why"
        if warning is not None:
            logger.warning("bundle %s runs on the CPU: %s", bundle.name, warning)
        self.decoder = self.load(DECODER)
        self.multi_step = self.load(LEAP) if LEAP in bundle.files else None
        self.takes_lengths = any(value.name == "source_lengths" for value in self.encoder.get_inputs())

    def load(self, name: str) -> ort.InferenceSession:
        providers = [_CUDA, _CPU] if self.device == "cuda" else [_CPU]
        try:
            return ort.InferenceSession(str(self.bundle.file(name)), self._options(), providers=providers)
        except Exception as error:  # the runtime's exceptions have no common base below this one
            reason = " ".join(str(error).split())
            raise BundleError(
                f"onnxruntime {ort.__version__} cannot load {name} of bundle {self.bundle.path} ({reason}): "
                "upgrade onnxruntime or export the bundle again"
            ) from error

    def _options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Otherwise the runtime keeps a memory plan for every shape it meets, and its memory grows.
        options.enable_mem_pattern = False
        # Graphs come as they should run: higher levels fuse norms into a slower operator and move roundings.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.log_severity_level = 3
        return options


def run_on_device(session: ort.InferenceSession, binding: ort.IOBinding) -> None:
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
