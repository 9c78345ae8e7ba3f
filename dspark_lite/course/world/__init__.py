"""The tiny world that the embedded models live in: its texts, its tokenizer, and where prompts come from."""
