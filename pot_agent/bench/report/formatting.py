"""Numbers as people read them."""

from pot_agent.bench.report.statistics import Estimate

NOTHING = "–"


def printable(text: str) -> str:
    """Text without what a terminal would act on: control characters and lone surrogates become spaces."""
    return "".join(character if character.isprintable() else " " for character in text)


def percent(share: float | None) -> str:
    """0.4213 as `42.1 %`, the space unbreakable."""
    return NOTHING if share is None else f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def estimated(found: Estimate | None) -> str:
    """A share with its interval: `42.1 % (34.8–49.7)`."""
    if found is None:
        return NOTHING
    return f"{percent(found['value'])} ({100 * found['low']:.1f}–{100 * found['high']:.1f})"


def points(difference: float | None, low: float | None, high: float | None) -> str:
    """A difference of shares in percentage points: `+3.1 (−1.0 to +7.2)`."""
    if difference is None:
        return NOTHING
    span = "" if low is None or high is None else f" ({_signed(low)} to {_signed(high)})"
    return _signed(difference) + span


def _signed(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def p_value(p: float) -> str:
    """A p-value to two digits."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.995 else "1"


def number(value: float | None) -> str:
    """A count or a mean, to about three digits."""
    if value is None:
        return NOTHING
    return (
        f"{value:,.0f}"
        if abs(value) >= 100 or value == int(value)
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
    )


def scaled(value: float | None) -> str:
    """A large number with its SI prefix: 3.86e15 as `3.86 P`."""
    if value is None:
        return NOTHING
    for prefix, factor in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return number(value)


def ratio(value: float | None) -> str:
    """A multiple: `×1.04`."""
    return NOTHING if value is None else f"×{value:.2f}" if value < 100 else f"×{value:,.0f}"
