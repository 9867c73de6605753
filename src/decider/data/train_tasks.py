"""Every labelled set of `decider data build train`, and which tasks are never trained.

It refuses to read anything. Trap: a set's licence must allow that weights trained on it are shipped; for evaluation
less is enough, so being a task of `decider data build eval` is no reason to be here.
"""

from __future__ import annotations

from dataclasses import dataclass

from decider.data import everyday, mail
from decider.data.items import Task
from decider.data.sources import EVALS, REVIEWS, SPAM
from decider.data.tasks import MIT, TASKS

CAP = 12_000
"""The most items of one set, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class TrainTask:
    """A labelled set, and how much of it is trained."""

    task: Task
    evaluated: bool
    """Whether `decider data build eval` has it too: then its test side is never trained."""
    n_train: int
    """Items to train on, in a whole build."""
    cap: int = CAP


NEVER = {
    "tool_choice": "held out to show what a model does with a task it never saw",
    "tool_routing": "held out, as tool_choice",
    "tool_fits": "held out, as tool_choice",
    "same_product": "held out, as tool_choice",
    "qualitative": "held out, as tool_choice",
    "answerable": "held out, as tool_choice",
    "prompt_injection": "held out, as tool_choice",
    "radio_licence": "its 584 items are all in the evaluation files",
    "likelihood": "of its 911 items 800 are in the evaluation files",
    "light_switch": "every text is near every other; it shows what programmatic training carries over to",
}
"""Tasks of `decider data build eval` that are not trained, and why."""


def _new(name: str, kinds: tuple[str, ...], options: str, licence: str, asks: str) -> Task:
    source, read = {
        "reviews": (REVIEWS, everyday.reviews),
        "spam": (SPAM, mail.spam),
        "log_severity": (EVALS, everyday.log_severity),
        "statement_kind": (EVALS, everyday.statement_kind),
        "exams": (EVALS, everyday.exams),
    }[name]
    return Task(name, kinds, options, source, licence, asks, (0, 0), read)


_OLD = {task.name: task for task in TASKS}
TRAINED = (
    TrainTask(_new("reviews", ("noul",), "yes, no", "CC BY 4.0", "whether a review is positive"), False, 2325),
    TrainTask(_new("spam", ("noul",), "yes, no", "PDDL, CC0", "whether an e-mail is spam"), False, 4225),
    TrainTask(_OLD["satire"], True, 12000),
    TrainTask(_new("log_severity", ("choice",), "3", MIT, "how severe a log message is"), False, 233),
    TrainTask(_new("exams", ("choice",), "3 to 5", "CC BY-SA 4.0", "a school exam question"), False, 4000, cap=4000),
    TrainTask(_OLD["occupation"], True, 533),
    TrainTask(_new("statement_kind", ("choice",), "9", MIT, "what kind of statement a sentence is"), False, 220),
    TrainTask(_OLD["deduction"], True, 89),
    TrainTask(_OLD["social"], True, 691),
    TrainTask(_OLD["word_feeling"], True, 1453),
    TrainTask(_OLD["word_sense"], True, 434),
)
