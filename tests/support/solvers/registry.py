"""Which solver takes which family.

Trap: a family without a solver fails the tests by name; nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from solvers import attacked, daily, passages, reasoned, recorded, related, strings, told
from solvers.reading import Answer
from solvers.tabular import solve_record


def _record(state: Any, text: str, question: dict[str, Any]) -> Answer:
    return solve_record(state, text, question["type"])


SOLVERS: dict[str, Callable[[Any, str, dict[str, Any]], Answer]] = dict.fromkeys(
    (
        *("lookup", "lookup_position", "find_record", "lookup_wide", "lookup_64", "verify", "stated", "none_fits"),
        *("compare", "count", "dates"),
    ),
    _record,
) | {
    "days": told.solve_days,
    "sums": told.solve_sums,
    "levels": told.solve_levels,
    "tracking": told.solve_tracking,
    "rules": reasoned.solve_rules,
    "policy": reasoned.solve_policy,
    "deduction_made": reasoned.solve_deduction,
    "trend": reasoned.solve_trend,
    "order": reasoned.solve_order,
    "negation": reasoned.solve_negation,
    "extraction": strings.solve_extraction,
    "occurs": strings.solve_occurs,
    "same_record": strings.solve_same_record,
    "formats": strings.solve_formats,
    "follows": strings.solve_follows,
    "toolbox": strings.solve_toolbox,
    "routing": partial(daily.solve_class, "teams"),
    "ticket": daily.solve_ticket,
    "intent": partial(daily.solve_class, "intents"),
    "meetings": partial(daily.solve_class, "meetings"),
    "topic": partial(daily.solve_class, "topics"),
    "alerts": partial(daily.solve_class, "alerts"),
    "next_step": daily.solve_step,
    "grading": daily.solve_grading,
    "leads": daily.solve_leads,
    "guard": daily.solve_guard,
    "attacks": attacked.solve_attacks,
    "aspects": daily.solve_aspects,
    "entails": daily.solve_entails,
    "same_meaning": daily.solve_same,
    "summary_fits": daily.solve_summary,
    "answered": passages.solve_answered,
    "fields": recorded.solve_fields,
    "relations": related.solve_relations,
}
