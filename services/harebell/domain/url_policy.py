"""The addresses that HTTP targets may reach.

Intake checks literal addresses, and the executor checks every address when it connects. Both parse
with yarl, as aiohttp does, because another parser could check another host.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

from yarl import URL

from harebell.contract.errors import InvalidInput, PrivateAddress

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# The special-purpose registries of IANA. `ipaddress.is_global` differs between Python versions.
_SPECIAL_V4: Final = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("168.63.129.16/32"),  # the metadata of Azure, which no registry lists
    IPv4Network("169.254.0.0/16"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.0.2.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("198.18.0.0/15"),
    IPv4Network("198.51.100.0/24"),
    IPv4Network("203.0.113.0/24"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("240.0.0.0/4"),
)
_UNICAST_V6: Final = IPv6Network("2000::/3")
_SPECIAL_V6: Final = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
_LOW_32_BITS: Final = 0xFFFF_FFFF
_EMBEDDING_V4: Final = (  # each network with the position of the IPv4 address, in bits
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

MAX_CACHED: Final = 4096  # hosts or addresses; few targets have many runs

_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
_MAX_PARTS: Final = 4
_MAX_OCTET: Final = 255


@dataclass(frozen=True, slots=True)
class Egress:
    """The networks of an installation: the allowed private ones, and the denied ones."""

    allowed: Sequence[Network] = ()
    denied: Sequence[Network] = ()


def is_allowed_address(
    address: Address, networks: Sequence[Network], denied: Sequence[Network] = ()
) -> bool:
    """Return whether the address is public, or within one of the allowed networks.

    No address within a denied network is allowed.
    """
    if denied and is_in_networks(address, denied):
        return False
    return is_in_networks(address, networks) or is_public(address)


def is_in_networks(address: Address, networks: Sequence[Network]) -> bool:
    """Return whether the address, or the IPv4 address within the address, is in a network."""
    if not networks:
        return False
    forms = (address, _embedded(address) or address)
    return any(form in network for form in forms for network in networks)


@lru_cache(MAX_CACHED)
def is_public(address: Address) -> bool:
    """Return whether the address belongs to no special-purpose network."""
    effective = _embedded(address) or address
    if isinstance(effective, IPv4Address):
        return not any(effective in special for special in _SPECIAL_V4)
    is_special = any(effective in special for special in _SPECIAL_V6)
    return effective in _UNICAST_V6 and not is_special


def literal_address(url: str | URL) -> Address | None:
    """Return the host of a URL if it is an address, in any spelling that a resolver accepts."""
    return _literal(_host(url))


def host_of(url: str | URL) -> str:
    """Return the host of a URL in lower case. An address has its usual form.

    Raise `InvalidInput` for a bad URL.
    """
    host = _host(url)
    address = _literal(host)
    return host if address is None else str(address)


def check_url(url: str | URL, networks: Sequence[Network], denied: Sequence[Network] = ()) -> None:
    """Check the literal address of a URL. The executor checks the addresses of names later.

    Raise `PrivateAddress` for an address that is not allowed, and `InvalidInput` for a bad URL.
    """
    host = _host(url)
    address = _literal(host)
    if address is not None and not is_allowed_address(address, networks, denied):
        reason = f"The address must be public or in an allowed network, not {address}."
        raise PrivateAddress(reason, field="url")
    is_local = host == "localhost" or host.endswith(".localhost")
    if is_local and not any(
        is_allowed_address(loopback, networks, denied) for loopback in _LOOPBACK
    ):
        reason = f"The host must be public or in an allowed network, not {host}."
        raise PrivateAddress(reason, field="url")


@lru_cache(MAX_CACHED)
def _embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address contains, or None."""
    for network, shift in _EMBEDDING_V4:
        if address in network:
            return IPv4Address(int(address) >> shift & _LOW_32_BITS)
    return None


def _host(url: str | URL) -> str:
    try:
        host = URL(url).host
    except ValueError as error:
        raise InvalidInput(
            f"The URL must be valid: {error}.", field="url", code="invalid_url"
        ) from None
    if not host:
        raise InvalidInput("The URL must have a host.", field="url", code="invalid_url")
    return host.rstrip(".").lower()


@lru_cache(MAX_CACHED)
def _literal(host: str) -> Address | None:
    """Return the address of a literal host, or None for a name.

    Raise `InvalidInput` for a host that some parsers read as an address and others as a name.
    """
    if ":" in host:
        return _ipv6(host.partition("%")[0])  # a zone index names a network interface
    if not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return None  # a top-level domain is never a number
    address = _ipv4(host.split("."))
    if address is None:
        reason = f"The host must be a name or an IPv4 address, not {host}."
        raise InvalidInput(reason, field="url", code="invalid_url")
    return address


def _ipv6(text: str) -> IPv6Address:
    try:
        return IPv6Address(text)
    except ValueError:
        reason = f"The host must be an IPv6 address, not {text}."
        raise InvalidInput(reason, field="url", code="invalid_url") from None


def _ipv4(parts: Sequence[str]) -> IPv4Address | None:
    """Parse like inet_aton(3): one to four numbers, of which the last fills the remaining bytes."""
    numbers = [_number(part) for part in parts]
    if None in numbers or len(numbers) > _MAX_PARTS:
        return None
    *octets, rest = (number for number in numbers if number is not None)
    bits = 8 * (_MAX_PARTS - len(octets))
    if rest >= 1 << bits or any(octet > _MAX_OCTET for octet in octets):
        return None
    return IPv4Address(int.from_bytes(bytes(octets)) << bits | rest)


def _number(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    try:
        return int(text, 8 if text.startswith("0") else 10)
    except ValueError:
        return None  # an octal number with the digit 8 or 9
