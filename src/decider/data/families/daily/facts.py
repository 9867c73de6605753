"""Little reports and what is to be made of them: the same said otherwise, what follows, what is ruled out, summaries.

It refuses to know the world: what a report does not settle is open, however likely. Trap: the facts of one item are
about different people and matters, so that one says nothing of the other; names are filled in once for an item.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from decider.data.families import words
from decider.data.families.daily.banks import Entry, bank, fill
from decider.data.families.daily.sorting import side
from decider.data.families.daily.writing import joined
from decider.data.families.making import Asked, item
from decider.data.items import Item, choice, noul

FOLLOWS = (
    "Does the text show that this is true? {x}",
    "By the text, does this hold: {x}",
    "Can one conclude from the text: {x}",
    "“{x}” True, going by the text?",
    "Going by what is reported, is it so? {x}",
    "Having read this, would you agree? {x}",
    "Statement: {x}\nDoes it follow?",
    "Does this have to be so, if the report is right? {x}",
    "Check the claim: {x}",
    "May a careful reader write this down as established? {x}",
    "“{x}” Do the lines above bear this out?",
    "Claim: {x}\nIs it backed by what is written?",
    "Do we know this for sure from the report? {x}",
    "true or not, from what you read: {x}",
    "Is this statement supported by the text? {x}",
    "Would it be safe to say, on the strength of the text alone: {x}",
    "“{x}” Does the report settle that this is the case?",
)
DENIED = (
    "Does the text contradict this? {x}",
    "Is this at odds with the text: {x}",
    "“{x}” Is that ruled out by what is written?",
    "Statement: {x}\nDoes the report contradict it?",
    "If the report is right, must this be wrong? {x}",
    "Would the text make a liar of whoever says this? {x}",
    "Is it impossible, by the text, that this is so? {x}",
    "Does this clash with the report: {x}",
    "Claim: {x}\nIs it refuted by the lines above?",
    "Can the following be excluded, going by the text? {x}",
    "Do the text and this sentence contradict each other? {x}",
    "“{x}” Does what you read show this to be false?",
    "Is this statement wrong, by the text? {x}",
    "Does the text rule this out: {x}",
    "“{x}” Is this refuted by the report?",
)
STANDING = (
    "How does this statement stand to the text? {x}",
    "What does the text say about this? {x}",
    "Judge the statement by the text: {x}",
    "“{x}” What is the relation of this to the text?",
    "Hypothesis: {x}",
    "Check this against the report: {x}",
    "Claim: {x}\nVerdict?",
    "Someone who has read the report hears this. What can they say to it? {x}",
    "Going by the lines above alone, how is it with this? {x}",
    "Fact check: {x}",
    "“{x}” Rate this sentence, taking the text as given.",
    "Does the report confirm this, deny it, or neither? {x}",
    "Statement: {x}\nHow does it square with what is written?",
    "Choose the verdict that fits. {x}",
    "Taking the text to be right, what about this? {x}",
    "“{x}” What does the report make of that?",
)
STANDINGS = (
    ("it follows", "it is ruled out", "it is left open"),
    ("supported", "contradicted", "neither"),
    ("true", "false", "cannot be told"),
    ("entailment", "contradiction", "neutral"),
    ("confirmed", "refuted", "not settled"),
    ("correct", "incorrect", "unproven"),
    ("must be so", "cannot be so", "may be so or not"),
    ("right", "wrong", "undecided"),
    ("the text says so", "the text says otherwise", "the text leaves it open"),
)
TRUE = (
    "Which of these is true, by the text?",
    "Which statement does the text support?",
    "Which of the statements follows from what is written?",
    "Going by the report, what do we know?",
    "Pick the one sentence that the text bears out.",
    "Exactly one of these has to be true if the report is. Which?",
    "Select the correct statement.",
    "What may a careful reader take from the text?",
    "True:",
    "which one is right?",
    "Choose what follows.",
    "Only one of the claims is backed by the lines above. Find it.",
    "You have to sign one of these statements. Which of them is safe?",
    "What can be concluded?",
    "Find the conclusion that the report allows.",
    "According to the text, …",
)
SAME = (
    "Do both sentences say the same?",
    "Do the two mean the same thing?",
    "Is the second a rewording of the first?",
    "Same meaning?",
    "Could one sentence stand in for the other without any change of sense?",
    "Are they two ways of saying one thing?",
    "You compare two notes. Do they come to the same thing?",
    "If one is true, is the other one bound to be true too, and the other way round?",
    "Decide whether these two are equivalent.",
    "same thing said twice?",
    "Is there no difference in what the two of them tell us?",
    "Does one repeat the other in other words?",
    "Judge whether both lines carry the same information.",
    "Are these two paraphrases of each other?",
    "Would a translator give both the same meaning?",
    "Do they amount to the same?",
)
WHICH_SAME = (
    "Which sentence says the same in other words?",
    "Which of these means the same?",
    "Find the paraphrase.",
    "Pick the sentence that could replace the given one.",
    "In other words:",
    "Which of them tells us just what the given sentence tells us?",
    "Only one of these has the same sense. Which?",
    "Match the sentence with its rewording.",
    "which one is the same thing said differently?",
    "Choose the line that is equivalent.",
    "You want to say it in another way. Which of these do you take?",
    "The same, put differently, is …",
    "Select the restatement.",
    "Which candidate keeps the meaning?",
    "Identify the sentence that has not changed the sense.",
    "Name the one that repeats the message.",
)
FITS = (
    "Is the summary true to the text?",
    "Does everything in the summary follow from the text?",
    "Can this summary be published as it is?",
    "Does the summary hold?",
    "Is each sentence of the summary backed by the report?",
    "You proofread the summary against the source. Do you pass it?",
    "Summary all right?",
    "Has the author of the summary kept to what is reported?",
    "Decide whether the short version agrees with the long one in all it says.",
    "all good with the summary?",
    "Does the text bear out the summary in full?",
    "Would the writer of the text accept the summary?",
    "Can one rely on the summary without reading the source?",
    "Is the summary faithful?",
    "Can all that the summary says be taken from the text?",
    "Does the short version stay true to the source?",
)
WHICH_FITS = (
    "Which summary is true to the text?",
    "Which of these summaries fits the text?",
    "Pick the summary without a mistake.",
    "Summary:",
    "Only one of the short versions is faithful. Which?",
    "Which of them can be published as it is?",
    "You proofread some summaries against the source. Which one passes?",
    "Choose the short version in which everything is backed by the report.",
    "Select the accurate summary.",
    "which summary is ok?",
    "Find the one that adds nothing and twists nothing.",
    "In short, the text says:",
    "Which of these may stand below the article as its summary?",
    "Which candidate agrees with the source throughout?",
    "Identify the summary that one can rely on.",
    "All but one of these get something wrong. Which one does not?",
)
ERRORS = (
    "Does the summary say something that the text does not?",
    "Is there a mistake in the summary?",
    "Has something been twisted or made up in the summary?",
    "Error in the summary?",
    "You proofread the summary against the source. Do you find a mistake?",
    "Must the summary be corrected?",
    "Is any sentence of the summary unsupported?",
    "Has the summary added or changed a fact?",
    "Decide whether the summary misleads the reader in some point.",
    "anything wrong with it?",
    "Would the writer of the text object to some part of the summary?",
    "Does at least one statement of the summary lack support in the source?",
    "Does the summary go beyond the text or against it?",
    "Is the summary unfaithful?",
    "Should a careful editor send the summary back, as the source does not bear it out?",
)


def _drawn(rng: random.Random, held: bool, n: int) -> list[dict[str, tuple[str, ...]]]:
    """Some facts, each with people of its own."""
    found: Sequence[Entry] = list(bank("facts", held).values())
    people = rng.sample(words.NAMES, 2 * n)
    drawn = []
    for entry in rng.sample(found, n):
        known: Mapping[str, str] = {
            "A": people.pop(),
            "B": people.pop(),
            "city": rng.choice(words.CITIES),
            "month": rng.choice(words.MONTHS),
            "day": fill(rng, "{day}"),
        }
        drawn.append({field: tuple(fill(rng, text, known) for text in texts) for field, texts in entry.items()})
    return drawn


def entails(rng: random.Random, held: bool) -> Item:
    """A text of one to five facts, and statements that follow, are ruled out or are left open."""
    n = rng.choice((1, 1, 1, 2, 2, 3, 5))
    facts = _drawn(rng, held, n)
    one = rng.choice(facts)
    said = [rng.choice(fact["says"]) for fact in facts]
    text = joined(rng, said)

    def statement(wanted: str) -> str:
        pool = [other for other in one["says"] if other not in said] if wanted == "says" else one[wanted]
        return rng.choice(pool)

    def standing() -> Asked:
        place = rng.randrange(3)
        kind = (rng.choice(("follows", "follows", "says")), "denied", "open")[place]
        names = list(rng.choice(STANDINGS))
        right = names[place]
        rng.shuffle(names)
        return choice(rng.choice(side(held, STANDING)).format(x=statement(kind)), names), right

    def follows() -> Asked:
        true = rng.random() < 0.5
        kind = rng.choice(("follows", "follows", "says") if true else ("denied", "open"))
        return noul(rng.choice(side(held, FOLLOWS)).format(x=statement(kind))), true

    def denied() -> Asked:
        true = rng.random() < 0.5
        kind = "denied" if true else rng.choice(("follows", "says", "open"))
        return noul(rng.choice(side(held, DENIED)).format(x=statement(kind))), true

    def which() -> Asked:
        right = statement(rng.choice(("follows", "says")))
        wrong = [rng.choice(fact[kind]) for fact in facts for kind in ("denied", "open")]
        names = [right, *rng.sample(wrong, rng.randint(1, min(5, len(wrong))))]
        rng.shuffle(names)
        return choice(rng.choice(side(held, TRUE)), names), right

    asks = (standing, follows, follows, denied, which)
    asked = [rng.choice(asks)() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return item(text if rng.random() < 0.7 else {rng.choice(("text", "report", "premise")): text}, asked)


def same_meaning(rng: random.Random, held: bool) -> Item:
    """Two sentences that say the same or do not; or a sentence and the one among others that says the same."""
    one, other = _drawn(rng, held, 2)
    first, second = rng.sample(one["says"], 2)
    wrong = [*one["denied"], *one["open"], rng.choice(other["says"])]
    if rng.random() < 0.35:
        names = [second, *rng.sample(wrong, rng.randint(1, len(wrong)))]
        rng.shuffle(names)
        state: object = first if rng.random() < 0.6 else {"sentence": first}
        return item(state, [(choice(rng.choice(side(held, WHICH_SAME)), names), second)])
    same = rng.random() < 0.5
    pair = [first, second if same else rng.choice(wrong)]
    rng.shuffle(pair)
    way = rng.random()
    if way < 0.4:
        state = {"first": pair[0], "second": pair[1]}
    elif way < 0.7:
        state = f"A: {pair[0]}\nB: {pair[1]}"
    else:
        state = list(pair)
    return item(state, [(noul(rng.choice(side(held, SAME))), same)])


def summary_fits(rng: random.Random, held: bool) -> Item:
    """A text of several facts and a summary, which may hold one sentence that is wrong or made up."""
    facts = _drawn(rng, held, rng.choice((2, 3, 3, 4, 5, 7)))
    said = [rng.choice(fact["says"]) for fact in facts]
    text = joined(rng, said)

    def summary(true: bool) -> str:
        kept = rng.sample(facts, rng.randint(1, min(3, len(facts))))
        spoilt = None if true else rng.randrange(len(kept))
        lines = []
        for place, fact in enumerate(kept):
            if place == spoilt:
                lines.append(rng.choice(fact[rng.choice(("denied", "denied", "open"))]))
            else:
                pool = [other for other in (*fact["says"], *fact["follows"]) if other not in said]
                lines.append(rng.choice(pool))
        return " ".join(lines)

    if rng.random() < 0.3:
        right = summary(True)
        names = list(dict.fromkeys([right, *(summary(False) for _ in range(rng.randint(1, 4)))]))
        rng.shuffle(names)
        state: object = text if rng.random() < 0.6 else {"text": text}
        return item(state, [(choice(rng.choice(side(held, WHICH_FITS)), names), right)])
    true = rng.random() < 0.5
    short = summary(true)
    state = {"text": text, "summary": short} if rng.random() < 0.5 else f"{text}\n\nSummary: {short}"
    asked: list[Asked] = [(noul(rng.choice(side(held, FITS))), true), (noul(rng.choice(side(held, ERRORS))), not true)]
    return item(state, rng.choice((asked, asked[:1], asked[:1], asked[1:])))
