"""Models on disk and in memory: loading and saving them, the Hub, what their files hold."""
