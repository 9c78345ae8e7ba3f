"""Answers of an engine as they are written, for coroutines that share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..common.errors import RequestError
from ..decoding.text import TextPieces
from .requests import Answer, Request, StepReport

if TYPE_CHECKING:
    from .engine import Engine


class AnswerStreams:
    """The streams of an engine. While one is read, steps run in a thread, one at a time; requests
    come and go between two steps."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.arriving: list[tuple[Request, asyncio.Queue]] = []
        self.leaving: list[asyncio.Queue] = []
        self.open: dict[int, tuple[asyncio.Queue, TextPieces]] = {}
        self.steps: asyncio.Task | None = None

    async def stream(self, request: Request) -> AsyncIterator[str]:
        """Yield the pieces of text of one answer. A consumer that stops early ends the request.

        Raise what `Engine.submit` and `Engine.step` raise, and RequestError for an answer that
        failed.
        """
        queue: asyncio.Queue = asyncio.Queue()
        self.arriving.append((request, queue))
        if self.steps is None or self.steps.done():
            self.steps = asyncio.create_task(self._run())
        try:
            while not isinstance(piece := await queue.get(), Answer):
                if isinstance(piece, Exception):
                    raise piece
                yield piece
            if piece.reason == "failed":
                raise RequestError("the target's logits were not finite; the answer ends here")
        finally:
            self.leaving.append(queue)

    async def _run(self) -> None:
        """Step until no stream is open."""
        try:
            while self.arriving or self.open:
                self._admit()
                self._abort()
                if self.open:
                    self._deliver(await asyncio.to_thread(self.engine.step))
        except Exception as error:
            arriving, self.arriving = self.arriving, []  # during the step that failed
            for queue in [*(queue for _, queue in arriving), *(q for q, _ in self.open.values())]:
                queue.put_nowait(error)
            for answer in list(self.open):
                self.engine.abort(answer)
            self.open.clear()

    def _admit(self) -> None:
        arriving, self.arriving = self.arriving, []
        for request, queue in arriving:
            try:
                pieces = TextPieces(self.engine.target.tokenizer)
                self.open[self.engine.submit(request)] = (queue, pieces)
            except Exception as error:
                queue.put_nowait(error)

    def _abort(self) -> None:
        """End the requests whose streams nobody reads any more."""
        for number, (queue, _) in list(self.open.items()):
            if queue in self.leaving:
                self.engine.abort(number)
                del self.open[number]
        self.leaving.clear()

    def _deliver(self, report: StepReport) -> None:
        """Hand each stream the text that a step wrote, and its end."""
        for number, tokens in report.written.items():
            if number in self.open:
                queue, pieces = self.open[number]
                if piece := pieces.add(tokens):
                    queue.put_nowait(piece)
        for answer in report.answers:
            if answer.id in self.open:
                queue, pieces = self.open.pop(answer.id)
                if piece := pieces.end():
                    queue.put_nowait(piece)
                queue.put_nowait(answer)
