"""The page, the Markdown and the JSON, whatever a model wrote: text stays text, and nothing is fetched."""

import base64
import hashlib
import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent.bench.record import Thought
from pot_agent.bench.report import report
from pot_agent.bench.report.formatting import printable
from pot_agent.bench.report.markdown import escaped
from pot_agent.bench.report.page import kept
from pot_agent.bench.report.reading import read_runs
from pot_agent.bench.report.trees import MAX_TEXT_CHARACTERS, pack, packed_problems, unpack
from tests.bench.runs import ATTACK, manifest, plausible, record, searched, write_run

HOSTILE = (
    ATTACK,
    "<!--<script>",
    "]]><svg/onload=alert(1)>",
    "javascript:alert(document.domain)",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&amp;&#60;",
    "\x00\x01\x1b[31mred\x1b[0m\x7f\x85\u2028\u202e",
    "lone \ud800 and \udfff surrogates",
    "' onmouseover='alert(1)' \" onfocus=\"alert(1)",
    "[click](javascript:alert(1)) ![x](http://127.0.0.1/x) | cell | `code` <http://127.0.0.1>",
)


class Markup(HTMLParser):
    """Every element of a page, with its attributes, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


def parsed(path: Path) -> Markup:
    found = Markup()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def hostile_run(folder: Path, *texts: str, about: str | None = None) -> Path:
    """A run in which a model, a statement and an error say each text; so does the manifest, unless `about` is given."""
    root = Thought(parent=None, iteration=0, committed=False, program=None, reward=None, visits=1, value=0.0, prior=1.0)
    thought = Thought(**{**root, "parent": 0, "iteration": 1, "program": 0, "reward": 0.5})  # type: ignore[typeddict-item]
    records = []
    for index, text in enumerate(texts):
        program = {"text": text, "verdict": text, "passed": 1, "total": 3, "feedback": text}
        made = record(
            f"{index} {text if about is None else about}", title=text, program=text, programs=[program],
            tree=[root, thought], committed_path=[0, 1], error=f"PolicyError: {text}", correct=False,
            warnings=[text], verdict=text, stop_reason=text,
        )  # fmt: skip
        records.append(made)
    said = "".join(texts) if about is None else about
    run = manifest(methods=["pot"], command=["pot", "bench", said], machine={said: said}, model={"model": said})
    return write_run(folder, run, records)


def test_hostile_text_adds_no_element_no_attribute_and_no_script(tmp_path: Path) -> None:
    made = report([hostile_run(tmp_path / "hostile", *HOSTILE)], tmp_path / "out")
    found = parsed(made.page)
    harmless = hostile_run(tmp_path / "plain", *("harmless" for _ in HOSTILE))
    plain = parsed(report([harmless], tmp_path / "plain" / "out").page)
    assert [(tag, list(attrs)) for tag, attrs in found.elements] == [(tag, list(a)) for tag, a in plain.elements]
    assert found.scripts[-1] == plain.scripts[-1]
    links = [value for _, attrs in found.elements for name, value in attrs.items() if name in ("href", "src")]
    assert all(value is not None and value.startswith(("#", "data:,")) for value in links)
    json.loads(made.data.read_text())
    assert not re.search(r"(?<!\\)<", made.markdown.read_text())


def test_hostile_text_arrives_whole_where_it_is_shown(tmp_path: Path) -> None:
    problems = packed_problems(read_runs([hostile_run(tmp_path, *HOSTILE)]))
    for problem, text in zip(problems, HOSTILE, strict=True):
        assert problem["packed"] is not None
        assert re.fullmatch(r"[A-Za-z0-9+/=]+", problem["packed"])
        (run,) = unpack(problem["packed"])
        assert run["program"] == run["programs"][0]["text"] == run["programs"][0]["feedback"] == text
        assert run["error"] == f"PolicyError: {text}"
        assert run["warnings"] == [text]


def test_the_page_allows_its_own_script_alone_and_asks_for_nothing(tmp_path: Path) -> None:
    path = report([plausible(tmp_path / "run")], tmp_path / "out").page
    found = parsed(path)
    policy = next(attrs["content"] for tag, attrs in found.elements if attrs.get("http-equiv"))
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(found.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"img", "iframe", "object", "embed", "audio", "video", "base", "form", "image", "foreignobject"}
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
    }  # fmt: skip
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#", "", text)
    run_by_hand = [attrs for tag, attrs in found.elements if tag == "script" and not attrs.get("type")]
    assert len(run_by_hand) == 1
    assert not any(name.startswith("on") for _, attrs in found.elements for name in attrs)


def test_a_program_of_a_megabyte_is_cut_and_says_so(tmp_path: Path) -> None:
    made = report([hostile_run(tmp_path, "x" * 2**20, about="plain")], tmp_path / "out")
    (run,) = unpack(packed_problems(read_runs([tmp_path]))[0]["packed"] or "")
    assert run["program"].startswith("x" * MAX_TEXT_CHARACTERS + "\n… 1,028,576 more characters")
    assert len(run["error"]) < MAX_TEXT_CHARACTERS + 100
    assert made.page.stat().st_size < 2**20


def test_trees_that_would_make_the_page_too_large_are_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plausible(tmp_path / "run")
    sizes = [len(problem["packed"] or "") for problem in packed_problems(read_runs([folder]))]
    monkeypatch.setattr("pot_agent.bench.report.trees.MAX_TREES_BYTES", sum(sizes[:3]))
    problems = packed_problems(read_runs([folder]))
    assert [problem["packed"] is None for problem in problems] == [False] * 3 + [True] * 9
    found = parsed(report([folder], tmp_path / "out").page)
    assert found.text.count("The trees of this problem were left out") == 9
    assert len(found.scripts) == 4


@pytest.mark.long
def test_the_page_of_164_problems_by_five_methods_with_large_programs_stays_below_30_megabytes(tmp_path: Path) -> None:
    dice = random.Random(3)
    records = []
    for number in range(164):
        for method in ("zero_shot", "best_of_n", "mcts", "pot", "pot:k=8"):
            name = f"HumanEval/{number}"
            made = searched(name, method, 0, dice) if method in ("mcts", "pot") else record(name, method)
            noise = dice.randbytes(4_000).hex()  # no compression makes this small
            made["programs"] = [{**program, "text": noise[index:]} for index, program in enumerate(made["programs"])]
            made["program"] = dice.randbytes(9_000).hex()
            made |= {"visible_total": 3, "visible_passed": 3 if made["visible_solved"] else 1}  # type: ignore[typeddict-item]
            records.append(made)
    methods = ["zero_shot", "best_of_n", "mcts", "pot", "pot:k=8"]
    made_report = report([write_run(tmp_path / "run", manifest(methods=methods), records)], tmp_path / "out")
    assert 5e6 < made_report.page.stat().st_size < 30e6


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_packed_is_unpacked(data: Any) -> None:
    assert unpack(pack(data)) == data
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", pack(data))


@given(st.text(alphabet=st.characters() | st.sampled_from("()<>&\"'"), max_size=60))
def test_what_is_kept_on_a_line_is_still_the_same_text(text: str) -> None:
    found = Markup()
    found.feed(f"<p>{kept(text.replace(chr(13), ''))}</p>")
    found.close()
    assert {tag for tag, _ in found.elements} <= {"p", "span"}
    assert found.text == text.replace("\r", "")


@given(st.text(max_size=80))
def test_markdown_takes_any_text_as_text_on_one_line(text: str) -> None:
    shown = escaped(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[|<>`*_\[\]!]", shown)
    assert shown.isprintable()
    assert re.sub(r"\\([\\`*_{}\[\]<>|~#$!&])", r"\1", shown) == " ".join(printable(text).split())


def test_the_markdown_has_a_table_of_methods_and_says_what_the_page_says(tmp_path: Path) -> None:
    made = report([plausible(tmp_path / "run")], tmp_path / "out")
    text, page = made.markdown.read_text(), parsed(made.page).text
    lines = text.splitlines()
    for start in (index for index, line in enumerate(lines) if line.startswith("| --- ")):
        cells = lines[start].count("|")
        for line in lines[start - 1 :]:
            if not line.startswith("|"):
                break
            assert len(re.findall(r"(?<!\\)\|", line)) == cells, line
    for title in ("Methods", "PoT against search without learning", "Updates", "Budget and what was really spent"):
        assert f"## {title}" in text
        assert title in page
    assert "pot against mcts on 12 problems" in page
    assert "pot against mcts on 12 problems" in text


def test_the_json_has_every_figure_and_every_curve(tmp_path: Path) -> None:
    made = report([plausible(tmp_path / "run", seeds=(0, 1))], tmp_path / "out")
    data = json.loads(made.data.read_text())
    assert data["report_version"] == 1
    assert {row["arm"] for row in data["methods"]} == {"zero_shot", "best_of_n", "mcts", "pot"}
    assert set(data["plots"]) == {"tokens", "seconds", "gap", "best", "reward", "kl", "norm"}
    assert data["learning"][0]["on"] == "all common"
    assert data["matching"]["problems"] == 24
    assert data["plots"]["kl"]["pot"]["y"]
