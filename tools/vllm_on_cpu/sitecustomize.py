"""For vLLM's processes on a machine without a GPU: lets Triton believe in a backend for CPUs, so that its interpreter runs.

Triton 3.9 has none in its wheel; model runner V2, which drafts with DSpark, asks for one before it imports its kernels. With
TRITON_INTERPRET nothing is ever compiled for it. Python imports this file at its start where its folder is in PYTHONPATH.
"""

import os
from types import SimpleNamespace

if os.environ.get("TRITON_INTERPRET") == "1":
    from triton.backends import backends

    backends.setdefault("cpu", SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True)))
