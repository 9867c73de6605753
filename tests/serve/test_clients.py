"""`typesafe-sdk` as published, unchanged, pointed at a server of ours: answers, errors, retries, time-outs.

The brain is a fake one but for the last test. Trap: the client retries by itself, so a test that counts requests says
how many it allows.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typesafe_sdk as sdk
from fake_brain import FakeBrain
from serving import Served, served, until

from decider import Decider
from decider.errors import EngineError
from decider.serve.brain import DeciderBrain
from decider.serve.config import ServeConfig, key_digest
from decider.tokens.rows import Row

QUESTIONS: dict[str, sdk.Question] = {
    "billing \U0001f4b8": sdk.Noul(instructions="Is this about billing?", criteria={"true": "money", "false": None}),
    "tone": sdk.Choice(instructions="What is the tone?", criteria={"calm": None, "angry": {"shouts": True}, "ä": "x"}),
    "urgency": sdk.Score(instructions="How urgent?", criteria=["can wait", {"level": "soon"}, ["now"]]),
}
LONG = "I was charged twice. Please help. " * 200
NO_RETRY = sdk.RetryPolicy(max_retries=0)
QUICK = sdk.RetryPolicy(max_retries=2, backoff_initial=0.01, respect_retry_after=False)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as running:
        yield running
        assert running.idle()


def client_of(server: Served, key: str = "ignored", **options: object) -> sdk.TypeSafeClient:
    return sdk.TypeSafeClient(api_key=key, base_url=server.url, **options)  # type: ignore[arg-type]


def check(response: sdk.SystemOneResponse, server: Served) -> None:
    assert response.model == server.brain.name
    assert list(response.answers) == list(QUESTIONS)
    assert 0 <= response.nouls["billing \U0001f4b8"].noul <= 1
    tone = response.choices["tone"]
    assert list(tone.probabilities) == ["calm", "angry", "ä"]
    assert sum(tone.probabilities.values()) == pytest.approx(1, abs=1e-9)
    assert tone.choice == max(tone.probabilities, key=tone.probabilities.__getitem__)
    p = sorted(tone.probabilities.values())
    assert tone.confidence == pytest.approx((p[-1] - 1 / 3) / (2 / 3), abs=1e-9)
    urgency = response.scores["urgency"]
    assert urgency.legend == {0: "can wait", 1: {"level": "soon"}, 2: ["now"]}
    assert urgency.score == pytest.approx(
        sum(level * share for level, share in urgency.probabilities.items()), abs=1e-9
    )
    assert response.usage.input_tokens
    assert response.usage.output_tokens == 0


@pytest.mark.parametrize("compression", ["zstd", False])
@pytest.mark.parametrize("state", ["short", LONG, {"message": LONG, "n": [1, None]}, [LONG, 2.5]])
def test_all_types(server: Served, state: sdk.Content, compression: object) -> None:
    with client_of(server, compression=compression) as client:
        check(client.system_one(state, QUESTIONS), server)


def test_the_async_client(server: Served) -> None:
    async def ask() -> list[sdk.SystemOneResponse]:
        async with sdk.AsyncTypeSafeClient(api_key="ignored", base_url=server.url) as client:
            listed = await client.models.list()
            assert [model.name for model in listed.models] == [server.brain.name]
            return await asyncio.gather(*(client.system_one(f"{LONG} {n}", QUESTIONS) for n in range(8)))

    for response in asyncio.run(ask()):
        check(response, server)


def test_models_and_the_alias(server: Served) -> None:
    with client_of(server) as client:
        (model,) = client.models.list().models
        assert all((model.name, model.description, model.release_date))
        response = client.system_one("x", QUESTIONS, model=model.name)
        assert response.answers == client.system_one("x", QUESTIONS, model="jev-latest").answers
        with pytest.raises(sdk.TypeSafeBadRequestError, match="unknown model 'jev-9'") as caught:
            client.system_one("x", QUESTIONS, model="jev-9")
        assert caught.value.request_id


def test_faults_are_its_own_exceptions(server: Served) -> None:
    with client_of(server) as client:
        with pytest.raises(sdk.TypeSafeUnprocessableEntityError, match=r"questions\.box\.type: unknown question type"):
            client.system_one("x", {"box": sdk.Box(instructions="the dog")})
        with pytest.raises(sdk.TypeSafeBadRequestError, match="options per choice"):
            client.system_one("x", {"q": sdk.Choice(criteria={str(n): None for n in range(256)})})
        with pytest.raises(sdk.TypeSafeBadRequestError, match="2 to 10"):
            client.system_one("x", {"q": sdk.Score(criteria=["one"])})
        with pytest.raises(sdk.TypeSafeAPIError, match="maximum context length") as caught:
            client.system_one("x" * 3_000_000, QUESTIONS)
        assert caught.value.status == 413


PNG = b"\x89PNG\r\n\x1a\n" + bytes(200_000)


def test_images_are_refused_clearly(server: Served, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(PNG)
    with client_of(server) as client:
        with pytest.raises(sdk.TypeSafeBadRequestError, match="text-only"):
            client.system_one(sdk.Image(picture), QUESTIONS)
        inline = {"a": {"type": "image", "format": "png", "data_base64": "AAAA"}}
        with pytest.raises(sdk.TypeSafeBadRequestError, match="text-only"):
            client.system_one("x", QUESTIONS, extra_body={"assets": inline})
        check(client.system_one("x", QUESTIONS), server)


def test_keys() -> None:
    keys = frozenset(map(key_digest, ("the-right-key", "another-right-key")))
    with served(config=ServeConfig(api_keys=keys)) as server:
        for key in ("the-right-key", "another-right-key"):
            with client_of(server, key) as client:
                check(client.system_one("x", QUESTIONS), server)
        with client_of(server, "a-wrong-key") as client:
            with pytest.raises(sdk.TypeSafeAuthenticationError, match="not one of this server's"):
                client.system_one("x", QUESTIONS)
            with pytest.raises(sdk.TypeSafeAuthenticationError):
                client.models.list()


class Failing:
    """Fails the first `times` packs."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, _: Sequence[Row]) -> BaseException | None:
        self.left -= 1
        return EngineError("a fault that passes") if self.left >= 0 else None


def test_a_fault_of_the_engine_is_retried() -> None:
    with served(FakeBrain(fault=Failing(2))) as server, client_of(server, retry=QUICK) as client:
        check(client.system_one("x", QUESTIONS), server)
    assert [json.loads(line)["status"] for line in server.lines.getvalue().splitlines()] == [503, 503, 200]


def test_a_fault_that_stays_is_its_server_error() -> None:
    with served(FakeBrain(fault=Failing(9))) as server, client_of(server, retry=QUICK) as client:
        with pytest.raises(sdk.TypeSafeInternalServerError, match="a fault that passes") as caught:
            client.system_one("x", QUESTIONS)
        assert caught.value.status == 503


@pytest.mark.parametrize("status", [429, 529])
def test_overload_says_when_and_is_retried(status: int) -> None:
    """One request holds the engine, so that a second has no room; it waits as long as it is told, and is answered."""
    hold = threading.Event()
    config = ServeConfig(max_queued_requests=1, overload_status=status)
    try:
        with served(FakeBrain(hold=hold), config) as server, client_of(server, retry=NO_RETRY) as client:
            first = threading.Thread(
                target=server.post, args=("/decide", {"context": "s", "schema": {"q": {"type": "bool"}}})
            )
            first.start()
            until(lambda: server.on_loop(lambda: server.scheduler.load).requests == 1)
            kind = sdk.TypeSafeRateLimitError if status == 429 else sdk.TypeSafeInternalServerError
            with pytest.raises(kind) as caught:
                client.system_one("x", QUESTIONS)
            assert caught.value.status == status
            assert float(caught.value.headers["retry-after-ms"]) > 0
            if isinstance(caught.value, sdk.TypeSafeRateLimitError):
                assert caught.value.retry_after_ms == float(caught.value.headers["retry-after-ms"])
            threading.Timer(0.1, hold.set).start()
            start = time.monotonic()
            check(client.system_one("x", QUESTIONS, retry=sdk.RetryPolicy()), server)
            assert time.monotonic() - start < 5
            first.join()
    finally:
        hold.set()


def test_a_client_that_times_out_has_its_work_dropped() -> None:
    hold = threading.Event()
    try:
        with served(FakeBrain(hold=hold)) as server:
            with client_of(server, retry=NO_RETRY, timeout=0.2) as client:
                with pytest.raises(sdk.TypeSafeAPITimeoutError):
                    client.system_one("x", QUESTIONS)
                until(lambda: server.on_loop(lambda: server.scheduler.load).requests == 0)
            hold.set()
            until(server.idle)
            assert server.on_loop(lambda: server.scheduler.load).dropped == 1
            with client_of(server) as client:
                check(client.system_one("x", QUESTIONS), server)
    finally:
        hold.set()


def test_an_async_client_that_is_cancelled_has_its_work_dropped() -> None:
    hold = threading.Event()

    async def leave(server: Served) -> None:
        async with sdk.AsyncTypeSafeClient(api_key="ignored", base_url=server.url) as client:
            asked = [asyncio.create_task(client.system_one(f"{n}", QUESTIONS)) for n in range(3)]
            while server.on_loop(lambda: server.scheduler.load).requests < 3:
                await asyncio.sleep(0.01)
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    try:
        with served(FakeBrain(hold=hold)) as server:
            asyncio.run(leave(server))
            until(lambda: server.on_loop(lambda: server.scheduler.load).requests == 0)
            hold.set()
            until(server.idle)
    finally:
        hold.set()


@pytest.mark.embedded
def test_the_embedded_model_answers_the_client(embedded_folder: Path) -> None:
    """What HTTP says is what Python says, to the last bit, and the client reads it."""
    assert embedded_folder.is_dir()
    brain = DeciderBrain(Decider(device="cpu", dtype="float32", say=lambda _: None))
    state = "I was charged twice for my subscription and nobody answers! Give me my money back NOW!"
    questions: dict[str, sdk.Question] = {
        "billing": sdk.Noul(instructions="Is this about a payment?"),
        "topic": sdk.Choice(instructions="What is it about?", criteria={"a payment": None, "the weather": None}),
        "anger": sdk.Score(instructions="How angry?", criteria=["calm", "annoyed", "furious"]),
    }
    wire = {
        "state": state,
        "model": "jev-latest",
        "questions": {
            "billing": {"type": "noul", "instructions": "Is this about a payment?"},
            "topic": {
                "type": "choice",
                "instructions": "What is it about?",
                "criteria": {"a payment": None, "the weather": None},
            },
            "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]},
        },
    }
    with served(brain) as server:
        python = brain.decider.system_one(wire)
        with client_of(server) as client:
            response = client.system_one(state, questions)
        assert response.choices["topic"].probabilities == python["answers"]["topic"]["probabilities"]  # type: ignore[index]
        assert response.model == brain.name
        assert server.post("/v1/systemone", wire).json == python
