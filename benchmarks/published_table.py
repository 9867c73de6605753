"""The table of `beside_published.py`: two parts, the aims, and what came of them, as Markdown and as JSON.

It refuses to run anything. Trap: a figure that was not measured is null in the JSON and a dash in the table, and its
reason stands below; it is never left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from published_parts import Part

SAME = ("machine", "torch", "transformers")
"""Facts in which two parts must agree, or a ratio compares machines."""
COLUMNS = (
    *("row", "ours, call", "replay", "GEMMs alone", "share", "aim", "met"),
    *("published, full rows", "state shared", "replay", "ratio", "of replays"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One row on both sides; milliseconds. The JSON has these names."""

    row: str
    ours_ms: float | None
    """The whole call."""
    ours_replay_ms: float | None
    products_ms: float | None
    """Our matrix products alone, at the padded tokens of the call."""
    products_share: float | None
    """Of `ours_ms`."""
    aim_ms: float | None
    aim_of: str | None
    """`call` or `replay`; null where nothing is aimed at."""
    met: bool | None
    published_rows_ms: float | None
    """The published engine, every question as a full row."""
    published_shared_ms: float | None
    """The same with the state run once; null without a state."""
    published_replay_ms: float | None
    """Its one graph alone; null where there is more than one."""
    ratio: float | None
    """The better of its calls over ours: above 1 ours is faster."""
    replay_ratio: float | None


def lines_of(ours: Part, published: Part, aims: Mapping[str, Any]) -> list[Line]:
    """A line for every row that either part was asked for, ours first."""
    return [_line(name, ours, published, aims) for name in dict.fromkeys((*ours.names, *published.names))]


def _line(name: str, ours: Part, published: Part, aims: Mapping[str, Any]) -> Line:
    own, other = ours.rows.get(name, {}), published.rows.get(name, {})
    aim = aims.get(ours.shape, {}).get(name, {})
    aim_ms = aim.get("ms" if ours.precision == "bf16" else "fp8_ms")
    aim_of = None if aim_ms is None else aim.get("of", "call")
    aimed_at = own.get("replay_ms" if aim_of == "replay" else "ms")
    calls = [ms for ms in (other.get("rows_ms"), other.get("shared_ms")) if ms is not None]
    return Line(
        row=name,
        ours_ms=own.get("ms"),
        ours_replay_ms=own.get("replay_ms"),
        products_ms=own.get("products_ms"),
        products_share=own.get("products_share"),
        aim_ms=aim_ms,
        aim_of=aim_of,
        met=None if aim_ms is None or aimed_at is None else aimed_at <= aim_ms,
        published_rows_ms=other.get("rows_ms"),
        published_shared_ms=other.get("shared_ms"),
        published_replay_ms=other.get("replay_ms"),
        ratio=_over(min(calls, default=None), own.get("ms")),
        replay_ratio=_over(other.get("replay_ms"), own.get("replay_ms")),
    )


def notes_of(ours: Part, published: Part, aims: Mapping[str, Any]) -> list[str]:
    """Start-up, memory, whatever makes the ratios doubtful, and each row that has no figures, with the reason."""
    start, padded = aims["start"], aims["published"]["padded_tokens"]
    graphs = published.facts.get("graphs", "no")
    notes = [
        f"start-up: ours {_s(ours.facts.get('warmup_s'))} (aim {start['warm_s']} s warm, {start['cold_s']} s cold), "
        f"published {_s(published.facts.get('warmup_s'))} for {graphs} graphs",
        f"memory of graphs: ours {_gb(ours.facts.get('pool_bytes'))} (aim {start['pool_gb']} GB), published "
        f"{_gb(published.facts.get('pool_bytes'))} for {graphs} graphs",
    ]
    for name in SAME:
        own, other = ours.facts.get(name), published.facts.get(name)
        if own != other:
            notes.append(f"not comparable: {name} is {own} for ours and {other} for the published engine")
    for name, figures in published.rows.items():
        if (found := figures.get("padded_tokens")) is not None and found != padded:
            notes.append(
                f"published, {name}: {found:,} padded tokens, not the {padded:,} it takes with all of its shapes"
            )
    for part in (ours, published):
        notes += [f"{part.side}, {name}: no figure: {why}" for name, why in part.failed.items()]
    return notes


def as_json(ours: Part, published: Part, aims: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is known of both parts, beside the lines."""
    return {
        "shape": ours.shape,
        "precision": ours.precision,
        "rows": [asdict(line) for line in lines_of(ours, published, aims)],
        "notes": notes_of(ours, published, aims),
        "ours": asdict(ours),
        "published": asdict(published),
    }


def as_markdown(ours: Part, published: Part, aims: Mapping[str, Any]) -> str:
    """A heading, the facts, the table, the notes."""
    lines = [
        f"## {ours.shape}, random weights: ours ({ours.precision}) beside the published engine ({published.precision})",
        "",
        *(fact for part in (ours, published) for fact in _facts(part)),
        "",
        "Milliseconds, medians. The share is that of the matrix products in our call. An aim is of our call, or of our",
        "replay where it says so. The ratio is the published engine's better call over ours: above 1 ours is faster.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    lines += [_markdown(line) for line in lines_of(ours, published, aims)]
    lines += ["", *(f"- {note}" for note in notes_of(ours, published, aims))]
    return "\n".join(lines)


def _markdown(line: Line) -> str:
    aim = "-" if line.aim_ms is None else f"{line.aim_ms:g}{' replay' if line.aim_of == 'replay' else ''}"
    cells = [
        line.row,
        _ms(line.ours_ms),
        _ms(line.ours_replay_ms),
        _ms(line.products_ms),
        "-" if line.products_share is None else f"{line.products_share:.0%}",
        aim,
        "-" if line.met is None else "yes" if line.met else "no",
        _ms(line.published_rows_ms),
        _ms(line.published_shared_ms),
        _ms(line.published_replay_ms),
        _times(line.ratio),
        _times(line.replay_ratio),
    ]
    return f"| {' | '.join(cells)} |"


def _facts(part: Part) -> list[str]:
    told = {**part.facts, "pool_bytes": None, "warmup_s": None, "describe": None}
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in told.items() if value is not None)
    return [f"- {part.side}: {facts or 'nothing was told'}; {part.date}, {part.wall_s:g} s; `{part.command}`"]


def _fact(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _over(other: float | None, own: float | None) -> float | None:
    return None if other is None or own is None else other / own


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3g}" if ms < 100 else f"{ms:.0f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _gb(n_bytes: float | None) -> str:
    return "-" if n_bytes is None else f"{n_bytes / 1e9:.2f} GB"
