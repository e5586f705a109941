"""The page in a real browser: nothing runs that should not, nothing is fetched, and trees can be clicked through."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pot_agent.bench.report import report
from tests.bench.browser import CHROMIUM, Browser
from tests.bench.runs import ATTACK, manifest, plausible, record, visible_tests, write_run

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; Debian: apt-get install chromium"),
]
SIZES = [(360, False), (360, True), (1280, False), (1280, True)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve problems by four methods with two seeds, an attack in every program, and notes."""
    folder = tmp_path_factory.mktemp("run")
    return report([plausible(folder, seeds=(0, 1))], folder / "out").page


def quiet(browser: Browser, page: Path) -> None:
    assert browser.console == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [page.as_uri()]
    assert browser.run("document.title") == "humaneval · Policy of Thoughts"


def open_problem(browser: Browser, name: str) -> str:
    """Click a problem open, and wait for its tree; a selector of it."""
    code = (
        f"[...document.querySelectorAll('.problem')].findIndex(p => p.querySelector('.name').textContent === '{name}')"
    )
    index = browser.run(code)
    browser.run(f"document.querySelectorAll('.problem')[{index}].id = 'asked'")
    browser.click("#asked > summary")
    browser.wait("document.querySelectorAll('#asked .thought').length")
    return "#asked"


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_the_page_fits_its_window_and_is_quiet(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    open_problem(browser, "HumanEval/3")
    scroll, inner = browser.run("[document.documentElement.scrollWidth, innerWidth]")
    assert (scroll, inner) == (width, width)
    code = "[...document.querySelectorAll('h1,h2,td,figure,summary,pre,.thought,dd')].filter(e => " \
        "e.getBoundingClientRect().right > innerWidth && !e.closest('.wide')).length"  # fmt: skip
    assert browser.run(code) == 0
    quiet(browser, page)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out_from_the_paper_in_light_and_in_dark(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, width=1280, dark=dark)
    code = """(() => {
      const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const linear = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      const light = c => { const [r, g, b] = rgb(c).map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const over = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      const of = (selector, name) =>
        [...document.querySelectorAll(selector)].map(e => over(light(getComputedStyle(e)[name]), paper));
      return {paper, text: Math.min(...of('p, td, th, figcaption, dd, li', 'color')),
        labels: Math.min(...of('figure svg text', 'fill')),
        lines: Math.min(...of('.legend path', 'stroke')) };
    })()"""
    found = browser.run(code)
    assert (found["paper"] < 0.1) == dark
    assert found["text"] >= 4.5  # WCAG AA
    assert found["labels"] >= 4.5
    assert found["lines"] >= 3.0


def test_a_thought_tree_is_clicked_through_from_the_problem_to_a_program(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    quiet(browser, page)
    found = browser.run("""(async () => {
      for (const problem of document.querySelectorAll('.problem')) {
        const runs = await unpacked(problem.querySelector('script').textContent);
        const run = runs.findIndex(r => r.updates > 0);
        if (run >= 0) return {name: problem.querySelector('.name').textContent, run, data: runs[run]};
      }})()""")
    place, data = open_problem(browser, found["name"]), found["data"]
    browser.click(f"{place} .tabs button:nth-child({found['run'] + 1})")
    assert browser.run(f"document.querySelector('{place} [aria-selected=true]').textContent").endswith(
        f"{data['method']} · seed {data['seed']}"
    )
    assert browser.run(f"document.querySelectorAll('{place} .thought').length") == len(data["tree"])
    moved = browser.run(f"[...document.querySelectorAll('{place} .update.moved')].map(e => e.textContent)")
    assert len(moved) == data["updates"]
    assert "↻ update to version 1 (KL " in moved[0]
    on_path = browser.run(f"[...document.querySelectorAll('{place} .onpath > .thought')].map(e => +e.dataset.node)")
    assert sorted(on_path) == sorted(data["committed_path"])
    for index, node in enumerate(data["tree"]):
        if index == 0:
            continue
        browser.click(f"{place} [data-node='{index}']")
        program = data["programs"][node["program"]]
        shown = browser.run(f"[...document.querySelectorAll('{place} .panel pre')].map(e => e.textContent)")
        assert shown == [program["text"], program["feedback"]][: 1 + bool(program["feedback"])]
        assert ATTACK in shown[0]
        title = browser.run(f"document.querySelector('{place} .panel h4').textContent")
        words = program["verdict"].replace("_", " ")
        assert title == f"Thought {index}: {words}, {program['passed']} of {program['total']} visible tests"
    browser.click(f"{place} [data-node='0']")
    assert browser.run(f"document.querySelector('{place} .panel h4').textContent") == "The answer"
    quiet(browser, page)


def test_on_a_phone_a_thought_that_is_tapped_is_shown(browser: Browser, page: Path) -> None:
    browser.open(page, width=360, height=420)
    largest = browser.run("""(async () => {
      let found = ["", 0];
      for (const problem of document.querySelectorAll('.problem'))
        for (const run of await unpacked(problem.querySelector('script').textContent))
          if (1000 * run.updates + run.tree.length > found[1])
            found = [problem.querySelector('.name').textContent, 1000 * run.updates + run.tree.length];
      return found[0] })()""")  # the run that is shown first, and its tree is longer than the window
    place = open_problem(browser, largest)
    assert browser.run(f"document.querySelector('{place} .tree').getBoundingClientRect().height") > 420
    browser.click(f"{place} [data-node='1']")
    assert browser.wait(
        f"(() => {{ const b = document.querySelector('{place} .panel h4').getBoundingClientRect(); "
        "return b.top >= 0 && b.bottom <= innerHeight })()"
    )


def test_problems_are_filtered_by_name_and_by_result(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    shown = "[...document.querySelectorAll('.problem:not([hidden]) .name')].map(e => e.textContent)"

    def filtered(text: str) -> list[str]:
        browser.run(f"(() => {{ const f = document.getElementById('filter'); f.value = {text!r}; "
                    "f.dispatchEvent(new Event('input')) })()")  # fmt: skip
        return list(browser.run(shown))

    assert len(filtered("")) == 12
    assert filtered("humaneval/11") == ["HumanEval/11"]
    marked = browser.run(
        "[...document.querySelectorAll('.problem')]"
        ".filter(p => p.querySelectorAll('.mark')[3].classList.contains('mixed'))"
        ".map(p => p.querySelector('.name').textContent)"
    )
    assert marked
    assert filtered("pot mixed") == marked
    assert filtered("nothing like it") == []


def test_control_characters_and_surrogates_reach_the_page_as_text(browser: Browser, tmp_path: Path) -> None:
    text = "\x00\x01\x1b[31m \ud800 \u202e </pre><b>bold</b> " + ATTACK
    made = record("p/0", title=text, program=text, error=f"E: {text}", correct=False, warnings=[text])
    page = report([write_run(tmp_path / "run", manifest(methods=["pot"]), [made])], tmp_path / "out").page
    browser.open(page, width=1280)
    browser.click(".problem > summary")
    shown = browser.wait("document.querySelector('.panel pre')?.textContent")
    assert "</pre><b>bold</b>" in shown
    assert browser.run("document.querySelectorAll('main b, main img, .panel script').length") == 0
    quiet(browser, page)


def test_a_script_that_got_onto_the_page_would_not_run(browser: Browser, page: Path, tmp_path: Path) -> None:
    # what the page's own policy is for: the attack as markup, as if everything else had failed
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("<main>", f"<main>{ATTACK.removeprefix('</script>')}"))
    browser.open(broken, width=1280)
    assert browser.run("document.title") == "humaneval · Policy of Thoughts"
    assert any("Content Security Policy" in line for line in browser.console)


def test_the_page_of_164_problems_by_five_methods_opens(browser: Browser, tmp_path: Path) -> None:
    folder = plausible(tmp_path / "run", problems=164)
    names = [f"HumanEval/{number}" for number in range(164)]
    fifth = [record(name, "self_certainty", visible_total=visible_tests(name)) for name in names]
    write_run(tmp_path / "more", manifest(methods=["self_certainty"]), fifth)
    page = report([folder, tmp_path / "more"], tmp_path / "out").page
    assert page.stat().st_size < 30e6
    browser.open(page, width=1280)
    assert browser.run("document.querySelectorAll('.problem').length") == 164
    assert browser.run("document.querySelectorAll('.problem .mark').length") == 5 * 164
    open_problem(browser, "HumanEval/163")
    quiet(browser, page)
