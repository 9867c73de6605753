"""`decider bench engine`: how fast an executor is on this machine, and how far from the least time there could be.
`decider bench serve`: how fast a server answers, under a load that this sends.

It refuses to measure; `decider.bench` does. Trap: words are checked, and the places for figures, before a model is
loaded or a load is sent: a run takes minutes, and must not lose its figures to a typing error.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from decider.bench.names import EXECUTORS, SHAPES
from decider.cli import add_model_options, check_json_file, check_paths, say, settings_with_executor
from decider.errors import ConfigError, DeviceError

URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "TYPESAFE_API_KEY"
MOST = 1e6
"""What no number of a load reaches: seconds, clients, requests a second."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("bench", help="measure speed on this machine")
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    engine = subjects.add_parser(
        "engine",
        help="time an executor",
        description="Time an executor (the grid, unless --executor says otherwise) on fixed cases.",
    )
    add_model_options(engine, executors=EXECUTORS, executor="grid", several_devices=False)
    engine.add_argument("--shape", choices=SHAPES, help="random weights of a published shape, on CUDA")
    engine.add_argument("--compare", choices=EXECUTORS, help="time this executor too, and print the ratio")
    engine.add_argument(
        "--repeats", type=int, metavar="N", help="calls a median is made of (default: 20, fewer where they are slow)"
    )
    engine.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    engine.set_defaults(run=run)
    _add_serve(subjects)


def _add_serve(subjects: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = subjects.add_parser(
        "serve",
        help="put load on a server",
        description="Send requests to a running server. Latencies of --rate count from when a request was due.",
    )
    serve.add_argument("--url", default=URL, help=f"where the server is (default: {URL})")
    serve.add_argument(
        "--requests", type=Path, metavar="FILE", help="JSONL, a request a line, cycled (default: a small set)"
    )
    load = serve.add_mutually_exclusive_group()
    load.add_argument("--clients", type=int, metavar="N", help="closed loop: N clients, each waits (default: 8)")
    load.add_argument("--rate", type=float, metavar="R", help="open loop: R requests a second, answered or not")
    serve.add_argument(
        "--arrivals", choices=("poisson", "fixed"), help="with --rate: times at random, or even (default: poisson)"
    )
    serve.add_argument("--seconds", type=float, default=10, metavar="S", help="how long is measured (default: 10)")
    serve.add_argument("--warmup", type=float, default=1, metavar="S", help="load before that (default: 1)")
    serve.add_argument(
        "--timeout", type=float, default=10, metavar="S", help="when a request is given up (default: 10)"
    )
    serve.add_argument("--api-key", metavar="KEY", help=f"the server's key (default: {KEY_VARIABLE}, where it is set)")
    serve.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    serve.add_argument("--plot", type=Path, metavar="FILE", help="also draw the latencies, as SVG")
    serve.set_defaults(run=run_serve)


def run(parsed: argparse.Namespace) -> int:
    """Print the table. Raises what loading and warm-up raise, and ConfigError for words that do not fit."""
    _check(parsed)
    # Before torch is imported, so that a fault in the settings costs milliseconds.
    settings = settings_with_executor(parsed, executors=EXECUTORS, executor="grid")

    from decider.bench.cases import CARD_CASES, SMALL_CASES
    from decider.bench.run import bench
    from decider.bench.table import as_json, as_text
    from decider.run.device import pick_device

    if parsed.shape is None:
        if settings.sources["model"] == settings.sources["device"] == "default":
            settings = replace(settings, device="cpu")
            say("the default model is measured on the CPU; name a --device for another")
    elif settings.sources["model"] != "default":
        raise ConfigError(
            f"--shape {parsed.shape} excludes the model {settings.model!r:.60} ({settings.sources['model']}); unset one"
        )
    elif not (device := pick_device(settings.device).value).startswith("cuda"):
        raise DeviceError(f"--shape {parsed.shape} is work for a CUDA card and the device is {device}; use --model")
    report = bench(
        settings,
        SMALL_CASES if parsed.shape is None else CARD_CASES,
        shape=parsed.shape,
        compare=parsed.compare,
        repeats=parsed.repeats,
        say=say,
    )
    print(as_text(report))
    if parsed.json is not None:
        parsed.json.write_text(as_json(report) + "\n", encoding="utf-8")
    return 0


def run_serve(parsed: argparse.Namespace) -> int:
    """Print the table. Raises ConfigError for words that do not fit and a server that does not answer."""
    check_paths({"--requests": parsed.requests}, {"--json": parsed.json, "--plot": parsed.plot})

    from decider.bench.load import MOST_CONNECTIONS, Closed, LoadPlan, Open, probe, run_load
    from decider.bench.load_client import address_of, post
    from decider.bench.load_report import as_json, as_text, make_report
    from decider.bench.load_requests import bodies, built_in, read_requests

    for option, value, least in (
        ("--seconds", parsed.seconds, 0.1), ("--warmup", parsed.warmup, 0), ("--timeout", parsed.timeout, 0.001),
        ("--rate", parsed.rate, 0.01), ("--clients", parsed.clients, 1),
    ):  # fmt: skip
        # NaN fails the comparison.
        if value is not None and not least <= value < MOST:
            raise ConfigError(f"{option} is {value:g}; it must be at least {least:g} and below {MOST:g}")
    clients = 8 if parsed.clients is None else parsed.clients
    if clients > MOST_CONNECTIONS:
        raise ConfigError(f"--clients is {clients}; it must be at most {MOST_CONNECTIONS}, or use --rate")
    if parsed.arrivals is not None and parsed.rate is None:
        raise ConfigError(f"--arrivals {parsed.arrivals} is of an open loop; give --rate too")
    key = parsed.api_key or os.environ.get(KEY_VARIABLE)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError("the API key has characters that no header may have; give it in plain ASCII")
    if parsed.plot is not None:
        from decider.bench.load_plot import require_matplotlib

        require_matplotlib()
    requests = built_in() if parsed.requests is None else read_requests(parsed.requests)
    address = address_of(parsed.url)
    plan = LoadPlan(
        address=address,
        requests=tuple(post(address, "/v1/systemone", body, key) for body in bodies(requests)),
        arrivals=Closed(clients) if parsed.rate is None else Open(parsed.rate, parsed.arrivals != "fixed"),
        seconds=parsed.seconds,
        warmup_s=parsed.warmup,
        timeout_s=parsed.timeout,
    )
    model = probe(plan)
    say(f"{parsed.warmup + parsed.seconds:g} s of load on {address}")
    load = run_load(plan)
    report = make_report(load, plan, model)
    print(as_text(report))
    if parsed.json is not None:
        parsed.json.write_text(as_json(report) + "\n", encoding="utf-8")
    if parsed.plot is not None:
        from decider.bench.load_plot import plot

        plot(load, plan, parsed.plot)
    return 0


def _check(parsed: argparse.Namespace) -> None:
    if parsed.shape is not None and parsed.model is not None:
        raise ConfigError(f"--shape {parsed.shape} and --model {parsed.model!r:.60} exclude each other; give one")
    if parsed.repeats is not None and parsed.repeats < 1:
        raise ConfigError(f"--repeats is {parsed.repeats}; it must be at least 1")
    check_json_file(parsed.json)
