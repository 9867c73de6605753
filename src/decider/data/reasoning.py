"""Sets of `evals` that ask for an inference from the state: steps, rules, observations, a passage.

It refuses to know splits. Trap: one passage, recipe or list of rules stands behind several samples; they are asked
about one state where they fit, and always share their group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from decider.data.archive import Archive
from decider.data.items import Gold, Item, choice, noul, score
from decider.data.registry import parts, samples

MAX_QUESTIONS = 3

CREPE = "crepe/samples.jsonl"
_CREPE = re.compile(
    r"I'm trying to (.*?)\. (.*?)At this point, how will '(.*)' change the likelihood of '(.*)'\? Answer with .*", re.S
)
CHANGES = ["less likely", "equally likely", "more likely"]

PARARULE = "pararule-plus-multi-step-deductive-reasoning/pararule-plus-multi-step-deductive-reasoning.jsonl"
_PARARULE = re.compile(r"Passage:(.*?)Question:(.*?)Answer:", re.S)

LIGHTS = "abstract-causal-reasoning/text_samples.jsonl"
LIGHT_STATES = {"on": None, "off": None, "undetermined": "the observations do not tell"}

QUARTZ = "quartz/samples.jsonl"
_QUARTZ = re.compile(r"(.*?)\n\s*A: (.*?)\n\s*B: (.*?)", re.S)

SOCIAL = "theory_of_mind/socialiqa/test.jsonl"
_SOCIAL = re.compile(r"(.*?[.!?])\s*([^.!?]*\?) A: (.*?); B: (.*?); C: (.*?)\.?", re.S)

SQUAD = "unsolvable_questions/samples.jsonl"
_SQUAD = re.compile(r"Question:(.*?)\n\s*Context:(.*)", re.S)


def likelihood(archive: Archive) -> Iterator[Item]:
    """How the next step of a procedure changes the likelihood of events; several events a state."""
    states: dict[tuple[str, str, str], dict[str, int]] = {}
    for sample in samples(archive, CREPE):
        goal, steps, step, event = parts(_CREPE, sample.asked, CREPE)
        states.setdefault((goal, steps, step), {})[event] = CHANGES.index(sample.ideal)
    for (goal, steps, step), events in states.items():
        state = {"goal": goal, "steps so far": steps or "none", "next step": step}
        questions, gold = {}, dict[str, Gold]()
        for number, event in enumerate(sorted(events)[:MAX_QUESTIONS], 1):
            text = f"How does the next step change the likelihood of this event: {event}?"
            questions[f"event {number}"] = score(text, CHANGES)
            gold[f"event {number}"] = events[event]
        yield Item(state, questions, gold, group=goal)


def deduction(archive: Archive) -> Iterator[Item]:
    """Whether statements follow from facts and rules, with what cannot be proven taken as false."""
    passages: dict[str, dict[str, bool]] = {}
    for sample in samples(archive, PARARULE):
        passage, statement = parts(_PARARULE, sample.asked, PARARULE)
        passages.setdefault(passage, {})[statement] = {"true": True, "false": False}[sample.ideal]
    for passage, statements in passages.items():
        questions, gold = {}, dict[str, Gold]()
        for number, statement in enumerate(sorted(statements)[:MAX_QUESTIONS], 1):
            text = (
                f"By these facts and rules, where what cannot be shown is false: is it true that {_clause(statement)}?"
            )
            questions[f"statement {number}"] = noul(text)
            gold[f"statement {number}"] = statements[statement]
        yield Item(passage, questions, gold, group=passage)


def light_switch(archive: Archive) -> Iterator[Item]:
    """Which objects switch a light on, from observations."""
    for sample in samples(archive, LIGHTS):
        # An instruction and the three answers come first.
        *seen, asked = sample.turns[4:]
        shown = asked.removesuffix("The state of the light is").strip()
        instructions = (
            f"Some of the objects switch the light on. Now this is displayed: {shown} Is the light on or off?"
        )
        gold = sample.ideal.removeprefix("ANSWER: ")
        yield Item(
            "\n".join(seen), {"light": choice(instructions, LIGHT_STATES)}, {"light": gold}, group="\n".join(seen)
        )


def qualitative(archive: Archive) -> Iterator[Item]:
    """In which of two directions a quantity changes."""
    for sample in samples(archive, QUARTZ):
        text, *options = parts(_QUARTZ, sample.asked, QUARTZ)
        if len(set(options)) == len(options):
            gold = options["AB".index(sample.ideal)]
            question = choice("Which answer is right, or completes the sentence?", options)
            yield Item(text, {"answer": question}, {"answer": gold}, group=text)


def social(archive: Archive) -> Iterator[Item]:
    """What people want, feel and do after an event."""
    for sample in samples(archive, SOCIAL):
        context, asked, *options = parts(_SOCIAL, sample.asked, SOCIAL)
        if len(set(options)) == len(options):
            gold = options["ABC".index(sample.ideal)]
            yield Item(context, {"answer": choice(asked, options)}, {"answer": gold}, group=context)


def answerable(archive: Archive) -> Iterator[Item]:
    """Whether a passage answers a question."""
    for sample in samples(archive, SQUAD):
        asked, passage = parts(_SQUAD, sample.asked, SQUAD)
        question = noul(f"Does the passage say enough to answer this question: {asked}")
        gold = {"Solveable": True, "Unsolveable": False}[sample.ideal]
        yield Item(passage, {"answerable": question}, {"answerable": gold}, group=passage)


def _clause(statement: str) -> str:
    text = statement.rstrip(". ")
    return text[:1].lower() + text[1:] if text.startswith("The ") else text
