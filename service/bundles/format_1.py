"""Reads manifests of format 1 by rewriting them as format 2, so that the rest of the server knows one format only.

Format 1 named state tensors after a Transformer's attention: `self` (grows), `cross` (written by the encoder) and
`last` (the encoder's output at the last source position). Encoder outputs were matched to them by their order. Source
and target always shared their special ids.
"""

from typing import Any

_KINDS = {"self": "grows", "cross": "encoded", "last": "encoded"}


def as_format_2(record: dict[str, Any]) -> dict[str, Any]:
    """What is not as it should be stays as it is: the reader of format 2 says what is wrong with it."""
    state = record.get("state")
    if not isinstance(state, list) or not all(isinstance(tensor, dict) for tensor in state):
        return record
    encoder_outputs = [tensor.get("name") for tensor in state if tensor.get("kind") == "cross"]
    unused = {"cross": iter(encoder_outputs), "last": iter(encoder_outputs)}
    return {**record, "state": [_state_tensor(tensor, unused) for tensor in state]}


def _state_tensor(tensor: dict[str, Any], unused: dict[str, Any]) -> dict[str, Any]:
    kind = tensor.get("kind")
    if not isinstance(kind, str):
        return tensor
    encoder_output = next(unused[kind], None) if kind in unused else None
    return {**tensor, "kind": _KINDS.get(kind, kind), "encoder_output": encoder_output}
