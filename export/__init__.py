"""Turn a trained model into a proven bundle of ONNX graphs."""
