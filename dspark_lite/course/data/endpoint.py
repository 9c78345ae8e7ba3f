"""Answers from an OpenAI-compatible server (vLLM, SGLang, ...): POST /v1/completions with token
ids, many at once."""

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

import httpx

from ...common.errors import DSparkLiteError
from ...training.recipe import Data

REQUESTS = 32  # at once
TRIES = 5  # of a request
FIRST_PAUSE = 1.0  # seconds before the second try; each further pause is twice as long
SECONDS = 600.0  # a request may take, at most
TRANSIENT = (408, 409, 425, 429)  # as are all of 5xx: the server is busy or restarts


def cancel(requests) -> None:
    """Cancel the requests that are not sent yet."""
    for request in requests:
        request.cancel()


class Endpoint:
    """A server that has the target under the name `model`.

    `tokenizer` and `stop_token_ids`, the ids that end an answer, are the target's. Prompts are sent
    as token ids with the chat template applied, so the server's template and its sampling defaults
    have no effect.
    """

    def __init__(self, url: str, model: str, tokenizer, stop_token_ids):
        self.stop_token_ids, self.retokenised = tuple(stop_token_ids), 0
        base = url.rstrip("/")
        self.url = (base if base.endswith("/v1") else f"{base}/v1") + "/completions"
        self.model, self.tokenizer = model, tokenizer

    def write(self, prompts: dict[int, list[int]], data: Data) -> Iterator[tuple[int, list[int]]]:
        """Yield (index, answer) of the prompts {index: ids} as they come, stop tokens included,
        drawn as `data` says.

        Each answer has a seed of its own, the data's plus its index. If the server fails for good,
        yield the answers it has given, then raise DSparkLiteError.
        """
        failed = None
        with ThreadPoolExecutor(REQUESTS) as pool, httpx.Client(timeout=SECONDS) as client:
            asked = {
                pool.submit(self._answer, client, ids, data, data.seed + index): index
                for index, ids in prompts.items()
            }
            try:
                for done in as_completed(asked):
                    if done.cancelled():
                        continue
                    if error := done.exception():
                        failed = failed or error
                        cancel(asked)
                    else:
                        yield asked[done], done.result()
            finally:
                cancel(asked)
        if self.retokenised:
            warnings.warn(
                f"{self.url} tells the text of its answers and not their token ids; {self.retokenised} texts were tokenised again, "
                "which may give other ids than the target wrote",
                stacklevel=2,
            )
        if failed:
            raise failed

    def _answer(self, client: httpx.Client, ids: list[int], data: Data, seed: int) -> list[int]:
        """Return the answer to a prompt. Raise DSparkLiteError after TRIES failures or one that is
        final."""
        request = {
            "model": self.model,
            "prompt": ids,
            "max_tokens": data.max_new_tokens,
            "temperature": data.temperature,
            "top_p": data.top_p,
            "top_k": data.top_k or -1,
            "seed": seed,
            "return_token_ids": True,
            # Without these a server applies the model's generation_config.
            "repetition_penalty": 1.0,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        for tried in range(TRIES):
            if tried:
                time.sleep(FIRST_PAUSE * 2 ** (tried - 1))
            try:
                reply = client.post(self.url, json=request)
                if reply.status_code < 400:
                    return self._tokens(reply.json()["choices"][0])
                problem = f"{reply.status_code}: {reply.text[:200]}"
                if reply.status_code < 500 and reply.status_code not in TRANSIENT:
                    break
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                problem = f"no completion in its reply, {type(error).__name__}: {error}"
        raise DSparkLiteError(
            f"{self.url} gives no answer ({' '.join(problem.split())}); what it answered is kept: "
            "start the server and train again"
        )

    def _tokens(self, choice: dict) -> list[int]:
        """Return the token ids of a choice, with the stop token that ended it; tokenise its text if
        the server sends no ids.

        Raise ValueError for a choice that is no answer of the target.
        """
        ids, reason = choice.get("token_ids"), choice["finish_reason"]
        if reason not in ("stop", "length"):
            raise ValueError(f"its answer ended by {reason!r}, not by a stop token or its length")
        if isinstance(choice.get("stop_reason"), str):
            raise ValueError(
                f"its answer was ended by the text {choice['stop_reason']!r}, which was not asked for"
            )
        if ids is None:
            if not isinstance(choice["text"], str):
                raise ValueError(f"its text is {choice['text']!r}")
            ids = self.tokenizer(choice["text"], add_special_tokens=False)["input_ids"]
            self.retokenised += 1
        if not all(type(token) is int and 0 <= token < len(self.tokenizer) for token in ids):
            raise ValueError(
                f"its token_ids {ids} are not all ids of the target, 0 to {len(self.tokenizer) - 1}"
            )
        if reason == "stop" and not (ids and ids[-1] in self.stop_token_ids):
            stop = choice.get("stop_reason")
            ids = [*ids, stop if stop in self.stop_token_ids else self.tokenizer.eos_token_id]
        if not ids:
            raise ValueError("its answer is empty")
        return ids
