"""Tools at hand and a request: which of them serves it, if any. The tools are made of a verb and an object.

It refuses to know real interfaces; those are evaluated on, and never trained. Trap: a distractor that would also serve
makes the answer wrong, so no two verbs and no two objects mean the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from decider.data.families import words
from decider.data.families.making import NONE_FITS, Asked, item
from decider.data.items import Item, choice, noul

VERBS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "create": (
        "Makes a new {o}",
        ("Set up a new {o} for {p}.", "{p} has no {o} yet and needs one.", "Start a fresh {o}, please."),
    ),
    "delete": (
        "Removes the {o} for good",
        ("Get rid of the {o} of {p}.", "{p} never wants to see that {o} again: wipe it.", "Throw the old {o} away."),
    ),
    "send": (
        "Sends the {o} to someone by e-mail",
        ("Mail the {o} to {p}.", "{p} should get the {o} in the inbox today.", "Let {p} have the {o} by e-mail."),
    ),
    "print": (
        "Prints the {o} on paper",
        ("I need the {o} on paper.", "Put the {o} through the printer for {p}.", "A paper copy of the {o}, please."),
    ),
    "translate": (
        "Puts the {o} into another language",
        (
            "{p} only reads Polish; make the {o} readable for {p}.",
            "I need the {o} in French.",
            "Turn the {o} from German into Greek.",
        ),
    ),
    "count": (
        "Tells how many of the kind '{o}' there are",
        ("How many of the kind '{o}' do we have?", "Tell me the number of every {o} on file."),
    ),
    "lock": (
        "Keeps anyone from changing the {o}",
        ("Nobody should be able to edit the {o} any more.", "Protect the {o} of {p} against changes."),
    ),
    "rename": (
        "Gives the {o} another name",
        ("The {o} should be called '{w}' from now on.", "Change the title of the {o} to '{w}'."),
    ),
    "compare": (
        "Shows the differences between two versions of the {o}",
        (
            "What changed between the last two versions of the {o}?",
            "Show {p} how the new {o} differs from the old one.",
        ),
    ),
    "restore": (
        "Brings a deleted {o} back",
        ("I removed the {o} by mistake; get it back.", "{p} wants the {o} that was thrown away last week again."),
    ),
    "schedule": (
        "Sets a time at which the {o} is to be dealt with",
        ("Have the {o} dealt with on Monday at nine.", "Plan the {o} of {p} for next Friday."),
    ),
    "summarise": (
        "Writes a short version of the {o}",
        ("Give me the {o} in two sentences.", "{p} has no time to read the {o}; boil it down."),
    ),
}
OBJECTS = (
    *("invoice", "report", "contract", "recipe", "calendar", "playlist", "letter", "photo", "timetable", "survey"),
    *("budget", "menu", "password list", "test plan", "lease", "speech", "map sheet", "wish list", "poem", "manual"),
)
STYLES = ("{v}_{o}", "{v}{O}", "{o}.{v}", "{v}-{o}")
WHICH = (
    "Which of these tools should be used?",
    "Which tool serves this request?",
    "Pick the tool to call.",
    "Which function fulfils what the user wants?",
)
FITS = ("Can one of these tools serve the request?", "Is there a tool here that does what is asked?")


def _name(style: str, verb: str, thing: str) -> str:
    joined = thing.replace(" ", "-" if "-" in style else "_")
    return style.format(v=verb, o=joined, O="".join(words.capital(part) for part in thing.split()))


def toolbox(rng: random.Random) -> Item:
    """A request for one verb with one object, among tools that share the verb, the object, or nothing."""
    verb, thing = rng.choice(list(VERBS)), rng.choice(OBJECTS)
    request = rng.choice(VERBS[verb][1]).format(o=thing, p=rng.choice(words.NAMES), w=words.made_up(rng))
    n = rng.choice((2, 3, 4, 5, 6, 8, 8, 10, 12, 16))
    others: list[tuple[str, str]] = []
    while len(others) < n - 1:
        kind = rng.random()
        other = (
            (verb if kind < 0.35 else rng.choice(list(VERBS))),
            (thing if 0.35 <= kind < 0.75 else rng.choice(OBJECTS)),
        )
        if other != (verb, thing) and other not in others:
            others.append(other)
    judged = rng.random() < 0.3
    fits = rng.random() < (0.5 if judged else 0.93)
    tools = [(verb, thing), *others] if fits else others
    rng.shuffle(tools)
    style = rng.choice(STYLES)
    named = {_name(style, *tool): VERBS[tool[0]][0].format(o=tool[1]) + "." for tool in tools}
    way_out = rng.choice(("none of these tools", *NONE_FITS[:2]))
    gold = _name(style, verb, thing) if fits else way_out
    if judged:
        listed = [{"name": name, "description": said} for name, said in named.items()]
        state: object = {"request": request, "tools": listed}
        asked: list[Asked] = [(noul(rng.choice(FITS)), fits)]
        if rng.random() < (0.5 if fits else 0.1):
            names = [*named, way_out]
            asked.append((choice(rng.choice(WHICH), names), gold))
        return item(state, asked)
    options: dict[str, object] = dict(named) if rng.random() < 0.8 else dict.fromkeys(named)
    if not fits or len(options) == 1 or rng.random() < 0.4:
        options |= {way_out: None}
    return item(request if rng.random() < 0.6 else {"request": request}, [(choice(rng.choice(WHICH), options), gold)])
