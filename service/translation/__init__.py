"""Text in, text out: segments, placeholders, tokenization, and the one use case all routes share."""
