"""Serve translation bundles over HTTP: ONNX Runtime, continuous batching, Prometheus metrics."""
