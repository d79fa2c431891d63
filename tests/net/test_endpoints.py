"""Addresses: which are this machine, which are the same server, and which no two libraries need read alike."""

from medtasks.net.servers import host, is_loopback, origin, readable

from ..tables import each_row


@each_row(
    "address",
    [
        "http://localhost/v1",
        "HTTP://LOCALHOST:80/v1",
        "https://127.0.0.1:8/v1",
        "http://127.9.8.7",
        "http://[::1]:8000/v1",
        "127.0.0.1:8000",
        "localhost",
        " http://127.0.0.1 ",
    ],
)
def test_this_machine(address):
    assert is_loopback(host(readable(address)))


@each_row(
    "address",
    [
        "http://localhost.evil.example",
        "http://127.0.0.1.nip.io",
        "http://evil.example/127.0.0.1",
        "http://10.0.0.5/v1",
        "http://0.0.0.0/v1",
        "http://[2001:db8::1]/v1",
        "http://[::]/v1",
        "http://2130706433/v1",
        "http://127.1",
        "http://127.0.0.1.",
        "api.vendor.invalid",
        "HTTPS://API.OPENAI.COM",
    ],
)
def test_other_machines(address):
    assert readable(address)
    assert not is_loopback(host(readable(address)))


@each_row(
    "address",
    [
        "",
        "http://",
        "//evil.example",
        "http://127.0.0.1@evil.example",
        "http://127.0.0.1:80@evil.example/",
        "http://evil.example\\@127.0.0.1/",
        "http://127.0.0.1%2eevil.example",
        "http://127.0.0.1%40evil.example",
        "http%3A//evil.example",
        "http://127.0.0.1/%2e%2e",
        "http://127.0.0.1?x=http://evil.example",
        "http://127.0.0.1#@evil.example",
        "http://127.0.0.1\t.evil.example",
        "http://127.0.0.1 .evil.example",
        "http://127.0.0.1:99999",
        "http://[::1%25eth0]/",
        "http://١٢٧.0.0.1",
        "http://[127.0.0.1.evil.example]",
        "ftp://127.0.0.1",
        "wss://127.0.0.1",
    ],
)
def test_what_cannot_be_trusted_to_mean_one_thing(address):
    assert readable(address) == ""


def test_origins():
    assert origin("https://API.openai.com/v1") == origin("https://api.openai.com:443") == "https://api.openai.com:443"
    assert origin("http://[::1]:8000/v1") == "http://[::1]:8000"
    different = {"http://a", "https://a", "http://a:81", "http://b", "http://a.b"}
    assert len({origin(url) for url in different}) == len(different)
