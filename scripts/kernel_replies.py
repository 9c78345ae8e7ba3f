"""Waiting for a kernel's messages in short turns.

A client of a busy kernel can miss that a message came (pyzmq's asyncio sockets are woken once a message); it then finds the
message only when it asks anew, after its whole time limit. Asking anew every few seconds finds it at once.
"""

from contextlib import suppress
from math import inf
from queue import Empty
from time import monotonic

from jupyter_client.channels import AsyncZMQSocketChannel

TURN = 2.0  # seconds


def in_turns(get_msg, turn=TURN):
    """Return `get_msg` of a channel, asking anew every `turn` seconds until its time limit."""

    async def patient(channel, timeout=None):
        deadline = inf if timeout is None else monotonic() + timeout
        while deadline - monotonic() > turn:
            with suppress(Empty):
                return await get_msg(channel, turn)
        return await get_msg(channel, max(deadline - monotonic(), 0))

    return patient


def wait_in_turns():
    """Let every client of a kernel in this process wait in turns."""
    if AsyncZMQSocketChannel.get_msg.__name__ != "patient":
        AsyncZMQSocketChannel.get_msg = in_turns(AsyncZMQSocketChannel.get_msg)
