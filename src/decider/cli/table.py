"""Answers as a table with probability bars, for people. It refuses to know models and wire JSON.

Trap: option names are the caller's text; they are printed literally, never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from decider.errors import printable
from decider.questions.answered import Answers
from decider.questions.answers import Answer, ChoiceAnswer, ScoreAnswer, Selection
from decider.questions.request import Request

BAR_WIDTH = 24
MAX_OPTIONS_SHOWN = 12
FULL, EIGHTHS = "█", " ▏▎▍▌▋▊▉"


def bar(probability: float) -> str:
    """A bar of `BAR_WIDTH` cells at probability 1, in eighths of a cell."""
    eighths = round(probability * BAR_WIDTH * 8)
    return (FULL * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def verdict(answer: Answer) -> str:
    """The answer in a few words."""
    if isinstance(answer, ChoiceAnswer):
        return f"{answer.choice}  (confidence {answer.confidence:.3f})"
    if isinstance(answer, ScoreAnswer):
        return f"{answer.score:.2f} of 0–{len(answer.legend) - 1}  (confidence {answer.confidence:.3f})"
    return f"{'yes' if answer.noul > 0.5 else 'no'}  (P(yes) {answer.noul:.3f})"


def options(answer: Answer) -> Iterator[tuple[str, float]]:
    """Each option with its probability: a Choice's likeliest first, the others in their own order."""
    if isinstance(answer, ChoiceAnswer):
        yield from sorted(answer.probabilities.items(), key=lambda item: -item[1])
    elif isinstance(answer, ScoreAnswer):
        for level, (text, probability) in enumerate(zip(answer.legend, answer.probabilities, strict=True)):
            yield f"{level}: {text}", probability
    else:
        yield from (("no", 1 - answer.noul), ("yes", answer.noul))


def selected(selection: Selection) -> str:
    """The prediction set and whether to abstain, in a few words."""
    names = [("no", "yes")[name] if isinstance(name, bool) else str(name) for name in selection.prediction_set]
    rest = f" and {len(names) - MAX_OPTIONS_SHOWN} more" if len(names) > MAX_OPTIONS_SHOWN else ""
    shown = ", ".join(shortened(name) for name in names[:MAX_OPTIONS_SHOWN])
    return f"at error rate {selection.error_rate:g}: {shown}{rest}" + ("  (abstain)" if selection.abstain else "")


def shortened(name: str) -> str:
    """An option's name in at most 48 characters that a terminal can show."""
    return printable(name if len(name) <= 48 else name[:47] + "…")


def print_table(request: Request, answers: Answers) -> None:
    """Print one block a question on standard output, coloured where it is a terminal."""
    console = Console(highlight=False)
    for question_id, answer in answers.items():
        kind = request.questions[question_id].kind
        cut = "  (the state was cut)" if answer.truncated else ""
        console.print(
            Text(printable(question_id), style="bold"),
            Text(kind, style="dim"),
            Text(printable(verdict(answer)) + cut, style="bold cyan"),
        )
        table = Table.grid(padding=(0, 1))
        rows = list(options(answer))
        for name, probability in rows[:MAX_OPTIONS_SHOWN]:
            table.add_row("  ", Text(shortened(name)), Text(f"{probability:.3f}"), Text(bar(probability), style="cyan"))
        console.print(table)
        if len(rows) > MAX_OPTIONS_SHOWN:
            rest = sum(probability for _, probability in rows[MAX_OPTIONS_SHOWN:])
            console.print(Text(f"   … {len(rows) - MAX_OPTIONS_SHOWN} more options, {rest:.3f} together", style="dim"))
        if answer.selection is not None:
            console.print(Text(f"   {selected(answer.selection)}"))
    console.print(Text(f"{answers.model} read {answers.input_tokens} tokens", style="dim"))
