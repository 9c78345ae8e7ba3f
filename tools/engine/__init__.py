"""vLLM's server, asked as an application would."""
