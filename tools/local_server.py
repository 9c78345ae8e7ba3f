"""Another program's server on this machine: started on loopback, waited for, and stopped."""

import re
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

from dspark_lite.common.errors import DSparkLiteError

STARTING = 900  # seconds a server may take to be ready


@contextmanager
def serving(command, log, environment=None):
    """The address of a server that is ready, started by the words that `command` gives for a port; it is stopped at the end.

    What it says goes to the file `log`. Raises DSparkLiteError where it does not start.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with log.open("w") as out:
        server = subprocess.Popen(
            [str(word) for word in command(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        ready(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()


def ready(server, url, log):
    """Waits until a server answers."""
    for _ in range(STARTING):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise DSparkLiteError(
        f"the server did not start ({first_error(log)}); the whole story is in {log.parent.name}/{log.name}"
    )


def first_error(log):
    """The error that a server's log names first, which is the cause of later ones; a warning only fears one."""
    text = "\n".join(line for line in log.read_text().splitlines() if " WARNING " not in line)
    return (
        re.findall(r"\b\w*Error: .+", text)
        or text.strip().splitlines()[-1:]
        or ["nothing was said"]
    )[0]
