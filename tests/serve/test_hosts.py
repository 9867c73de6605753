"""Which names a server answers to.

Refuses to start one. Trap: an IPv6 address has colons of its own, so the port is not what follows the first.
"""

from __future__ import annotations

import pytest

from decider.serve.config import ServeConfig, key_digest
from decider.serve.hosts import Hosts
from decider.serve.refusal import Refusal

OWN = ["localhost", "LocalHost:8000", "localhost.", "127.0.0.1:1", "[::1]", "[::1]:8000"]
OTHERS = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "192.168.0.1",
    "::1",
    "",
]


def status(config: ServeConfig, host: str) -> int:
    try:
        Hosts.of(config).check("1.1", [(b"accept", b"*/*"), (b"host", host.encode())])
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(("hosts", "expected"), [(OWN, 200), (OTHERS, 421)])
def test_without_keys_a_server_of_one_machine_answers_to_its_own_names(hosts: list[str], expected: int) -> None:
    assert {status(ServeConfig(), host) for host in hosts} == {expected}


@pytest.mark.parametrize(("own", "host"), [("127.8.8.8", "127.8.8.8:8000"), ("::1", "[::1]:8000")])
def test_the_address_it_listens_on_is_a_name_of_it(own: str, host: str) -> None:
    assert status(ServeConfig(host=own), host) == 200


def test_an_operator_may_add_names() -> None:
    config = ServeConfig(allowed_hosts="decider.internal, Box")
    assert [status(config, host) for host in ("decider.internal:80", "box", "localhost", "other")] == [
        200,
        200,
        200,
        421,
    ]


@pytest.mark.parametrize(
    "config", [ServeConfig(host="0.0.0.0"), ServeConfig(api_keys=frozenset([key_digest("a-long-key")]))]
)
def test_a_server_that_others_may_reach_or_that_asks_for_a_key_answers_to_any(config: ServeConfig) -> None:
    assert status(config, "evil.example") == 200
