"""The words that families write with: names, places, things, codes, dates.

It refuses to know questions. Trap: no value may hold a comma, a full stop, a bar or the word "and": states are written
as sentences and tables, and a value that looks like their punctuation makes the right answer a matter of reading.
"""

from __future__ import annotations

import datetime
import random

NAMES = (
    *("Ada", "Agnes", "Amir", "Anna", "Aron", "Bela", "Bruno", "Carla", "Cem", "Chloe", "Clara", "Dana", "Daniel"),
    *("David", "Dora", "Elif", "Elsa", "Emil", "Enzo", "Esther", "Eva", "Farid", "Felix", "Fiona", "Frank", "Gina"),
    *("Greta", "Hana", "Hannah", "Henry", "Hugo", "Ida", "Igor", "Ines", "Iris", "Ivan", "Jack", "Jana", "Jonas"),
    *("Julia", "Karen", "Karim", "Kenji", "Kira", "Lars", "Laura", "Lea", "Leo", "Lin", "Lucas", "Luisa", "Mads"),
    *("Malik", "Mara", "Marco", "Maria", "Maya", "Mei", "Mila", "Mona", "Nadia", "Nick", "Nils", "Nora", "Noah"),
    *("Olga", "Omar", "Oscar", "Paula", "Paul", "Pedro", "Petra", "Pia", "Quentin", "Rafael", "Rania", "Rita"),
    *("Robin", "Rosa", "Ruben", "Samir", "Sara", "Selma", "Simon", "Sofia", "Stefan", "Tara", "Theo", "Tom", "Uma"),
    *("Vera", "Victor", "Wanda", "Wen", "Xenia", "Yara", "Yusuf", "Zara", "Zoe"),
)
CITIES = (
    *("Aachen", "Bergen", "Bilbao", "Bristol", "Cardiff", "Cork", "Dakar", "Delft", "Denver", "Dublin", "Essen"),
    *("Geneva", "Ghent", "Graz", "Hanoi", "Izmir", "Kyoto", "Leeds", "Lima", "Linz", "Lisbon", "Lyon", "Malmo"),
    *("Nairobi", "Nantes", "Oslo", "Ottawa", "Padua", "Perth", "Porto", "Quito", "Riga", "Seville", "Sofia", "Tampa"),
    *("Tartu", "Toledo", "Trieste", "Turin", "Utrecht", "Vigo", "Warsaw", "York", "Zagreb"),
)
COLOURS = ("red", "blue", "green", "yellow", "black", "white", "grey", "brown", "orange", "purple", "pink", "silver")
DEPARTMENTS = ("sales", "support", "legal", "finance", "design", "research", "logistics", "marketing", "security")
STATUSES = ("open", "paid", "cancelled", "shipped", "pending", "returned", "on hold", "closed")
PRIORITIES = ("low", "normal", "high", "urgent")
SPECIES = ("otter", "lynx", "heron", "badger", "tapir", "puffin", "gecko", "stoat", "marmot", "ibex", "raven", "newt")
LANGUAGES = ("Dutch", "Finnish", "French", "German", "Greek", "Hindi", "Italian", "Korean", "Polish", "Spanish")
QUEUES = ("billing", "returns", "accounts", "delivery", "repairs", "complaints", "orders", "privacy")
THINGS = (
    *("apple", "bell", "book", "bottle", "brush", "candle", "card", "chain", "clock", "coin", "comb", "cup", "drum"),
    *("fan", "flute", "fork", "glove", "hammer", "hat", "key", "kettle", "lamp", "lemon", "map", "mirror", "nail"),
    *("needle", "notebook", "pen", "pencil", "phone", "plate", "purse", "ring", "rope", "ruler", "saw", "scarf"),
    *("shell", "shoe", "soap", "spoon", "stamp", "stone", "ticket", "torch", "towel", "umbrella", "vase", "whistle"),
)
HOLDERS = ("basket", "box", "bucket", "cabinet", "chest", "crate", "drawer", "jar", "locker", "safe", "sack", "tray")
ROOMS = ("attic", "bathroom", "bedroom", "cellar", "garage", "garden", "hall", "kitchen", "library", "office", "shed")
_STARTS = (
    "b",
    "br",
    "d",
    "f",
    "fl",
    "g",
    "gr",
    "h",
    "k",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
    "z",
)
_MIDDLES = ("a", "e", "i", "o", "u", "ai", "ou")
_ENDS = ("", "", "n", "r", "l", "k", "m", "s", "x")

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)


def made_up(rng: random.Random) -> str:
    """A word of two or three syllables that means nothing."""
    return "".join(rng.choice(_STARTS) + rng.choice(_MIDDLES) + rng.choice(_ENDS) for _ in range(rng.choice((2, 2, 3))))


def code(rng: random.Random) -> str:
    """An identifier of letters and digits, as in `KT-4071`."""
    letters = "".join(rng.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=rng.choice((1, 2, 2, 3))))
    return f"{letters}-{rng.randrange(10 ** rng.choice((2, 3, 4)), 10**4 * 5)}"


def day(rng: random.Random, first: int = 2019, last: int = 2027) -> datetime.date:
    """A day of the years from `first` to `last`."""
    start = datetime.date(first, 1, 1)
    return start + datetime.timedelta(days=rng.randrange((datetime.date(last, 12, 31) - start).days + 1))


def long_date(date: datetime.date) -> str:
    """`3 March 2025`."""
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


def capital(text: str) -> str:
    """With its first letter in upper case."""
    return text[:1].upper() + text[1:]


def list_of(words: list[str], last: str = "and") -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
