"""Where the operator may connect to: one function opens every connection to Kafka, ZooKeeper and their metrics.

Connect strings and advertised listeners are other people's words.
Without a bound they would send the operator, with its rights and its place in the network, to any machine.
What counts is the address of the connection, whatever name led to it.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Judge = Callable[[str, str, int], None]
"""Raises `EndpointNotAllowedError` unless this host, at this address and port, may be connected to."""
_METADATA_SERVERS: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            "fd00:ec2::254",  # AWS, instance metadata
            "fd00:ec2::23",  # AWS, credentials of pods
            "fd20:ce::254",  # Google
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure
            "192.0.0.192",  # Oracle
        ),
    )
)
"""Those of clouds that are not link-local."""
_IN_LAST_BITS: Final = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "::ffff:0:0:0/96")))
"""Networks whose addresses end with the one of IPv4 that they carry (RFC 6052, and RFC 2765, section 2.1)."""
_LOCAL_NAT64: Final = ipaddress.ip_network("64:ff9b:1::/48")
"""Of a translator that somebody runs, with a length of prefix that only they know (RFC 8215)."""
_IPV4_BITS: Final = 0xFFFFFFFF


class EndpointNotAllowedError(OSError):
    """The operator may not connect to an address."""


def anywhere(host: str, address: str, port: int) -> None:
    """Let every address pass: the judge of programs that run in a pod of the migration's own namespace."""


def connect(host: str, address: str, port: int, seconds: float, judge: Judge) -> socket.socket:
    """Return a connection to an address of a host.

    Raises
    ------
    OSError
        Nobody answers there in time, or the judge refuses.
    """
    judge(host, address, port)
    connection = socket.create_connection((address, port), seconds)
    try:
        judge_peer(host, connection, judge)
    except OSError:
        connection.close()
        raise
    return connection


def connect_to_host(host: str, port: int, seconds: float, judge: Judge) -> socket.socket:
    """Return a connection to the first address of a host that answers.

    Raises
    ------
    OSError
        It has no address, none answers in time, or the judge refuses each.
    """
    failure = OSError(f"{host} has no address")
    for answer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return connect(host, str(answer[4][0]), port, seconds, judge)
        except OSError as error:
            failure = error
    raise failure


@contextmanager
def ended_after(connection: socket.socket, seconds: float) -> Iterator[None]:
    """End a connection whose use takes longer: a peer that sends a byte now and then meets no time limit of a socket.

    Raises
    ------
    TimeoutError
        It was ended.
    """
    over = threading.Event()

    def end() -> None:
        over.set()
        # Of a connection with TLS, too, without its farewell: another thread reads from it.
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise TimeoutError(f"no answer within {seconds:.0f} s") from error
        raise
    finally:
        timer.cancel()
    if over.is_set():
        raise TimeoutError(f"no answer within {seconds:.0f} s")


def judge_peer(host: str, connection: socket.socket, judge: Judge) -> None:
    """Judge the other end of an open connection.

    Raises
    ------
    OSError
        It is closed already, or the judge refuses.
    """
    peer = connection.getpeername()
    judge(host, str(peer[0]), int(peer[1]))


def plain_address(text: str) -> Address:
    """Return an address, the one of IPv4 where one of IPv6 only carries it (RFC 4291, 3056, 4380 and 6052).

    Raises
    ------
    ValueError
        It is none.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    carried = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if carried is None and any(address in network for network in _IN_LAST_BITS):
        carried = ipaddress.IPv4Address(int(address) & _IPV4_BITS)
    return address if carried is None else carried


def special(address: Address) -> str:
    """Return what an address is that is no place for a node of Kafka or ZooKeeper, ``""`` for all others."""
    if address.is_loopback or address.is_unspecified:
        return "it is the operator's own pod (loopback)"
    if address.is_link_local:
        return "it is link-local, where clouds and nodes give away credentials"
    if address in _METADATA_SERVERS:
        return "it is a cloud's metadata server"
    if address in _LOCAL_NAT64:
        return "it is one of a translator (64:ff9b:1::/48), which can carry any address of IPv4"
    if address.is_multicast:
        return "it is a multicast address"
    return ""
