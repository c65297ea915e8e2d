"""What the daemons of a Ceph gateway are told: their settings, their keys, their ports."""

from __future__ import annotations

import base64
import secrets
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CAPS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
    "client.gateway": {"mon": "allow rw", "osd": "allow rwx"},
}
_PORTS = (20_000, 32_000)  # clients have those from 32,768 on (ip_local_port_range)
# Without tcp_nodelay a get of 112 kB takes 21 ms instead of 1.5 (Nagle against the delayed ACK of loopback); without
# the two keys of paxos each pool takes a second; radosgw-admin waits for the watch of a gateway that was killed.
# On a disk that calls itself rotational BlueStore keeps what is below 64 kB in memory until 64 writes have gathered.
# What is removed would take its room for two hours more.
_CONF = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}/0]
ms_bind_msgr1 = false
keyring = {folder}/keyring
run_dir = {folder}
crash_dir = {folder}
mon_cluster_log_file = {folder}/cluster.log
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
mon_data = {folder}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
osd_data = {folder}/osd
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
osd_memory_target = 1288490188
osd_heartbeat_interval = 1
osd_client_watch_timeout = 5
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 2
bluestore_default_buffered_read = {cached}
bluestore_prefer_deferred_size_hdd = 0
rgw_data = {folder}/gateway
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 5
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""
_DAEMON_CONF = """\
[{name}]
admin_socket = {folder}/{name}.asok
pid_file = {folder}/{name}.pid
log_file = {folder}/{name}.log
"""


def settings(folder: Path, daemons: Iterable[str], *, cached: bool, **values: object) -> str:
    """Return ``ceph.conf`` of the daemons with these Ceph names, and all in `folder`.

    `values`: ``fsid``; ``mon_port`` and ``port``, those of monitor and gateway.
    """
    common = _CONF.format(folder=folder, cached=str(cached).lower(), **values)
    return common + "".join(_DAEMON_CONF.format(folder=folder, name=name) for name in daemons)


def keyring() -> str:
    """Return new keys of all daemons, as ceph-authtool(8) would write them."""
    lines = []
    for name, caps in _CAPS.items():
        key = struct.pack("<HIIH", 1, int(time.time()), 0, 16) + secrets.token_bytes(16)  # AES; made when; 16 bytes
        lines += [f"[{name}]", f"\tkey = {base64.b64encode(key).decode()}"]
        lines += [f'\tcaps {daemon} = "{allowed}"' for daemon, allowed in caps.items()]
    return "\n".join(lines) + "\n"


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on now.

    They are none that the kernel gives to clients: one of these would take the port of a gateway that is away, or be
    connected to itself.
    """
    found: set[int] = set()
    while len(found) < count:
        port = _PORTS[0] + secrets.randbelow(_PORTS[1] - _PORTS[0])
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)
