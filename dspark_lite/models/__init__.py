"""Models on disk and in memory: loading and saving them, the Hub."""
