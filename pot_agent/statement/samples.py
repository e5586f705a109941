"""Sample input and output blocks of contest statements: fenced, indented, plain or on the label's own line.

Limits: a pair is used only where its output follows its input, and where it is clear where each ends. `Input` and
`Output` alone also head the description of a format: they count inside a section of samples, where both are fenced, or
where what follows looks like data. Statements of interactive problems have no samples that a judge could replay.
"""

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["input", "output"]

MAX_BLOCKS = 1_000
"""Labelled blocks of one statement that are looked at."""

_NUMBER = r" ?(?:#|no\.?|case)? ?(?P<number>\d{1,3})?"
_SAMPLE = r"(?:(?P<sample>sample|example)s? (?:test )?(?:case )?(?:#?\d{1,3} )?)?(?:standard )?"
_LABEL = re.compile(
    rf"{_SAMPLE}(?P<kind>input|output)s?(?P<after> (?:sample|example))?(?: ?\((?:stdin|stdout)\))?{_NUMBER}",
    re.IGNORECASE,
)
_INLINE = re.compile(
    rf"[ \t#*_>-]{{0,40}}{_LABEL.pattern}[*_`]{{0,3}} ?:[*_]{{0,3}}[ \t]{{0,8}}(?P<value>\S.*)", re.IGNORECASE
)
_SECTION = re.compile(
    r"(?:sample|example)s?(?: (?:test ?)?(?:cases?|runs?|data|tests?|i/o|inputs? ?(?:/|and|&) ?outputs?))?"
    r" ?#? ?\d{0,3}",
    re.IGNORECASE,
)
_AFTERWORD = re.compile(
    r"(?:explanations?|notes?|constraints?|hints?|limits|scoring|subtasks?|remarks?|comments?|clarifications?)\b"
    r"(?: (?:of|for|to)\b.*| (?:sample )?\d{0,3})? ?(?::.*)?",
    re.IGNORECASE,
)
_SAMPLE_AFTERWORD = re.compile(r"(?:sample|example) explanations?\b.*|explanations?\b.*", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
_HEADING = re.compile(r"[ \t]*(?:#{1,6}[ \t]+\S|\*\*[^*]{1,60}\*\*:?[ \t]*$|-{3,}[ \t]*[A-Za-z][^-]{0,60}-{3,}[ \t]*$)")
_INTERACTIVE = re.compile(
    r"^[ \t#*=_-]{0,20}interaction\b|\binteractive problem\b|\bthe interactor\b", re.IGNORECASE | re.MULTILINE
)
_WORD = re.compile(r"[A-Za-z]{2,}")


@dataclass(kw_only=True)
class _Block:
    kind: Kind
    number: str | None
    is_sample: bool
    """Whether its label, or the section it stands in, says that it is a sample."""
    position: int
    lines: list[str] = field(default_factory=list)
    is_fenced: bool = False
    is_inline: bool = False

    @property
    def text(self) -> str:
        return textwrap.dedent("\n".join(self.lines)).strip("\n")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample: what goes in and what comes out, as text."""

    position: int
    input: str
    output: str


def samples(lines: Sequence[str]) -> list[Sample]:
    """The samples of a statement, in order."""
    found: list[Sample] = []
    for given, wanted in itertools.pairwise(itertools.islice(_blocks(lines), MAX_BLOCKS)):
        if (given.kind, wanted.kind) != ("input", "output") or (given.number or "") != (wanted.number or ""):
            continue
        output = _output_text(wanted)
        if output and _is_clear(given, wanted):
            found.append(Sample(position=given.position, input=_input_text(given), output=output))
    return found


def is_interactive(text: str) -> bool:
    """Whether the statement is of a problem in which the judge answers the program."""
    return _INTERACTIVE.search(text) is not None


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """The labelled blocks: a state machine over lines."""
    block: _Block | None = None
    in_samples, fence = False, ""
    for index, line in enumerate(lines):
        if fence and block is not None:
            if line.strip() == fence:
                yield block
                block, fence = None, ""
            else:
                block.lines.append(line)
            continue
        mark = _FENCE.match(line)
        if mark is not None:
            if block is not None and not block.text.strip():
                block.lines, block.is_fenced, fence = [], True, mark[1]
            elif block is not None:
                yield block
                block = None
            continue
        started = _label(line, index, in_samples)
        section = _section(line)
        if block is not None and (started or section is not None):
            yield block
            block = None
        in_samples = in_samples if section is None else section
        if started is not None:
            block = started
        elif block is not None:
            block.lines.append(line)
    if block is not None and not fence:
        yield block


def _core(line: str) -> str:
    """The words of a heading without its decoration."""
    return " ".join(line.strip(" \t#*-=_:`>|").split()) if len(line) < 100 else ""


def _label(line: str, index: int, in_samples: bool) -> _Block | None:
    core = _core(line)
    label = _LABEL.fullmatch(core) if core else None
    value: list[str] = []
    if label is None:
        label = _INLINE.match(line) if len(line) < 5_000 else None
        if label is None:
            return None
        value = [label["value"].strip().strip("`")]
    is_sample = in_samples or bool(label["sample"] or label["after"])
    kind: Kind = "input" if label["kind"].lower() == "input" else "output"
    return _Block(
        kind=kind, number=label["number"], is_sample=is_sample, position=index, lines=value, is_inline=bool(value)
    )


def _section(line: str) -> bool | None:
    """True where samples begin, False where another section does, None for a line that is no heading."""
    core = _core(line)
    if not core:
        return None
    if _SECTION.fullmatch(core):
        return True
    if _SAMPLE_AFTERWORD.fullmatch(core):
        return None if _LABEL.fullmatch(core) else True
    if _LABEL.fullmatch(core):
        return None
    return False if _AFTERWORD.fullmatch(core) or _HEADING.match(line) else None


def _is_clear(given: _Block, wanted: _Block) -> bool:
    if given.is_fenced and wanted.is_fenced:
        return True
    text = given.text.strip()
    if not text or any(_is_prose(line) for line in [*text.splitlines(), wanted.text.strip().split("\n")[0]]):
        return False
    return (given.is_sample and wanted.is_sample) or (_is_data(text) and _is_data(_output_text(wanted) or ""))


def _is_prose(line: str) -> bool:
    """Whether a line reads as a sentence."""
    words = _WORD.findall(line[:1_000])
    return len(words) >= 5 and line.rstrip().endswith((".", ":", ";", ","))


def _is_data(text: str) -> bool:
    """Whether most of a text is numbers."""
    tokens = text.split()
    return sum(any(mark.isdigit() for mark in token) for token in tokens) * 2 > len(tokens)


def _input_text(block: _Block) -> str:
    return block.text + "\n" if block.text else ""


def _output_text(block: _Block) -> str | None:
    """The output without an explanation below it; None where it is unclear where the output ends."""
    text = block.text.strip("\n")
    if block.is_fenced or not text.strip():
        return text + "\n" if text.strip() else None
    first, *others = re.split(r"\n[ \t]*\n", text)
    if block.is_inline and len(first.splitlines()) > 1 and not _is_data(first):
        first = first.splitlines()[0]
        others = []
    kept = [first]
    for paragraph in others:
        if len(_WORD.findall(paragraph[:2_000])) >= 4:
            break
        if _WORD.search(paragraph):
            return None
        kept.append(paragraph)
    return "\n".join(kept).rstrip() + "\n"
