"""Chat requests to an OpenAI server through the ordinary client: engine_client.py CASES ANSWERS, run by the engine's Python.

Answers are streamed. Written: each text, and the seconds to its first piece and to its end.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openai import OpenAI


def ask(client, asked, prompt):
    """One streamed answer."""
    begun, first, pieces = time.perf_counter(), None, []
    stream = client.chat.completions.create(
        model=asked["model"],
        messages=[{"role": "user", "content": prompt}],
        temperature=0.0,
        max_tokens=asked["max_new_tokens"],
        stream=True,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    for event in stream:
        piece = event.choices[0].delta.content if event.choices else None
        if piece:
            first = first or time.perf_counter() - begun
            pieces.append(piece)
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "first_seconds": first,
        "seconds": time.perf_counter() - begun,
    }


def main(cases, answers):
    """Ask all prompts, so many at once."""
    asked = json.loads(Path(cases).read_text())
    client = OpenAI(base_url=asked["url"], api_key="none", timeout=3600)
    with ThreadPoolExecutor(asked["at_once"]) as pool:
        found = list(pool.map(lambda prompt: ask(client, asked, prompt), asked["prompts"]))
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
