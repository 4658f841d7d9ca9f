"""Text in, text out: split a text, take spans out, plan, decode, read the answers and join them."""
