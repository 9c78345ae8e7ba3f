"""The queue of requests: each waits, gets a slot, and ends."""

from collections import deque

from ..common.errors import RequestError
from .requests import Answer, Request, RunningRequest


class RequestQueue:
    """The queue and the slots of an engine: first come, first served.

    `now()` gives the time in seconds. Every request is answered once: among the `ended`, or by
    `abort`.
    """

    def __init__(self, slots: int, now):
        self.slots: list[RunningRequest | None] = [None] * slots
        self.waiting: deque[Answer] = deque()
        self.ended: list[Answer] = []
        self.now, self.next_id = now, 0

    @property
    def running(self) -> list[RunningRequest]:
        """Return the running requests, by slot."""
        return [request for request in self.slots if request]

    @property
    def idle(self) -> bool:
        """Return whether nothing runs, waits, or is to be delivered."""
        return not (self.running or self.waiting or self.ended)

    def submit(self, request: Request) -> int:
        """Queue a request and return its id."""
        self.waiting.append(Answer(id=self.next_id, request=request, arrived=self.now()))
        self.next_id += 1
        return self.next_id - 1

    def candidates(self) -> list[RunningRequest]:
        """Return the waiting requests for which a slot is free, each with its slot. They go on
        waiting until `admit`."""
        free = [slot for slot, request in enumerate(self.slots) if request is None]
        return [RunningRequest(answer, slot) for answer, slot in zip(self.waiting, free)]

    def admit(self, requests: list[RunningRequest]) -> None:
        """Move candidates from the queue into their slots."""
        for request in requests:
            self.waiting.popleft()
            self.slots[request.slot] = request

    def release(self, request: RunningRequest, reason: str) -> None:
        """End a running request; its slot is free at once."""
        self.slots[request.slot] = None
        self.end(request.answer, reason)

    def end(self, answer: Answer, reason: str) -> None:
        """Finish an answer, so that the next `deliver` returns it."""
        answer.reason, answer.ended = reason, self.now()
        answer.decode_seconds = answer.ended - answer.first_token if answer.token_ids else 0.0
        self.ended.append(answer)

    def deliver(self) -> list[Answer]:
        """Return the answers that have ended, each once."""
        delivered, self.ended = self.ended, []
        return delivered

    def abort(self, request_id: int) -> Answer | None:
        """End a request and return its answer so far; None if it was answered before. Raise
        RequestError for an id that was never given."""
        if not 0 <= request_id < self.next_id:
            raise RequestError(
                f"there is no request {request_id}; abort takes an id that submit has returned"
            )
        for request in self.running:
            if request.answer.id == request_id:
                self.release(request, "aborted")
        for answer in list(self.waiting):
            if answer.id == request_id:
                self.waiting.remove(answer)
                self.end(answer, "aborted")
        taken = [answer for answer in self.ended if answer.id == request_id]
        self.ended = [answer for answer in self.ended if answer.id != request_id]
        return taken[0] if taken else None
