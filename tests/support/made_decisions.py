"""Random decisions of every type, and evaluations of them, for tests of reports.

Refuses models. Trap: names with markup in them are on purpose; no report may print them as markup.
"""

from __future__ import annotations

import numpy as np

from decider.decisions import CHOICE, NOUL, SCORE, Decisions, distributions
from decider.evaluate.facts import RunFacts
from decider.evaluate.result import Evaluation
from decider.evaluate.summary import summarise

SCRIPT = "<script>alert('&')</script>"
FACTS = RunFacts("tiny", "fp32", "packed", "plain", 1, 0, "made.jsonl", "ab" * 32, "0.1.0")
# Task, question, kind, options.
QUESTIONS = (
    (f"reviews {SCRIPT}", "tone", CHOICE, ("good", SCRIPT, "neither")),
    (f"reviews {SCRIPT}", "toxic", NOUL, ("no", "yes")),
    ("stars", "stars", SCORE, ("0", "1", "2", "3", "4")),
    ("intents", "intent", CHOICE, tuple(f"intent {n}" for n in range(20))),
)


def made_decisions(n_items: int, seed: int = 0) -> Decisions:
    """Every item is asked all of `QUESTIONS`; the logits are too sharp by half."""
    rng = np.random.default_rng(seed)
    asked = [(item, question) for item in range(n_items) for question in range(len(QUESTIONS))]
    n_options = np.array([len(QUESTIONS[question][3]) for _, question in asked], dtype=np.int64)
    logits = rng.normal(size=(len(asked), 20)) * 1.5
    logits[np.arange(20) >= n_options[:, None]] = -np.inf
    return Decisions(
        key=tuple(f"{item}/{QUESTIONS[question][1]}" for item, question in asked),
        task=tuple(QUESTIONS[question][0] for _, question in asked),
        kind=np.array([QUESTIONS[question][2] for _, question in asked], dtype=np.int64),
        n_options=n_options,
        gold=(logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(axis=1),
        logits=logits,
        isolated=np.zeros(len(asked), dtype=np.bool_),
        row_tokens=rng.integers(20, 600, len(asked)),
        option_lists=tuple(question[3] for question in QUESTIONS),
        option_list=np.array([question for _, question in asked], dtype=np.int64),
    )


def made_evaluation(n_items: int = 60, *, resamples: int = 100) -> Evaluation:
    """Of `made_decisions` at temperature 1."""
    decisions = made_decisions(n_items)
    summary = summarise(decisions, distributions(decisions, 1.0), resamples=resamples, seed=0)
    return Evaluation(
        facts=FACTS,
        calibration="none, as the logits are",
        resamples=resamples,
        seed=0,
        summary=summary,
        sensitivity=None,
        refused=((f"17 {SCRIPT}", f"the option {SCRIPT!r} is too long"),),
        warnings=(f"read {SCRIPT} with care",),
        decisions=decisions,
    )
