"""The playground in a real browser: headless Chromium in front of a served fake model.

Refuses to look at taste. Trap: a page that asks elsewhere, runs what a state holds or breaks its own security policy
says so in the console only, so every test reads the console last.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from browser import Browser, browser
from fake_brain import FakeBrain
from serving import Served, served, until

from decider.serve.config import ServeConfig

pytestmark = pytest.mark.long

MARKUP = '<img src=x onerror="document.title=1">&amp;<b>'
ANSWERED = "document.querySelector('#results .answer')"
REFUSED = "document.querySelector('#results .fault')"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(FakeBrain()) as running:
        yield running


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def page(server: Served, window: Browser) -> Iterator[Browser]:
    """The playground, opened anew; afterwards the console must be empty but for refusals that were asked for."""
    opened(window, server)
    window.logs()
    yield window
    left = [line for line in window.logs() if "/v1/systemone - Failed to load resource" not in line]
    assert left == []
    own = window.script(
        "return performance.getEntriesByType('resource').every((each) => each.name.startsWith(location.origin))"
    )
    assert own
    assert window.script("return document.title") == "decider playground"


def opened(window: Browser, server: Served, width: int = 1280, height: int = 900) -> None:
    window.screen(width, height)
    window.go(server.url + "/")
    window.wait("'ready' in document.documentElement.dataset")


def write_json(page: Browser, text: str) -> None:
    page.click("#tab-json")
    page.script(
        "const box = document.getElementById('json'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))",
        text,
    )


def shown(page: Browser) -> dict[str, list[str]]:
    """By question: the verdict, then name and probability of each bar."""
    found = page.script(
        "return [...document.querySelectorAll('.answer')].map((card) => [card.querySelector('h3').textContent,"
        "  [card.querySelector('.verdict strong').textContent, ...[...card.querySelectorAll('.bar')].flatMap((bar) =>"
        "    [bar.querySelector('.name').textContent, bar.querySelector('.p').textContent])]])"
    )
    return dict(found)


def asked(server: Served, text: str) -> dict[str, dict[str, object]]:
    answers: dict[str, dict[str, object]] = server.post("/v1/systemone", text.encode()).json["answers"]
    return answers


def test_asking_shows_what_the_api_answers(page: Browser, server: Served) -> None:
    page.click("#ask")
    page.wait(ANSWERED)
    answers = asked(server, page.script("return document.getElementById('json').value"))
    bars = shown(page)
    assert list(bars) == list(answers) == ["team", "severity", "churn"]
    team = answers["team"]["probabilities"]
    assert isinstance(team, dict)
    assert bars["team"][0] == answers["team"]["choice"]
    ranked = sorted(team.items(), key=lambda item: -item[1])
    assert bars["team"][1::2] == [name for name, _ in ranked]
    assert bars["team"][2::2] == [f"{100 * p:.1f} %" if p >= 0.0005 else "< 0.1 %" for _, p in ranked]
    widths = page.script(
        "return [...document.querySelectorAll('.answer')[0].querySelectorAll('.fill')].map((bar) =>"
        "  bar.getBoundingClientRect().width / bar.parentElement.getBoundingClientRect().width)"
    )
    assert widths == pytest.approx([p for _, p in ranked], abs=0.01)
    assert bars["severity"][0] == f"{answers['severity']['score']:.2f} of 3"
    facts = page.text(".facts")
    assert "ms" in facts
    assert "decider-fake" in facts
    assert "x_p_max" in page.text(".extras")
    assert page.text("#status").startswith("3 answers in ")


def test_the_keyboard_alone_is_enough(page: Browser) -> None:
    def focus() -> str:
        return str(page.script("const on = document.activeElement; return on.id || on.textContent"))

    reached = []
    for _ in range(60):
        page.keys("Tab")
        reached.append(focus())
        if reached[-1] == "python" or reached[-1] == "curl":
            break
    for stop in ("Docs", "example", "tab-form", "state", "key", "ask", "answers", "tab-curl"):
        assert stop in reached, (stop, reached)
    # Only the selected tab is a stop; arrows reach the other.
    assert "tab-json" not in reached
    page.script("document.getElementById('tab-form').focus()")
    page.keys("Right")
    assert focus() == "tab-json"
    assert page.script("return document.getElementById('panel-form').hidden") is True
    assert page.script("return document.getElementById('tab-form').tabIndex") == -1
    page.keys("Tab")
    assert focus() == "json"
    page.keys("Enter", holding="Control")
    page.wait(ANSWERED)
    assert focus() == "json"
    # The focus can be seen.
    assert page.script("return getComputedStyle(document.activeElement).outlineStyle !== 'none'")


def test_the_form_and_the_json_keep_in_step(page: Browser, server: Served) -> None:
    page.script("document.querySelector('[data-add=choice]').click()")
    page.keys("W", "h", "o", "?")
    request = page.script("return JSON.parse(document.getElementById('json').value)")
    assert request["questions"]["question 4"] == {
        "type": "choice",
        "instructions": "Who?",
        "criteria": {"yes": None, "no": None},
    }
    # Keys that are numbers keep their place, and everything the form has no control for stays.
    text = json.dumps(
        {
            "model": "jev-latest", "state": "s", "x_unknown": 1.50,
            "questions": {
                "10": {"type": "choice", "criteria": {"9": "nine", "2": {"deep": [1]}, "__proto__": None}},
                "2": {"type": "score", "criteria": ["a", "b"], "isolated": False},
                "odd": {"type": "box"},
            },
        }
    )  # fmt: skip
    write_json(page, text)
    page.click("#tab-form")
    ids = page.script("return [...document.querySelectorAll('.cards .id')].map((each) => each.textContent)")
    assert ids == ["10", "2", "odd"]
    page.script(
        "const name = document.querySelector('[aria-label=\"Name of option 1\"]'); name.value = 'neun';"
        "name.dispatchEvent(new Event('input'))"
    )
    written = json.loads(page.script("return document.getElementById('json').value"), object_pairs_hook=list)
    expected = json.loads(text.replace('"9"', '"neun"'), object_pairs_hook=list)
    assert written == expected
    # Two options of one name are no request; the fault is said, and asking goes to it.
    page.script(
        "const name = document.querySelector('[aria-label=\"Name of option 2\"]'); name.value = 'neun';"
        "name.dispatchEvent(new Event('input'))"
    )
    before = len(server.lines.getvalue())
    page.click("#ask")
    assert page.script("return document.activeElement.getAttribute('aria-label')") == "Name of option 2"
    assert page.text(".field-note:not(:empty)") == "Another option has this name."
    assert len(server.lines.getvalue()) == before


def test_an_error_is_shown_with_its_place(page: Browser) -> None:
    write_json(page, '{"model": "jev-latest", "state": "s", "questions": {"a b": {"type": "nool"}}}')
    page.click("#ask")
    page.wait(REFUSED)
    assert page.text(".fault h3") == "Refused: 422"
    assert page.text(".place") == "questions › a b › type"
    assert "nool" in page.text(".message")
    page.click(".place")
    chosen = page.script(
        "const box = document.getElementById('json'); return box.value.slice(box.selectionStart, box.selectionEnd)"
    )
    assert chosen == '"nool"'


def test_broken_json_is_found_before_it_is_sent(page: Browser) -> None:
    write_json(page, '{\n  "state": "s",\n  "state": 1}')
    assert page.text("#json-note") == 'This is not JSON: line 3, column 3: the key "state" is given twice.'
    page.click("#tab-form")
    assert page.script("return document.getElementById('panel-form').hidden") is True
    page.click("#ask")
    assert page.script("return document.activeElement.id") == "json"
    assert page.text("#status") == "Nothing asked yet."


def test_markup_stays_text_wherever_it_stands(page: Browser) -> None:
    question = {"type": "choice", "instructions": MARKUP, "criteria": {MARKUP: MARKUP, "b": None}}
    score = {"type": "score", "instructions": MARKUP, "criteria": [MARKUP, "two"]}
    request = {"model": "jev-latest", "state": MARKUP, "questions": {MARKUP: question, "s": score}}
    write_json(page, json.dumps(request))
    page.click("#ask")
    page.wait(ANSWERED)
    bars = shown(page)
    assert list(bars) == [MARKUP, "s"]
    assert MARKUP in bars[MARKUP]
    assert MARKUP in bars["s"]
    page.click("#tab-form")
    page.click("#tab-python")
    write_json(page, json.dumps({**request, "model": MARKUP}))
    page.click("#ask")
    page.wait(REFUSED)
    assert "<img" in page.text(".message")
    assert page.script("return document.querySelectorAll('img, main b, .calls b').length") == 0


@pytest.mark.parametrize("example", range(5))
def test_the_calls_give_what_the_page_shows(page: Browser, server: Served, example: int) -> None:
    page.script(
        "const box = document.getElementById('example'); box.selectedIndex = arguments[0];"
        "box.dispatchEvent(new Event('change'))",
        example,
    )
    answers = asked(server, page.script("return document.getElementById('json').value"))
    python = page.text("#python").replace("print(response.answers)", "print(response.model_dump_json())")
    done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)["answers"]
    assert list(got) == list(answers)
    for name, answer in answers.items():
        assert got[name]["type"] == answer["type"]
        assert got[name].get("probabilities") == answer.get("probabilities")
        assert got[name].get("noul") == answer.get("noul")
    curl = page.text("#curl").replace("curl ", "curl --silent --show-error ", 1)
    done = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, timeout=30, check=False)
    assert json.loads(done.stdout)["answers"] == answers, done.stderr


def test_copying_copies_or_selects(page: Browser) -> None:
    page.script("navigator.clipboard.writeText = async (text) => { document.body.dataset.copied = text; }")
    page.click("[data-copy=curl]")
    page.wait("document.getElementById('copied').textContent === 'Copied.'")
    assert page.script("return document.body.dataset.copied") == page.text("#curl")
    page.script("navigator.clipboard.writeText = async () => { throw new Error('not allowed'); }")
    page.click("[data-copy=curl]")
    page.wait("document.getElementById('copied').textContent.startsWith('Selected')")
    assert page.script("return getSelection().toString()") == page.text("#curl")


def test_asking_can_be_cancelled_and_the_work_is_dropped(window: Browser) -> None:
    hold = threading.Event()
    with served(FakeBrain(hold=hold)) as held:
        try:
            opened(window, held)
            window.click("#ask")
            window.wait("document.getElementById('ask').textContent === 'Cancel'")
            assert window.text("#status") == "Asking …"
            window.click("#ask")
            window.wait("document.getElementById('status').textContent === 'Cancelled.'")
            assert window.text("#ask") == "Ask"
        finally:
            hold.set()
        until(held.idle)
        window.click("#ask")
        window.wait(ANSWERED)


def test_a_server_that_has_gone_is_said(window: Browser) -> None:
    with served(FakeBrain()) as gone:
        opened(window, gone)
    window.click("#ask")
    window.wait(REFUSED)
    assert window.text(".fault h3") == "No answer"
    assert "could not be reached" in window.text(".message")
    window.logs()


def test_a_key_is_sent_and_kept_nowhere(window: Browser) -> None:
    with served(
        FakeBrain(), ServeConfig(port=0, api_keys=frozenset([hashlib.sha256(b"open sesame").digest()]))
    ) as keyed:
        opened(window, keyed)
        window.click("#ask")
        window.wait(REFUSED)
        assert window.text(".fault h3") == "Refused: 403"
        window.click("#key")
        window.keys(*"open sesame")
        window.keys("Enter")
        window.wait(ANSWERED)
        assert "open sesame" not in window.text("#curl") + window.text("#python")
        assert "$TYPESAFE_API_KEY" in window.text("#curl")
        assert window.script("return [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        opened(window, keyed)
        assert window.script("return document.getElementById('key').value") == ""


def test_it_fits_a_phone_and_both_colour_schemes(page: Browser, server: Served) -> None:
    opened(page, server, 320, 640)
    page.click("#ask")
    page.wait(ANSWERED)
    for path in ("/", "/docs"):
        if path != "/":
            page.go(server.url + path)
        assert page.script("return document.documentElement.scrollWidth") == 320
    opened(page, server)
    colours = []
    for dark in (False, True):
        page.screen(1280, 900, dark=dark)
        colours.append(page.script("return getComputedStyle(document.body).backgroundColor"))
        contrast = page.script(CONTRAST)
        assert min(contrast.values()) >= 4.5, contrast
    assert colours == ["rgb(255, 255, 255)", "rgb(18, 22, 28)"]
    page.screen(1280, 900, calm=True)
    assert page.script("return matchMedia('(prefers-reduced-motion: reduce)').matches")
    page.click("#ask")
    page.wait(ANSWERED)
    assert page.script("return getComputedStyle(document.querySelector('.fill')).transitionDuration") == "0s"


CONTRAST = """
const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const light = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const ratio = (a, b) => { const [x, y] = [light(value(a)), light(value(b))]
  .sort((p, q) => p - q); return (y + 0.05) / (x + 0.05); };
const pairs = [['--ink', '--paper'], ['--muted', '--paper'], ['--muted', '--panel'], ['--accent', '--paper'],
  ['--on-accent', '--accent'], ['--fault', '--panel'], ['--accent', '--panel']];
return Object.fromEntries(pairs.map(([a, b]) => [`${a} on ${b}`, ratio(a, b)]));
"""
