"""Every family, in the order it is written, and how many items it gives.

It refuses to write files. Trap: a held-out file of a family comes from another stream of random numbers than its
training items, and not from a share of them; two seeds train on different items and are evaluated on the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from decider.data.families import amounts, arithmetic, extraction, formats, logic, lookup, rules, toolbox, tracking
from decider.data.families.by_hand import asking
from decider.data.families.daily import answered, attacks, facts, fields, opinions, relations, remarks, sorting
from decider.data.families.making import Family
from decider.data.families.uncertain import chance, unsaid
from decider.data.items import Item

CHOICE, NOUL, SCORE = ("choice",), ("noul",), ("score",)
BOTH, ALL = ("choice", "noul"), ("choice", "score", "noul")
HELD_OUT, STOPPING = "held out", "stopping"
"""The streams of the held-out files and, of families that hold out phrases, of what stops training early. Such families
use the phrases held out in these two, and in no other stream."""


def _daily(
    name: str,
    kinds: tuple[str, ...],
    options: str,
    asks: str,
    share: int,
    make: Callable[[random.Random, bool], Item],
    *,
    by_hand: bool = False,
    by_lot: bool = False,
) -> Family:
    sides = (lambda rng: make(rng, False), lambda rng: make(rng, True))
    return Family(name, kinds, options, asks, share, *sides, by_hand=by_hand, by_lot=by_lot)


FAMILIES = (
    Family("lookup", CHOICE, "2 to 13", "a field of a record named by its key", 4000, lookup.lookup),
    Family(
        "lookup_position", CHOICE, "2 to 13", "a field of the first, third, last record", 4000, lookup.lookup_position
    ),
    Family("find_record", CHOICE, "2 to 13", "the record with a value, or with two", 4000, lookup.find_record),
    Family("lookup_wide", CHOICE, "9 to 255", "look-up among many options", 6000, lookup.lookup_wide),
    Family("lookup_64", CHOICE, "64", "look-up among 64 options", 3000, lookup.lookup_64),
    Family("verify", NOUL, "yes, no", "whether a record has a value, or has not", 4000, lookup.verify),
    Family("stated", BOTH, "2 to 8; yes, no", "whether a fact is there at all", 6500, lookup.stated),
    Family("none_fits", CHOICE, "2 to 13", "look-up where no option may be right", 4500, lookup.none_fits),
    Family(
        "compare", BOTH, "2 to 11; yes, no", "most, least, second most; more and less; limits", 10000, amounts.compare
    ),
    Family("count", ("choice", "score"), "2 to 9; 7", "how many records there are, have, exceed", 8000, amounts.count),
    Family("dates", BOTH, "2 to 13; yes, no", "earliest, before, month, year, how it is written", 7500, amounts.dates),
    Family("days", BOTH, "2 to 9; yes, no", "spans of days, and whether a time limit is kept", 9000, arithmetic.days),
    Family("sums", BOTH, "2 to 9; yes, no", "small sums, differences, products", 11000, arithmetic.sums),
    Family("levels", ALL, "2 to 5", "the level that a number falls into", 4000, amounts.levels),
    Family("rules", BOTH, "2 to 8; yes, no", "the first of several rules that holds", 12000, rules.rules),
    Family("policy", BOTH, "2; yes, no", "a rule, an exception, an exception to it", 6000, rules.policy),
    Family(
        "tracking",
        BOTH,
        "2 to 11; yes, no",
        "things moved, carried, counted, switched, swapped",
        13000,
        tracking.tracking,
    ),
    Family("deduction_made", BOTH, "3; yes, no", "what follows from made-up kinds", 9000, logic.deduction),
    Family("trend", BOTH, "2 or 3; yes, no", "what rises when another thing falls", 7000, logic.trend),
    Family("order", BOTH, "2 to 7; yes, no", "who is more than whom, at several removes", 7000, logic.order),
    Family("negation", BOTH, "2 to 6; yes, no", "who has what, and who has not", 4000, logic.negation),
    Family("extraction", CHOICE, "2 to 13", "the right string among near-copies", 4000, extraction.extraction),
    Family("occurs", BOTH, "2 to 13; yes, no", "which words stand in a list, and where", 4000, extraction.occurs),
    Family(
        "same_record",
        BOTH,
        "2 to 6; yes, no",
        "whether two records agree, spelling aside",
        4000,
        extraction.same_record,
    ),
    Family("formats", BOTH, "2 to 13; yes, no", "which string has a format", 4000, formats.formats),
    Family(
        "follows",
        ALL,
        "2 to 7; 2 to 4; yes, no",
        "whether a reply keeps to demands on its form",
        8000,
        formats.follows,
    ),
    Family("toolbox", BOTH, "2 to 17; yes, no", "which made-up tool serves a request, if any", 4000, toolbox.toolbox),
    _daily("routing", BOTH, "2 to 13; yes, no", "which team a message to a company is for", 12000, sorting.routing),
    _daily("ticket", ALL, "2 to 13; 3 or 4; yes, no", "what a ticket says, wants and weighs", 13000, remarks.ticket),
    _daily("intent", BOTH, "2 to 13; yes, no", "what somebody wants", 14000, sorting.intent),
    _daily("meetings", BOTH, "2 to 13; yes, no", "what somebody writes about an appointment", 6000, sorting.meetings),
    _daily("topic", BOTH, "2 to 13; yes, no", "what a short text is about", 10000, sorting.topic),
    _daily("alerts", BOTH, "2 to 13; yes, no", "what is wrong, by a line of a log", 10000, sorting.alerts),
    _daily("next_step", BOTH, "2 to 13; yes, no", "an agent's next step; goal reached?", 13000, sorting.next_step),
    _daily("grading", SCORE, "2 to 7", "which level of one of 46 scales a text has", 14000, remarks.grading),
    _daily("leads", NOUL, "yes, no", "money, say, time and size of a prospect", 9000, remarks.leads),
    _daily("guard", BOTH, "2 to 13; yes, no", "private data, money, insults, off topic", 10000, remarks.guard),
    _daily(
        "attacks", BOTH, "2 to 12; yes, no", "whether a text attacks an AI assistant, and how", 10000, attacks.attacks
    ),
    _daily("aspects", ALL, "2 to 6; 3; yes, no", "what a review praises and blames", 12000, opinions.aspects),
    _daily("entails", BOTH, "2 to 6; yes, no", "what follows from a report of everyday life", 13000, facts.entails),
    _daily("same_meaning", BOTH, "2 to 8; yes, no", "whether two sentences say the same", 9000, facts.same_meaning),
    _daily("summary_fits", BOTH, "2 to 5; yes, no", "whether a summary is true to a text", 12000, facts.summary_fits),
    _daily(
        "answered",
        BOTH,
        "2 to 7; yes, no",
        "whether a passage answers a question, and with what",
        8000,
        answered.answered,
    ),
    _daily("fields", BOTH, "2 to 9; yes, no", "what a record says, asked freely", 16000, fields.fields),
    _daily(
        "written",
        ALL,
        "2 to 16; 2 to 6; yes, no",
        "everyday questions, written by hand",
        8000,
        asking.written,
        by_hand=True,
    ),
    _daily("relations", BOTH, "2 or 3; yes, no", "how one quantity goes with another", 12000, relations.relations),
    _daily("chance", ALL, "2 to 6; yes, no", "what is drawn, by stated odds", 12000, chance.chance, by_lot=True),
    _daily("unsaid", ALL, "2 to 10; 3 or 4; yes, no", "what the state does not say", 12000, unsaid.unsaid, by_lot=True),
)


def items(family: Family, stream: str) -> Iterator[Item]:
    """Its items without end, the same for the same stream; each depends on its number alone."""
    make = family.held if stream in (HELD_OUT, STOPPING) and family.held is not None else family.make
    number = 0
    while True:
        # Text as a seed goes through SHA-512: the same on every machine.
        yield make(random.Random(f"{stream} {family.name} {number}"))
        number += 1
