"""What the doctor says of models on other machines and data that must not go there."""

import pytest

from medtasks.audit.doctor.findings import State
from medtasks.audit.doctor.remote_models import remote_models
from medtasks.harness.model_places import PLACES

from .conftest import only

PRIVATE, PUBLIC = "multimedeval_mimic_cxr_report", "multimedeval_vqa_rad"
TRUSTED = "MEDTASKS_TRUSTED_MODEL"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No address and no proxy but those a test names."""
    told = {name for places in PLACES.values() for place in places for name in place.names if name.isupper()}
    for name in [*told, "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"]:
        monkeypatch.delenv(name, raising=False)


def test_tasks_whose_data_may_go_anywhere(scope, monkeypatch):
    monkeypatch.setenv("OPENAI_API_BASE", "http://api.vendor.invalid/v1")
    assert list(remote_models(scope(PUBLIC))) == []


def test_models_that_go_away_by_themselves(scope, everything):
    found = only(remote_models(scope(PRIVATE)))
    assert found.state is State.NOTE
    assert PRIVATE in found.found
    for told in ("claude to https://api.anthropic.com:443", "async_openai", "litellm to wherever its provider is"):
        assert told in found.found
    assert "srt_api" not in found.found
    assert TRUSTED in found.fix
    assert "and" in only(remote_models(everything)).found


def test_an_address_in_the_environment(scope, everything, monkeypatch):
    monkeypatch.setenv("OPENAI_API_BASE", "http://user:PLANTED@api.vendor.invalid/v1")
    assert "PLANTED" not in str(list(remote_models(scope(PRIVATE))))
    monkeypatch.setenv("OPENAI_API_BASE", "http://api.vendor.invalid/v1")
    told, _ = remote_models(scope(PRIVATE))
    assert told.state is State.WARNING
    assert "to http://api.vendor.invalid:80 (OPENAI_API_BASE), which is not this machine" in told.found
    assert "async_openai, litellm, openai and whisper_tt" in told.found
    assert f"{TRUSTED}=http://api.vendor.invalid:80" in told.fix
    assert {one.state for one in remote_models(everything)} == {State.NOTE}
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:8000/v1")
    assert "async_openai" not in only(remote_models(scope(PRIVATE))).found


def test_a_trusted_server(scope, monkeypatch):
    monkeypatch.setenv("OPENAI_API_BASE", "http://api.vendor.invalid/v1")
    monkeypatch.setenv(TRUSTED, "http://api.vendor.invalid")
    trusted, others = remote_models(scope(PRIVATE))
    assert (trusted.name, trusted.state) == (TRUSTED, State.NOTE)
    assert "http://api.vendor.invalid:80" in trusted.found
    assert PRIVATE in trusted.found
    assert "vendor" not in others.found


@pytest.mark.parametrize("malformed", ["yes", "api.vendor.invalid", "http://user:PLANTED@api.vendor.invalid"])
def test_a_trusted_server_that_is_none(scope, monkeypatch, malformed):
    monkeypatch.setenv(TRUSTED, malformed)
    found = only(remote_models(scope(PRIVATE)))
    assert (found.name, found.state) == (TRUSTED, State.PROBLEM)
    assert "http(s)://host" in found.fix
    assert "PLANTED" not in found.found + found.fix


def test_a_proxy_on_the_way_to_this_machine(scope, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    proxy, _ = remote_models(scope(PRIVATE))
    assert proxy.state is State.WARNING
    assert "the proxy that HTTP_PROXY names" in proxy.found
    assert "add 127.0.0.1 to NO_PROXY" in proxy.fix
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert "proxy" not in only(remote_models(scope(PRIVATE))).found
