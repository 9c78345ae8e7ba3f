"""A Hub on loopback that the real hub client talks to: models under any id, a CDN on a second port,
and faults to order.

It answers what snapshot_download of huggingface_hub asks: /api/models/ID[/revision/REVISION] names
the commit, /api/models/ID/tree/COMMIT lists sizes and hashes, and /ID/resolve/COMMIT/FILE sends a
small file itself and redirects to the CDN for a large one. As on the real Hub, an ETag is git's
hash of a small file and the SHA-256 of a large one.
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import prod
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from unittest.mock import patch
from urllib.parse import unquote

# Endings of the files that the real Hub keeps in its large-file store.
LARGE = (".safetensors", ".bin", "tokenizer.json")
MODEL = "([^/]+/[^/]+)"
FETCHED = 100_001  # bytes of a safetensors file that the client fetches at first, as its header is mostly shorter


class Request(NamedTuple):
    """A request as it came in: `at` is "hub" or "cdn", `path` is unquoted and without its query."""

    at: str
    method: str
    path: str
    range: str | None
    token: str | None


class Reply(NamedTuple):
    """A status, headers and a body; `file` names the file that the body holds."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""
    file: str | None = None


class Hub:
    """The models {id: {revision: folder}} and the faults, all of which may be changed while it
    serves.

    A folder is what a revision holds; the commit that it names is a hash of its files. Faults of
    files go by their names.
    """

    def __init__(self, models: dict[str, dict[str, Path]] | None = None):
        self.models = models or {}
        self.requests: list[Request] = []
        self.bytes_sent = 0  # in bodies
        self.cuts: dict[
            str, list[int]
        ] = {}  # bytes after which the next transfers of a file break off
        self.spoiled: set[str] = set()  # files of which another byte is sent than is listed
        self.missing: set[str] = set()  # files that are listed, but not there
        self.gated: dict[str, str] = {}  # the token that may read the files of a model
        self.expired: set[str] = set()  # tokens that are refused
        self.down = 0  # the status that answers every request
        self.hangs_up = False  # connections are closed without an answer
        self._ports, self._servers = [0, 0], []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self) -> None:
        """Listen, on the ports of the last time if it was stopped."""
        self._servers = [
            _Server(self, name, port) for name, port in zip(("hub", "cdn"), self._ports)
        ]
        self._ports = [server.server_port for server in self._servers]
        for server in self._servers:
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers = []

    @property
    def endpoint(self) -> str:
        """Return what HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self._ports[0]}"

    def environment(self, home: Path, **others: str) -> dict[str, str]:
        """Return the environment of a process whose Hub this is and whose HF_HOME is `home`,
        without other variables HF_."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "TRANSFORMERS_"))
        }
        return kept | {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            **others,
        }

    @contextmanager
    def used_here(self, home: Path) -> Iterator[None]:
        """Make this the Hub of the client in this process, which has read its environment when it
        was imported."""
        from huggingface_hub import close_session, constants

        settings = {
            "ENDPOINT": self.endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": self.endpoint
            + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_TELEMETRY": True,
        }
        with (
            patch.dict(os.environ, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1"),
            patch.multiple(constants, **settings),
        ):
            for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
                os.environ.pop(name, None)
            close_session()
            yield

    def sent(self) -> list[str]:
        """Return the names of the files that were asked for in a GET, in order, from the hub or its
        CDN."""
        found = [
            re.fullmatch(rf"/{MODEL}/(resolve|blob)/[^/]+/(.+)", request.path)
            for request in self.requests
            if request.method == "GET" and (request.at == "cdn" or not request.path.endswith(LARGE))
        ]
        return [match.group(3) for match in found if match]

    def commit(self, model: str, revision: str) -> str:
        """Return the commit hash of a revision."""
        return hashlib.sha1(
            json.dumps(self._listing(self.models[model][revision])).encode()
        ).hexdigest()

    def answer(self, request: Request) -> Reply:
        """Return the reply to a request, before a transfer breaks off."""
        if self.down:
            return Reply(self.down)
        if request.at == "cdn":
            model, commit, file = re.fullmatch(
                rf"/{MODEL}/blob/([^/]+)/(.+)", request.path
            ).groups()
            return Reply(200, {}, self._content(self._folder(model, commit) / file), file)
        if request.token and request.token.removeprefix("Bearer ") in self.expired:
            return Reply(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        for pattern, reply in (
            (rf"/api/models/{MODEL}(?:/revision/(.+))?", self._facts),
            (rf"/api/models/{MODEL}/tree/([^/]+)", self._tree),
            (rf"/{MODEL}/resolve/([^/]+)/(.+)", self._file),
        ):
            if match := re.fullmatch(pattern, request.path):
                model, revision = match.group(1), match.group(2) or "main"
                # The real Hub does not tell a stranger whether a model is private or not there.
                if model not in self.models:
                    return Reply(404 if request.token else 401, {"X-Error-Code": "RepoNotFound"})
                folder = self._folder(model, revision)
                return (
                    reply(request, model, folder, *match.groups()[2:])
                    if folder
                    else Reply(404, {"X-Error-Code": "RevisionNotFound"})
                )
        return Reply(404)

    def _facts(self, request, model, folder) -> Reply:
        files = [
            {"rfilename": file["path"], "size": file["size"]} for file in self._listing(folder)
        ]
        return _json(
            {
                "id": model,
                "sha": self._commit_of(model, folder),
                "tags": [],
                "siblings": files,
                "private": False,
                "downloads": 0,
            }
        )

    def _tree(self, request, model, folder) -> Reply:
        return _json(self._listing(folder))

    def _file(self, request, model, folder, file) -> Reply:
        if model in self.gated and request.token != f"Bearer {self.gated[model]}":
            return Reply(403 if request.token else 401, {"X-Error-Code": "GatedRepo"})
        commit = {"X-Repo-Commit": self._commit_of(model, folder)}
        listed = {entry["path"]: entry for entry in self._listing(folder)}.get(file)
        if listed is None or file in self.missing:
            return Reply(404, {"X-Error-Code": "EntryNotFound", **commit})
        if "lfs" not in listed:
            return Reply(
                200, {"ETag": f'"{listed["oid"]}"', **commit}, self._content(folder / file), file
            )
        cdn = f"http://localhost:{self._ports[1]}/{model}/blob/{commit['X-Repo-Commit']}/{file}"
        return Reply(
            302,
            {
                "Location": cdn,
                "X-Linked-Etag": f'"{listed["lfs"]["oid"]}"',
                "X-Linked-Size": str(listed["size"]),
                **commit,
            },
        )

    def _folder(self, model: str, revision: str) -> Path | None:
        """Return the folder of a revision, or of the commit that one names; None if there is
        none."""
        revisions = self.models[model]
        return revisions.get(revision) or {
            self.commit(model, name): folder for name, folder in revisions.items()
        }.get(revision)

    def _commit_of(self, model: str, folder: Path) -> str:
        return next(
            self.commit(model, revision)
            for revision, held in self.models[model].items()
            if held == folder
        )

    def _listing(self, folder: Path) -> list[dict]:
        """Return path, size and hashes of each file, as the Hub lists them."""
        files = []
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            size, sha1, sha256 = _size_and_hashes(path, path.stat().st_mtime_ns)
            large = (
                {"lfs": {"oid": sha256, "size": size, "pointerSize": 130}}
                if path.name.endswith(LARGE)
                else {}
            )
            files.append(
                {
                    "type": "file",
                    "path": str(path.relative_to(folder)),
                    "size": size,
                    "oid": sha1,
                    **large,
                }
            )
        return files

    def _content(self, path: Path) -> bytes:
        content = path.read_bytes()
        if path.name in self.spoiled:
            content = content[:-1] + bytes([content[-1] ^ 1])
        return content


def _json(value) -> Reply:
    return Reply(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


@lru_cache(maxsize=None)
def _size_and_hashes(path: Path, changed: int) -> tuple[int, str, str]:
    """Return size, git's SHA-1 and SHA-256 of a file that was last `changed` then."""
    content = path.read_bytes()
    return (
        len(content),
        hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
        hashlib.sha256(content).hexdigest(),
    )


class _Server(ThreadingHTTPServer):
    """The hub or its CDN on one port."""

    def __init__(self, hub: Hub, name: str, port: int):
        self.hub, self.name = hub, name
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP for a Hub: ranges, bodies and their breaking off."""

    def do_GET(self):
        """Answer with a body."""
        hub = self.server.hub
        request = Request(
            self.server.name,
            self.command,
            unquote(self.path.split("?")[0]),
            self.headers.get("Range"),
            self.headers.get("Authorization"),
        )
        hub.requests.append(request)
        if not hub.hangs_up:
            with suppress(ConnectionError):  # a client may go before its answer has come
                self._send(hub, request, self._part(hub.answer(request), request.range))

    do_HEAD = do_GET

    @staticmethod
    def _part(reply: Reply, asked: str | None) -> Reply:
        """Return what a Range header "bytes=N-" or "bytes=N-M" leaves of a reply."""
        if reply.status != 200 or not asked:
            return reply
        size, (first, last) = len(reply.body), re.fullmatch(r"bytes=(\d+)-(\d*)", asked).groups()
        start, end = int(first), min(int(last or size), size - 1)
        return reply._replace(
            status=206,
            body=reply.body[start : end + 1],
            headers={**reply.headers, "Content-Range": f"bytes {start}-{end}/{size}"},
        )

    def _send(self, hub: Hub, request: Request, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {
            "Content-Length": str(len(reply.body)),
            "Accept-Ranges": "bytes",
            **reply.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if request.method == "HEAD":
            return
        hub.bytes_sent += len(reply.body)
        cuts = hub.cuts.get(reply.file)
        self.wfile.write(reply.body[: cuts.pop(0)] if cuts else reply.body)

    def log_message(self, *_):
        """Print nothing."""


def write_headers(folder: Path, config: dict, tensors: dict[str, list[int]]) -> int:
    """Write a config and a safetensors file with the real shapes and no numbers; return the bytes
    that the numbers would take."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * prod(shape)]}
        at = header[name]["data_offsets"][1]
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + bytes(2 * FETCHED)
    )
    return at
