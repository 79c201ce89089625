"""Unit tests of the addresses that an HTTP target may reach, in every spelling."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.errors import InvalidInput, PrivateAddress
from harebell.domain.url_policy import check_url, is_allowed_address, literal_address

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.32.0.1",
        "192.169.0.1",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_public_address_is_allowed(address: str) -> None:
    assert is_allowed_address(ip_address(address), ())


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.1",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "100::1",
        "2001:db8::1",
        "2001::1",
        "3fff::1",
        "5f00::1",
        "64:ff9b:1::808:808",
        "::ffff:0:808:808",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:168.63.129.16",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
    ],
)
def test_special_address_is_not_allowed(address: str) -> None:
    assert not is_allowed_address(ip_address(address), ())


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "127.0.0.0/8"),
        ("10.1.2.3", "10.1.0.0/16"),
        ("::1", "::1/128"),
        ("fe80::1%eth0", "fe80::/10"),
        ("::ffff:10.1.2.3", "10.1.0.0/16"),
        ("64:ff9b::a01:203", "10.1.0.0/16"),
        ("64:ff9b::a01:203", "64:ff9b::/96"),
    ],
)
def test_address_of_an_allowed_network_is_allowed_in_every_form(address: str, network: str) -> None:
    assert is_allowed_address(ip_address(address), [ip_network(network)])


@pytest.mark.parametrize("address", ["10.2.0.0", "::1", "::ffff:10.2.0.0", "127.0.0.1"])
def test_address_outside_the_allowed_network_is_not_allowed(address: str) -> None:
    assert not is_allowed_address(ip_address(address), [ip_network("10.1.0.0/16")])


@pytest.mark.parametrize("address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "10.1.2.3"])
def test_address_of_a_denied_network_is_never_allowed(address: str) -> None:
    denied = [ip_network("8.8.0.0/16"), ip_network("10.1.2.0/24")]
    allowed = [ip_network("10.0.0.0/8")]

    assert is_allowed_address(ip_address(address), allowed)
    assert not is_allowed_address(ip_address(address), allowed, denied)


@given(st.ip_addresses(v=4))
def test_address_is_not_allowed_when_python_classifies_it_as_special(address: IPv4Address) -> None:
    assert not is_allowed_address(address, ()) or (address.is_global and not address.is_multicast)


@given(st.ip_addresses(v=4))
def test_embedded_address_has_the_result_of_the_plain_address(address: IPv4Address) -> None:
    mapped = IPv6Address(f"::ffff:{address}")

    assert is_allowed_address(mapped, ()) == is_allowed_address(address, ())


@pytest.mark.parametrize(
    ("host", "address"),
    [
        *((host, "127.0.0.1") for host in ("127.0.0.1", "127.1", "127.0.1", "127.0.0.1.")),
        *((host, "127.0.0.1") for host in ("2130706433", "0x7f000001", "0X7F.0.0.0x1", "0x7f.1")),
        *((host, "127.0.0.1") for host in ("0177.0.0.1", "017700000001", "0177.0x0.1")),
        *((host, "127.0.0.1") for host in ("①②⑦.0.0.1", "127。0。0。1")),
        *((host, "0.0.0.1") for host in ("1", "0x1", "00.00.00.01", "0x.1")),
        *((host, "10.0.0.8") for host in ("012.0.0.8", "10.8")),
        *((host, "::1") for host in ("[::1]", "[0:0:0:0:0:0:0:1]", "[::0001]")),
        *((host, "fe80::1") for host in ("[fe80::1%eth0]", "[fe80::1%25eth0]")),
        *((host, "::ffff:7f00:1") for host in ("[::ffff:127.0.0.1]", "[::FFFF:7F00:1]")),
        ("user:password@127.0.0.1:8080", "127.0.0.1"),
        ("public.example@127.0.0.1", "127.0.0.1"),
    ],
)
def test_literal_address_is_found_in_any_spelling(host: str, address: str) -> None:
    assert literal_address(f"http://{host}/path?x=[::2]#@1.1.1.1") == ip_address(address)


@given(st.ip_addresses())
def test_literal_address_is_found_when_python_parses_it(address: IPv4Address | IPv6Address) -> None:
    host = f"[{address}]" if isinstance(address, IPv6Address) else f"{address}"

    assert literal_address(f"http://{host}") == address


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1.example.com", "1.2.3.4.example", "0x7f.one", "x-1", "a_b"]
)
def test_host_name_has_no_literal_address(host: str) -> None:
    assert literal_address(f"http://{host}/") is None


@pytest.mark.parametrize(
    "url",
    [
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://1.2.3.256/",
        "http://08.1.1.1/",
        "http://4294967296/",
        "http://0xg.1/",
        "http://example.1/",
        "http://1..1/",
        "http://[v1.fe:80]/",
        "http://[::1",
        "http:///path",
        "http://host:99999/",
        "http://public.example\\@127.0.0.1/",
    ],
)
def test_url_is_invalid_when_parsers_may_read_different_hosts(url: str) -> None:
    with pytest.raises(InvalidInput) as error:
        check_url(url, ())

    assert error.value.code == "invalid_url"


@pytest.mark.parametrize(
    "host", ["127.1", "[::1]", "localhost", "LOCALHOST.", "api.localhost", "ⓛocalhost"]
)
def test_loopback_is_rejected_unless_it_is_allowed(host: str) -> None:
    with pytest.raises(PrivateAddress):
        check_url(f"http://{host}/", ())
    check_url(f"http://{host}/", LOOPBACK)


@pytest.mark.parametrize(
    "host", ["example.com", "localhost.example.com", "notlocalhost", "1.1.1.1"]
)
def test_host_name_is_accepted_before_its_resolution(host: str) -> None:
    check_url(f"https://{host}/", ())


@pytest.mark.parametrize("host", ["0", "10.1", "0xA9FEA9FE", "[fd00:ec2::254]", "[64:ff9b::a00:1]"])
def test_private_literal_is_rejected_when_only_loopback_is_allowed(host: str) -> None:
    with pytest.raises(PrivateAddress):
        check_url(f"http://{host}/", LOOPBACK)


def test_localhost_is_rejected_when_only_another_network_is_allowed() -> None:
    with pytest.raises(PrivateAddress):
        check_url("http://localhost/", [IPv4Network("10.0.0.0/8")])
