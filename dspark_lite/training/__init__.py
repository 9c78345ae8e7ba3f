"""How the embedded checkpoints are made: corpus, tokenizer, models, drafters."""
