"""The environment's proxy is chosen as kubectl chooses it, by the rules of Go's httpproxy."""

import pytest

from plimsoll.kube.proxies import proxy_of
from plimsoll.part.errors import InputError

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_direct"),
    [
        ("https://api.example.com:6443", "", False),
        ("https://127.0.0.1:6443", "", True),
        ("https://127.9.9.9", "", True),
        ("https://[::1]:6443", "", True),
        ("https://localhost:6443", "", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8,.svc", True),
        ("https://10.1.2.3:6443", "192.168.0.0/16, 10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://[fd00::7]:6443", "fd00::/8", True),
        ("https://[fd00::7]:6443", "fd00::7", True),
        ("https://[fd00::7]:6443", "[fd00::7]:6443", True),
        ("https://11.1.2.3:6443", "10.0.0.0/8", False),
        ("https://api.example.com:6443", "example.com", True),
        ("https://example.com", "example.com", True),
        ("https://api.example.com:6443", ".example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", True),
        ("https://notexample.com", "example.com", False),
        ("https://API.example.com.", "api.EXAMPLE.com", True),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://api.example.com", "api.example.com:80", False),
        ("https://api.example.com", "*", True),
        ("https://api.example.com", ",,", False),
        ("https://api.example.com", "10.0.0.0/99", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_exceptions(server: str, no_proxy: str, is_direct: bool, name: str) -> None:  # noqa: FBT001 - a parameter
    """Networks, addresses, domains and ports of NO_PROXY, and the machine itself."""
    assert (proxy_of(server, "f", None, {**PROXY, name: no_proxy}) is None) == is_direct


def test_the_kubeconfigs_proxy_counts_before_everything() -> None:
    """Its `proxy-url` is used also for addresses that NO_PROXY or loopback except."""
    found = proxy_of("https://127.0.0.1", "f", "http://one:1", {**PROXY, "NO_PROXY": "*"})
    assert found is not None
    assert found.geturl() == "http://one:1"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:1"}, "http://a:1"),
        ({"HTTPS_PROXY": "", "https_proxy": "b:1"}, "http://b:1"),
        ({"HTTP_PROXY": "http://a:1", "ALL_PROXY": "http://a:1"}, None),
    ],
)
def test_variables(environment: dict[str, str], proxy: str | None) -> None:
    """The capitals come first, a scheme may be left out, and other variables are not for https."""
    found = proxy_of("https://api", "f", None, environment)
    assert (found.geturl() if found else None) == proxy


@pytest.mark.parametrize("proxy", ["socks5://u:secret@h:1", "socks5h://h:1", "ftp://h", "http://"])
def test_what_is_no_http_proxy_is_refused_by_its_variable(proxy: str) -> None:
    """The message names the variable, and no password."""
    with pytest.raises(InputError, match="HTTPS_PROXY") as caught:
        proxy_of("https://api", "f", None, {"HTTPS_PROXY": proxy})
    assert "secret" not in str(caught.value)
