"""Learn a translator: the Transformer, its tokenizer, its corpus, its training and its evaluation."""
