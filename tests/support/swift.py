"""OpenStack Swift with its S3 API (Debian's packages) on loopback ports: a real object store."""

from __future__ import annotations

import contextlib
import getpass
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import until

_STORED = ("account", "container", "object")
_STORAGE = """[DEFAULT]
devices = {folder}/devices
mount_check = false
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}
user = {user}
log_level = ERROR
log_address = {folder}/none
fallocate_reserve = {reserve}
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
allow_versions = true
"""
_PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}
user = {user}
log_level = ERROR
log_address = {folder}/none
[pipeline:main]
pipeline = catch_errors proxy-logging cache s3api tempauth copy slo dlo \
proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
error_suppression_interval = 0
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{nothing}
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
auth_pipeline_check = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
user_test_reader = reading
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
_RINGS = """
import sys
from swift.common.ring import RingBuilder
for path, port in (word.rsplit(":", 1) for word in sys.argv[1:]):
    ring = RingBuilder(4, 1, 0)
    where = {"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "d1"}
    ring.add_dev({**where, "weight": 1.0, "replication_ip": "127.0.0.1", "replication_port": 1})
    ring.rebalance()
    ring.get_ring().save(path + ".ring.gz")
"""
KEYS = ("test:tester", "testing")
READER = ("test:reader", "reading")  # an account without permissions


@dataclass
class Swift:
    """A running Swift; `url` is its S3 API."""

    folder: Path
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]]

    def store(self, bucket: str) -> str:
        """A folder in a bucket, as a PyArrow URL."""
        at = f"endpoint_override=127.0.0.1:{self.ports['proxy']}"
        return f"s3://{bucket}/profiles?scheme=http&{at}&region=us-east-1"

    def make_bucket(self, bucket: str) -> None:
        import pyarrow.fs

        files = pyarrow.fs.S3FileSystem(
            access_key=KEYS[0],
            secret_key=KEYS[1],
            endpoint_override=f"127.0.0.1:{self.ports['proxy']}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        files.create_dir(bucket)

    def start(self, kind: str, reserve: str = "0", wait: bool = True) -> None:
        """Start one of its servers; `reserve` is the disk space to keep free."""
        template = _PROXY if kind == "proxy" else _STORAGE
        configuration = self.folder / f"{kind}-server.conf"
        text = template.format(
            folder=self.folder,
            kind=kind,
            port=self.ports[kind],
            nothing=self.ports["nothing"],
            user=getpass.getuser(),
            reserve=reserve,
        )
        configuration.write_text(text)
        with (self.folder / f"{kind}.log").open("ab") as log:
            self.processes[kind] = subprocess.Popen(
                [f"/usr/bin/swift-{kind}-server", configuration],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            until(lambda: _answers(self.ports[kind]))

    def stop(self, kind: str) -> None:
        self.processes[kind].kill()
        self.processes.pop(kind).wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def running_swift(folder: Path) -> Iterator[Swift]:
    """All Swift servers, with their disk in `folder`; they end with the block."""
    with contextlib.ExitStack() as taken:
        names = ("account", "container", "object", "proxy", "nothing")
        free = [taken.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        ports = {name: one.getsockname()[1] for name, one in zip(names, free, strict=True)}
    (folder / "devices" / "d1").mkdir(parents=True)
    rings = [f"{folder}/{kind}:{ports[kind]}" for kind in _STORED]
    subprocess.run(["/usr/bin/python3", "-c", _RINGS, *rings], check=True, capture_output=True)
    found = Swift(folder, ports, {})
    try:
        for kind in (*_STORED, "proxy"):
            found.start(kind, wait=False)
        for kind in found.processes:
            until(lambda port=ports[kind]: _answers(port))
        yield found
    finally:
        for kind in list(found.processes):
            found.stop(kind)
