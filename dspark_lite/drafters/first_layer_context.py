"""An ablation: a block drafter that is given the target's hidden states in its first layer alone."""

from .dspark import DSpark


class FirstLayerContext(DSpark):
    """DSpark whose block attends to the context in the first layer and from there on to itself alone: what later layers know of
    the target, the first has handed on. An architecture of its own, so that no other program takes it for DSpark."""

    architecture = "Qwen3FirstLayerContextModel"

    def reads_context(self, layer: int) -> bool:
        """Whether the block attends to the context in this layer."""
        return layer == 0
