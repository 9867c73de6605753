"""Every family, in the order it is written, and how many items it gives.

It refuses to write files. Trap: a held-out file of a family comes from another stream of random numbers than its
training items, and not from a share of them; two seeds train on different items and are evaluated on the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from decider.data.families import amounts, extraction, formats, logic, lookup, rules, toolbox, tracking
from decider.data.families.daily import facts, opinions, remarks, sorting
from decider.data.families.making import Family
from decider.data.items import Item

CHOICE, NOUL, SCORE = ("choice",), ("noul",), ("score",)
BOTH, ALL = ("choice", "noul"), ("choice", "score", "noul")
HELD_OUT, STOPPING = "held out", "stopping"
"""The streams of the held-out files and, of families that hold out phrases, of what stops training early. Such families
use the phrases held out in these two, and in no other stream."""


def _daily(
    name: str, kinds: tuple[str, ...], options: str, asks: str, share: int, make: Callable[[random.Random, bool], Item]
) -> Family:
    return Family(name, kinds, options, asks, share, lambda rng: make(rng, False), lambda rng: make(rng, True))


FAMILIES = (
    Family("lookup", CHOICE, "2 to 13", "a field of a record named by its key", 8000, lookup.lookup),
    Family(
        "lookup_position", CHOICE, "2 to 13", "a field of the first, third, last record", 5000, lookup.lookup_position
    ),
    Family("find_record", CHOICE, "2 to 13", "the record with a value, or with two", 5500, lookup.find_record),
    Family("lookup_wide", CHOICE, "9 to 255", "look-up among many options", 4500, lookup.lookup_wide),
    Family("lookup_64", CHOICE, "64", "look-up among 64 options", 1500, lookup.lookup_64),
    Family("verify", NOUL, "yes, no", "whether a record has a value, or has not", 5500, lookup.verify),
    Family("stated", BOTH, "2 to 8; yes, no", "whether a fact is there at all", 6000, lookup.stated),
    Family("none_fits", CHOICE, "2 to 13", "look-up where no option may be right", 4000, lookup.none_fits),
    Family(
        "compare", BOTH, "2 to 11; yes, no", "most, least, second most; more and less; limits", 6000, amounts.compare
    ),
    Family("count", ("choice", "score"), "2 to 9; 7", "how many records there are, have, exceed", 6000, amounts.count),
    Family("dates", BOTH, "2 to 13; yes, no", "earliest, before, month, year, how it is written", 5500, amounts.dates),
    Family("days", BOTH, "2 to 9; yes, no", "spans of days, and whether a time limit is kept", 4000, amounts.days),
    Family("sums", BOTH, "2 to 9; yes, no", "small sums, differences, products", 4000, amounts.sums),
    Family("levels", ALL, "2 to 5", "the level that a number falls into", 5000, amounts.levels),
    Family("rules", BOTH, "2 to 8; yes, no", "the first of several rules that holds", 6000, rules.rules),
    Family("policy", BOTH, "2; yes, no", "a rule, an exception, an exception to it", 6000, rules.policy),
    Family(
        "tracking",
        BOTH,
        "2 to 11; yes, no",
        "things moved, carried, counted, switched, swapped",
        7500,
        tracking.tracking,
    ),
    Family("deduction_made", BOTH, "3; yes, no", "what follows from made-up kinds", 5000, logic.deduction),
    Family("trend", BOTH, "2 or 3; yes, no", "what rises when another thing falls", 5000, logic.trend),
    Family("order", BOTH, "2 to 7; yes, no", "who is more than whom, at several removes", 4000, logic.order),
    Family("negation", BOTH, "2 to 6; yes, no", "who has what, and who has not", 5000, logic.negation),
    Family("extraction", CHOICE, "2 to 13", "the right string among near-copies", 5500, extraction.extraction),
    Family("occurs", BOTH, "2 to 13; yes, no", "which words stand in a list, and where", 5000, extraction.occurs),
    Family(
        "same_record",
        BOTH,
        "2 to 6; yes, no",
        "whether two records agree, spelling aside",
        4000,
        extraction.same_record,
    ),
    Family("formats", BOTH, "2 to 13; yes, no", "which string has a format", 4500, formats.formats),
    Family(
        "follows", ALL, "2 to 7; 2 to 4; yes, no", "whether a reply keeps to demands on its form", 5500, formats.follows
    ),
    Family("toolbox", BOTH, "2 to 17; yes, no", "which made-up tool serves a request, if any", 5500, toolbox.toolbox),
    _daily("routing", BOTH, "2 to 13; yes, no", "which team a message to a company is for", 5000, sorting.routing),
    _daily("ticket", ALL, "2 to 13; 3 or 4; yes, no", "what a ticket says, wants and weighs", 9000, remarks.ticket),
    _daily("intent", BOTH, "2 to 13; yes, no", "what somebody wants", 4500, sorting.intent),
    _daily("meetings", BOTH, "2 to 13; yes, no", "what somebody writes about an appointment", 4000, sorting.meetings),
    _daily("topic", BOTH, "2 to 13; yes, no", "what a short text is about", 4500, sorting.topic),
    _daily("alerts", BOTH, "2 to 13; yes, no", "what is wrong, by a line of a log", 4500, sorting.alerts),
    _daily("next_step", BOTH, "2 to 13; yes, no", "an agent's next step; goal reached?", 4500, sorting.next_step),
    _daily("grading", SCORE, "3 to 5", "satisfaction, severity, urgency, interest", 5000, remarks.grading),
    _daily("leads", NOUL, "yes, no", "money, say, time and size of a prospect", 4000, remarks.leads),
    _daily("guard", BOTH, "2 to 12; yes, no", "private data, money, insults, off topic", 4500, remarks.guard),
    _daily("aspects", ALL, "2 to 6; 3; yes, no", "what a review praises and blames", 4500, opinions.aspects),
    _daily("entails", BOTH, "2 to 6; yes, no", "what follows from a report of everyday life", 5000, facts.entails),
    _daily("same_meaning", BOTH, "2 to 6; yes, no", "whether two sentences say the same", 4000, facts.same_meaning),
    _daily("summary_fits", BOTH, "2 to 5; yes, no", "whether a summary is true to a text", 4500, facts.summary_fits),
)


def items(family: Family, stream: str) -> Iterator[Item]:
    """Its items without end, the same for the same stream; each depends on its number alone."""
    make = family.held if stream in (HELD_OUT, STOPPING) and family.held is not None else family.make
    number = 0
    while True:
        # Text as a seed goes through SHA-512: the same on every machine.
        yield make(random.Random(f"{stream} {family.name} {number}"))
        number += 1
