"""The exceptions that wrong input raises."""


class DSparkLiteError(Exception):
    """Wrong input. The message is one sentence: the fault, and a remedy."""


class CheckpointError(DSparkLiteError):
    """A checkpoint that is missing, damaged, or made for another target."""


class RequestError(DSparkLiteError):
    """A request that cannot be decoded: its prompt, temperature or draft length is out of range."""
