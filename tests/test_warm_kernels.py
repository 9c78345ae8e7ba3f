"""Kernels that are forks: they have what a kernel has, they end with what stands for them, and the other way round."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import nbformat
import notebooks
import pytest
import stated
import warm_kernels

pytestmark = pytest.mark.skipif(not warm_kernels.FORKS, reason="kernels are forked on Linux alone")


def ran(tmp_path, *cells, environment=None):
    """Return what cells print, in a kernel of its own that starts in `tmp_path`."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebooks.execute(notebook, "07", tmp_path, environment=environment)
    return stated.printed_by(notebook.cells)


def test_a_kernel_has_its_own_environment_folder_and_streams_and_the_imports_of_all(tmp_path, capfd):
    (tmp_path / "beside.py").write_text("WHO = 'a neighbour'")
    environment = {**os.environ, **notebooks.KERNEL_SETTINGS, "HF_HUB_OFFLINE": "0", "ONLY_HERE": "yes"}
    said = json.loads(ran(tmp_path, """
import json, os, subprocess, sys
import beside
before = sorted({"torch", "matplotlib.pyplot", "transformers", "huggingface_hub", "dspark_lite"} & sys.modules.keys())
import huggingface_hub.constants
subprocess.run(["echo", "said outside"])
print(json.dumps({"who": beside.WHO, "folder": os.getcwd(), "variables": [os.environ["ONLY_HERE"], os.environ.get("PYTEST_CURRENT_TEST")],
                  "before": before, "offline": huggingface_hub.constants.HF_HUB_OFFLINE, "backend": __import__("matplotlib").get_backend()}))
""", environment=environment).splitlines()[-1])
    assert said == {"who": "a neighbour", "folder": str(tmp_path), "variables": ["yes", os.environ["PYTEST_CURRENT_TEST"]],
                    "before": ["matplotlib.pyplot", "torch"], "offline": False, "backend": "module://matplotlib_inline.backend_inline"}
    assert "To connect another client" not in capfd.readouterr().err


def test_what_one_kernel_does_another_does_not_see(tmp_path):
    ran(tmp_path, "import torch\ntorch.left_behind = 1\nimport os\nos.environ['LEFT'] = 'behind'")
    assert ran(tmp_path, "import os, torch\nprint(hasattr(torch, 'left_behind'), os.environ.get('LEFT'))") == "False None\n"


def gone(process, seconds=300):
    """Return whether a process has ended, or is about to be cleared away, within some seconds."""
    for _ in range(10 * seconds + 1):
        try:
            with open(f"/proc/{process}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_a_kernel_ends_with_what_stands_for_it(tmp_path):
    """A kernel manager that kills its kernel kills only the process that it started."""
    async def killed():
        manager = notebooks.warm_manager(tuple(notebooks.KERNEL_SETTINGS.items()))(kernel_name="python3")
        await manager.start_kernel(cwd=str(tmp_path), env={**os.environ, **notebooks.KERNEL_SETTINGS})
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=120)
        said = []
        await client.execute_interactive("import os\nprint(os.getpid())", timeout=60,
                                         output_hook=lambda message: said.append(message["content"].get("text", "")))
        client.stop_channels()
        os.kill(manager.provisioner.process.pid, signal.SIGKILL)
        await manager.cleanup_resources()
        return int("".join(said))

    assert gone(asyncio.run(killed()))


def test_what_kernels_are_forked_from_ends_with_the_process_that_started_it(tmp_path):
    """Though that one is killed, and cannot tidy up."""
    program = "import os, sys, subprocess; p = subprocess.Popen([sys.executable, *sys.argv[1:]]); print(p.pid, flush=True); p.wait()"
    socket = str(tmp_path / "socket")
    parent = subprocess.Popen([sys.executable, "-c", program, warm_kernels.__file__, "serve", socket], stdout=subprocess.PIPE, text=True)
    server = int(parent.stdout.readline())
    assert not gone(server, seconds=0)
    parent.kill()
    parent.wait()
    assert gone(server)
