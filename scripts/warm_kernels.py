"""Kernels that are forked from a process which has imported torch already.

Every lesson begins with the same imports, which take longer than most of its cells. One process makes them once; a kernel is
a fork of it, with an environment and a folder of its own. What reads the environment when it is imported (transformers, the
Hub's client) is left to the kernel. `python scripts/warm_kernels.py serve SOCKET` is that process, `... start SOCKET -f FILE`
stands for a kernel where its manager looks for one: it ends when the kernel does, and the kernel ends with it.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

IMPORTED = ("torch", "torch.distributed.tensor", "torch._dynamo", "scipy.optimize", "scipy.stats", "matplotlib.pyplot", "ipykernel.kernelapp")
STDIO = (0, 1, 2)
FORKS = sys.platform == "linux"  # elsewhere a process that has imported so much is not safely forked
FIRST = Lock()


def warm_manager(settings: tuple[tuple[str, str], ...]) -> type:
    """The class of kernel managers whose kernels are forks; the process that they are forks of is started by the first call.

    `settings` are the variables of every kernel, which the first imports read, too.
    """
    with FIRST:  # lessons that run side by side have one such process
        return _warm_manager(settings)


@cache
def _warm_manager(settings: tuple[tuple[str, str], ...]) -> type:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    path = folder / "socket"
    server = subprocess.Popen([sys.executable, __file__, "serve", str(path)], env={**os.environ, **dict(settings)})
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.terminate)
    argv = [sys.executable, "-S", "-E", __file__, "start", str(path), "-f", "{connection_file}"]
    (folder / "python3").mkdir()
    (folder / "python3" / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))

    class WarmManager(AsyncKernelManager):
        def _kernel_spec_manager_default(self):
            return KernelSpecManager(kernel_dirs=[str(folder)])

    return WarmManager


def serve(path: str) -> None:
    """Forks a kernel for everyone who asks at the socket `path`, until it is terminated or its parent is gone."""
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        for name in IMPORTED:
            __import__(name)
        listening.listen()
        listening.settimeout(1.0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the guardians
        while os.getppid() == parent:
            with suppress(TimeoutError):
                asking, _ = listening.accept()
                if os.fork() == 0:
                    listening.close()
                    guard(asking)
                asking.close()


def guard(asking: socket.socket) -> None:
    """Runs one kernel as `asking` says, tells it the exit code, and kills the kernel when `asking` is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asking.setblocking(True)
    words, stdio, _, _ = socket.recv_fds(asking, 1 << 20, len(STDIO))
    kernel = os.fork()
    if kernel == 0:
        asking.close()
        become_kernel(json.loads(words), stdio)
    asking.setblocking(False)
    while True:
        ended, status = os.waitpid(kernel, os.WNOHANG)
        if ended:
            with suppress(OSError):
                asking.send(bytes([os.waitstatus_to_exitcode(status) % 256]))
            os._exit(0)
        with suppress(BlockingIOError):
            for number in asking.recv(16) or [signal.SIGKILL]:
                os.kill(kernel, number)
        time.sleep(0.05)


def become_kernel(asked: dict, stdio: list[int]) -> None:
    """Turns this process into an IPython kernel with the arguments, environment, folder and streams that were asked for."""
    for own, given in zip(STDIO, stdio):
        os.dup2(given, own)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = ["ipykernel_launcher", f"--IPKernelApp.parent_handle={os.getppid()}", *asked["arguments"]]
    sys.path[0] = ""  # the kernel's folder instead of this script's, as with `python -m ipykernel_launcher`
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(0)


def start(path: str, arguments: list[str]) -> int:
    """Has a kernel forked, hands on signals, and returns its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        while server.connect_ex(path):
            time.sleep(0.05)  # it is still importing
        asked = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(server, [json.dumps(asked).encode()], STDIO)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        return (server.recv(1) or b"\1")[0]


if __name__ == "__main__":
    command, place, *rest = sys.argv[1:]
    sys.exit(serve(place) if command == "serve" else start(place, rest))
