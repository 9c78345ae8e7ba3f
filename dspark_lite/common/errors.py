"""The one family of exceptions that wrong input raises."""


class DSparkLiteError(Exception):
    """Wrong input, told in one sentence: what is wrong and what would be right."""


class CheckpointError(DSparkLiteError):
    """A checkpoint that is missing, damaged, or made for another target."""


class RequestError(DSparkLiteError):
    """A request that cannot be decoded: prompt, temperature or draft length out of range."""
