"""What stands between a socket and a request: encodings, keys, error bodies, bodies as they come in.

No server runs here. Trap: a bomb must be refused by what comes out of it, so the tests bound the memory, too.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd
from starlette.types import Message

from decider.errors import EngineError, ModelError, OverloadError, QuestionError, SchemaError, TooLargeError
from decider.serve.auth import OPEN, Keys
from decider.serve.body import Held, Incoming
from decider.serve.config import key_digest
from decider.serve.encoding import MAX_MEMBERS, encoding_of, inflate
from decider.serve.refusal import ClientLeftError, Refusal, failure_of, is_expected

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
LIMIT = 100_000


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("size", [0, 1, 1000, LIMIT])
def test_a_body_comes_out_as_it_went_in(encoding: str, size: int) -> None:
    body = bytes(index % 251 for index in range(size))
    packed = PACKERS[encoding](body)
    assert inflate(packed, encoding, LIMIT) == body
    half = len(body) // 2
    assert inflate(PACKERS[encoding](body[:half]) + PACKERS[encoding](body[half:]), encoding, LIMIT) == body


def streamed_zstd(body: bytes, **options: int) -> bytes:
    """Without the size in the header, as a stream has it."""
    made = zstd.ZstdCompressor(
        options={getattr(zstd.CompressionParameter, name): value for name, value in options.items()}
    )
    return made.compress(body) + made.flush()


@pytest.mark.parametrize(("encoding", "pack"), [*PACKERS.items(), ("zstd", streamed_zstd)])
def test_a_bomb_is_refused_before_it_is_unpacked(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match=r"100,000.*max_decompressed_bytes.*maximum context length"):
            inflate(bomb, encoding, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 5 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("spoil", [lambda body: body[:-3], lambda body: body[:12], lambda _: b"{}", lambda _: b""])
def test_a_broken_body_is_a_400(encoding: str, spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Refusal, match=encoding) as caught:
        inflate(spoil(PACKERS[encoding](b"x" * 500)), encoding, LIMIT)
    assert caught.value.status == 400


@pytest.mark.parametrize("encoding", PACKERS)
def test_text_after_a_body_is_refused(encoding: str) -> None:
    with pytest.raises(Refusal, match="no valid"):
        inflate(PACKERS[encoding](b"{}") + b"more of something else", encoding, LIMIT)


@pytest.mark.parametrize("encoding", PACKERS)
def test_empty_members_without_end_are_refused(encoding: str) -> None:
    with pytest.raises(Refusal, match=f"more than {MAX_MEMBERS} members"):
        inflate(PACKERS[encoding](b"") * 100_000, encoding, LIMIT)


def test_a_zstd_window_that_no_body_needs_is_refused() -> None:
    assert inflate(streamed_zstd(b"x", window_log=23), "zstd", LIMIT) == b"x"
    with pytest.raises(Refusal, match="too much memory"):
        inflate(streamed_zstd(b"x", window_log=27), "zstd", LIMIT)


def test_a_plain_body_is_held_to_the_limit_of_its_json() -> None:
    assert inflate(b"x" * 10, "identity", 10) == b"x" * 10
    with pytest.raises(TooLargeError, match=r"more than 10 bytes, the limit \(max_decompressed_bytes\)"):
        inflate(b"x" * 11, "identity", 10)


def test_a_broken_body_is_told_no_advice_to_programmers() -> None:
    with pytest.raises(Refusal) as caught:
        inflate(b"nonsense", "zstd", LIMIT)
    assert "frame_buffer" not in caught.value.message


def test_encodings_by_name() -> None:
    assert [encoding_of(named) for named in ([], [""], ["GZIP"], ["x-gzip"], [" zstd "], ["identity"])] == [
        "identity", "identity", "gzip", "gzip", "zstd", "identity",
    ]  # fmt: skip
    for named in (["br"], ["deflate"], ["gzip, gzip"], ["gzip", "zstd"], ["x" * 5000]):
        with pytest.raises(Refusal) as caught:
            encoding_of(named)
        assert caught.value.status == 415
        assert len(caught.value.message) < 150


def test_without_keys_everyone_comes_in() -> None:
    for header in (None, b"", b"Bearer x", b"\xff"):
        OPEN.check(header)


@pytest.mark.parametrize("key", ["first-key-1", "other-key-22"])
@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER   "])
def test_any_of_the_keys_comes_in(key: str, scheme: bytes) -> None:
    Keys.of(map(key_digest, ("first-key-1", "other-key-22"))).check(scheme + key.encode())


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 403), (b"", 403), (b"Bearer", 403), (b"Bearer  ", 403), (b"Basic first-key-1", 403),
        (b"Bearer first-key-", 401), (b"Bearer first-key-11", 401), (b"Bearer \xff\x00", 401),
        (b"Bearer first-key-1 other-key-22", 401),
    ],
)  # fmt: skip
def test_others_do_not(header: bytes | None, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        Keys.of(map(key_digest, ("first-key-1", "other-key-22"))).check(header)
    assert caught.value.status == status


def test_every_key_is_compared_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    keys = Keys.of(map(key_digest, ("first-key-1", "other-key-22", "third-key-333")))
    for key in (b"first-key-1", b"other-key-22", b"third-key-333"):
        keys.check(b"Bearer " + key)
    assert len(compared) == 9


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (Refusal(415, "no"), 415, "no"),
        (QuestionError("no", loc=("questions", "q")), 400, "questions.q: no"),
        (TooLargeError("too many tokens", loc=("state",)), 413, "state: too many tokens"),
        (
            SchemaError("no \ud800", loc=("questions", "é", 2)),
            422,
            [{"loc": ["body", "questions", "é", 2], "msg": "no \ud800", "type": "value_error"}],
        ),
        (Refusal(401, "no"), 401, {"error_type": "authentication_error", "message": "no"}),
        (OverloadError("full", retry_after_s=0.25), 529, {"error_type": "overloaded_error", "message": "full"}),
        (EngineError("dead"), 503, {"error_type": "engine_error", "message": "dead"}),
    ],
)
def test_an_error_in_the_wires_form(error: Exception, status: int, detail: object) -> None:
    failure = failure_of(error, "req_1", overload_status=529)
    assert failure.status == status
    assert json.loads(failure.body()) == {"detail": detail}
    assert is_expected(error) == (status != 503)


def test_an_overload_says_when_to_come_back() -> None:
    for seconds, whole, fine in ((0.25, b"1", b"250"), (2.01, b"3", b"2010"), (0.0, b"1", b"1")):
        failure = failure_of(OverloadError("full", retry_after_s=seconds), "req_1", overload_status=429)
        assert (failure.status, dict(failure.headers)) == (429, {b"retry-after": whole, b"retry-after-ms": fine})


@pytest.mark.parametrize("error", [ValueError("secret"), ModelError("secret"), AssertionError("secret")])
def test_our_own_bug_is_told_by_its_request_id_alone(error: Exception) -> None:
    failure = failure_of(error, "req_7", overload_status=429)
    assert failure.status == 500
    assert "req_7" in failure.message
    assert b"secret" not in failure.body()
    assert not is_expected(error)


def test_clients_of_the_openai_shape_find_what_they_look_for() -> None:
    failure = failure_of(SchemaError("no", loc=("questions", 0)), "req_1", overload_status=429)
    error = json.loads(failure.body(openai=True))["error"]
    assert error == {"message": "no", "type": "invalid_request_error", "param": "questions.0", "code": None}


def incoming(*messages: Message | float, held: Held | None = None, **headers: Any) -> Incoming:
    """A request that says `messages`; a number waits so many seconds."""
    script = iter(messages)

    async def receive() -> Message:
        for message in script:
            if isinstance(message, (int, float)):
                await asyncio.sleep(message)
            else:
                return message
        await asyncio.sleep(60)
        raise AssertionError("nobody should wait so long")

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Incoming({"headers": pairs}, receive, Held(2**20) if held is None else held)


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Message = {"type": "http.disconnect"}
CHUNKED: dict[str, Any] = {"transfer_encoding": "chunked"}


def test_a_body_in_parts_is_put_together_and_counted() -> None:
    held = Held(2**20)
    one = incoming(part(b"ab", more=True), part(b"", more=True), part(b"c"), held=held, **CHUNKED)
    assert asyncio.run(one.read(10, 5)) == b"abc"
    assert held.n_bytes == 3
    one.hold(4)
    one.let_go()
    assert held.n_bytes == 0


def test_a_declared_length_is_refused_unread() -> None:
    with pytest.raises(TooLargeError, match=r"11 bytes.*10.*max_body_bytes"):
        asyncio.run(incoming(content_length="11").read(10, 5))
    for length in ("x", "-1", "1" * 30):
        with pytest.raises(Refusal, match="Content-Length"):
            asyncio.run(incoming(content_length=length).read(10, 5))


def test_chunks_are_refused_as_soon_as_they_are_too_many() -> None:
    with pytest.raises(TooLargeError, match="max_body_bytes"):
        asyncio.run(incoming(part(b"x" * 6, more=True), part(b"x" * 6, more=True), 60, **CHUNKED).read(10, 5))


def test_a_slow_sender_is_a_408() -> None:
    with pytest.raises(Refusal, match="read_timeout_s") as caught:
        asyncio.run(incoming(part(b"x", more=True), 60, **CHUNKED).read(10, 0.01))
    assert caught.value.status == 408


def test_a_half_sent_body_is_a_client_that_left() -> None:
    with pytest.raises(ClientLeftError):
        asyncio.run(incoming(part(b"x", more=True), GONE, content_length="5").read(10, 5))


def test_all_bodies_together_have_a_limit() -> None:
    held = Held(5)
    first = incoming(part(b"abc"), held=held, content_length="3")
    asyncio.run(first.read(10, 5))
    with pytest.raises(OverloadError, match="max_held_bytes") as caught:
        asyncio.run(incoming(part(b"abc"), held=held, content_length="3").read(10, 5))
    assert caught.value.retry_after_s > 0
    first.let_go()
    assert asyncio.run(incoming(part(b"abcde"), held=held, content_length="5").read(10, 5)) == b"abcde"


@pytest.mark.parametrize(
    ("messages", "headers", "expected"),
    [
        ((part(b"x", more=True), part(b"y")), CHUNKED, True),
        ((), {}, True),
        ((), {"content_length": str(10**9)}, False),
        ((), {"content_length": "5", "expect": "100-continue"}, False),
        ((part(b"x", more=True), 60), CHUNKED, False),
        ((part(b"x" * 2**25, more=True), part(b"x" * 2**25, more=True), part(b"x", more=True)), CHUNKED, False),
    ],
)
def test_the_rest_of_a_refused_body_is_dropped_where_that_is_cheap(
    messages: tuple[Message | float, ...], headers: dict[str, Any], *, expected: bool
) -> None:
    assert asyncio.run(incoming(*messages, **headers).discard(0.05)) is expected


def test_work_ends_when_its_client_leaves() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("work")

    async def run() -> None:
        with pytest.raises(ClientLeftError):
            await incoming(0.01, GONE).unless_gone(work())
        own = asyncio.current_task()
        assert own is not None
        assert not own.cancelling()

    asyncio.run(run())
    assert ended == ["work"]


def test_work_that_is_done_first_is_kept_and_nobody_watches_on() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    async def run() -> tuple[int, int]:
        found = await incoming(60, GONE).unless_gone(work())
        await asyncio.sleep(0)
        return found, len(asyncio.all_tasks())

    assert asyncio.run(run()) == (7, 1)


def test_a_server_that_stops_is_not_a_client_that_left() -> None:
    async def run() -> None:
        task = asyncio.create_task(incoming(60, GONE).unless_gone(asyncio.sleep(60)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", None),
        ("Application/JSON; charset=UTF-8", None),
        ('application/json; charset="utf-8"; x=y', None),
        ("application/json; charset=utf-16", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
        ("application/jsonx", 415),
        ("multipart/form-data; boundary=x", 400),
    ],
)
def test_content_types(content_type: str, status: int | None) -> None:
    one = incoming(content_type=content_type)
    if status is None:
        assert one.check_json() == "identity"
        return
    with pytest.raises(Refusal) as caught:
        one.check_json()
    assert caught.value.status == status


def test_zlib_streams_are_no_gzip() -> None:
    with pytest.raises(Refusal, match="no valid gzip"):
        inflate(zlib.compress(b"{}"), "gzip", LIMIT)
