"""A report as one HTML page that needs nothing else: tiles, curves, tables with bars, and texts."""

from collections.abc import Sequence
from html import escape
from itertools import cycle

from msgspec import Struct

WIDTH, HEIGHT = 860, 320
LEFT, RIGHT, TOP, BOTTOM = 40, 96, 14, 40
COLOURS = ("#3465a4", "#cc7a00", "#2e8b57", "#a03070", "#777777")
SMOOTH = 5
"""Steps that a point of a curve is the mean of."""
LABEL_PX = 16
"""So far apart are names at the ends of curves, at least."""

STYLE = """
:root{--ink:#1d2733;--soft:#5d6b7a;--line:#dfe4ea;--page:#fff;--tile:#f4f6f9;
--part0:#b9c7d8;--part1:#3465a4;--part2:#2e8b57}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ef;--soft:#9aa7b5;--line:#333d48;--page:#14191f;
--tile:#1e252d;--part0:#4a5868;--part1:#6d9bd6;--part2:#5cb585}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;max-width:900px;margin:2.5em auto;padding:0 1.2em;
color:var(--ink);background:var(--page)}
h1{font-size:1.7em;margin:0}h2{font-size:1.2em;margin:2.2em 0 .2em}
p,figcaption{color:var(--soft);margin:.3em 0 1em;max-width:70ch}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:.8em;
margin:1.4em 0}
.tile{background:var(--tile);border-radius:.5em;padding:.8em 1em}
.tile b{display:block;font-size:1.45em}.tile span{color:var(--soft);font-size:.85em}
figure{margin:1.5em 0}svg{width:100%;min-width:560px;height:auto;font-size:13px}
.wide{overflow-x:auto}svg text{fill:var(--soft)}
.grid{stroke:var(--line)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.35em .8em .35em 0;border-bottom:1px solid var(--line);text-align:right;
white-space:nowrap}
td:first-child,th:first-child{text-align:left}th{color:var(--soft);font-weight:500}
td.bar,th.bar{width:40%;min-width:120px;padding-right:0;text-align:left;font-size:.85em}
.bar i{display:inline-block;height:.8em;vertical-align:middle}
.part0{background:var(--part0)}.part1{background:var(--part1)}.part2{background:var(--part2)}
@media(max-width:640px){td.bar,th.bar{display:none}td,th{white-space:normal}}
details{border-top:1px solid var(--line);padding:.4em 0}summary{cursor:pointer}
dt{color:var(--soft);font-size:.85em;margin-top:.5em}dd{margin:0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--tile);border-radius:.4em;
padding:.5em .7em;margin:.2em 0;font-size:.85em}
.key{margin-right:1em}.key i{width:.8em;margin-right:.35em}
"""


class Tile(Struct, frozen=True):
    """One number that matters."""

    value: str
    means: str


class Curve(Struct, frozen=True, kw_only=True):
    """Values over steps; `before` and `after` are marked at the ends."""

    name: str
    points: tuple[tuple[int, float], ...]
    before: float | None = None
    after: float | None = None
    smooth: int = SMOOTH
    """Points that are drawn as their mean."""


class Figure(Struct, frozen=True, kw_only=True):
    """Curves in one picture."""

    curves: Sequence[Curve]
    shows: str
    """The description for readers that show no picture."""
    caption: str


class Section(Struct, frozen=True, kw_only=True):
    """A table; its first row is the head."""

    title: str
    note: str
    rows: Sequence[Sequence[str]]
    bars: Sequence[Sequence[float]]
    """For each row below the head, how long the parts of its bar are; 1 is the whole width."""
    parts: Sequence[str]


class Excerpt(Struct, frozen=True, kw_only=True):
    """A text that is shown when its title is clicked; its parts take turns."""

    title: str
    parts: Sequence[tuple[str, str]]
    """The speaker, and what it said."""


Block = Figure | Section | Excerpt


def page(title: str, sentence: str, tiles: Sequence[Tile], blocks: Sequence[Block]) -> str:
    shown = "".join(
        f'<div class="tile"><b>{escape(tile.value).replace("&gt;", "&rarr;")}</b>'
        f"<span>{escape(tile.means)}</span></div>"
        for tile in tiles
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        f'content="light dark"><style>{STYLE}</style><h1>{escape(title)}</h1>'
        f'<p>{escape(sentence)}</p><div class="tiles">{shown}</div>'
        f"{''.join(map(_block, blocks))}</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Figure():
            return _figure(block)
        case Section():
            return _section(block)
        case Excerpt():
            return _excerpt(block)


def _excerpt(excerpt: Excerpt) -> str:
    parts = "".join(
        f"<dt>{escape(speaker)}</dt><dd><pre>{escape(text)}</pre></dd>"
        for speaker, text in excerpt.parts
    )
    return f"<details><summary>{escape(excerpt.title)}</summary><dl>{parts}</dl></details>"


def _section(section: Section) -> str:
    head, *body = section.rows
    keys = "".join(
        f'<span class="key"><i class="{_colour(i, section)}"></i>{escape(part)}</span>'
        for i, part in enumerate(section.parts)
    )
    lines = "".join(
        f"<tr>{_cells('td', row)}{_bar(bar, section)}</tr>"
        for row, bar in zip(body, section.bars, strict=True)
    )
    return (
        f"<h2>{escape(section.title)}</h2><p>{escape(section.note)}</p>"
        f'<div class="wide"><table><tr>{_cells("th", head)}<th class="bar">{keys}</th></tr>'
        f"{lines}</table></div>"
    )


def _cells(tag: str, row: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)


def _bar(parts: Sequence[float], section: Section) -> str:
    drawn = "".join(
        f'<i class="{_colour(i, section)}" style="width:{100 * part:.2f}%"></i>'
        for i, part in enumerate(parts)
        if part > 0
    )
    return f'<td class="bar">{drawn}</td>'


def _colour(part: int, section: Section) -> str:
    """A bar of one part has the colour that stands out."""
    return f"part{part if len(section.parts) > 1 else 1}"


def _figure(figure: Figure) -> str:
    curves = [curve for curve in figure.curves if curve.points]
    scale = _Scale.of(curves)
    colours = cycle(COLOURS)
    drawn = "".join(_drawn(curve, next(colours), scale) for curve in curves)
    return (
        f'<figure><div class="wide"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(figure.shows)}">{_axes(scale)}{drawn}{_names(curves, scale)}</svg>'
        f"</div><figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


class _Scale(Struct, frozen=True, kw_only=True):
    """From steps and values to places in the picture. 0 and 1 are always in it."""

    last: int
    low: float
    high: float

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> "_Scale":
        values = [value for curve in curves for _, value in curve.points]
        return cls(
            last=max((curve.points[-1][0] for curve in curves), default=1),
            low=min([0.0, *values]),
            high=max([1.0, *values]),
        )

    def x(self, step: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - 1) / max(1, self.last - 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return TOP + (HEIGHT - BOTTOM - TOP) * (1 - share)


def _axes(scale: _Scale) -> str:
    marks = [scale.low + (scale.high - scale.low) * part / 4 for part in range(5)]
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark:.3g}</text>'
        for mark in marks
        for y in [scale.y(mark)]
    )
    ticks = sorted({1, *(max(1, round(scale.last * part / 5)) for part in range(1, 6))})
    steps = "".join(
        f'<text x="{scale.x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}'
        "</text>"
        for step in ticks
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'{lines}{steps}<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">step</text>'


def _drawn(curve: Curve, colour: str, scale: _Scale) -> str:
    values = _smooth(curve)
    steps = [step for step, _ in curve.points]
    points = " ".join(
        f"{scale.x(s):.1f},{scale.y(v):.1f}" for s, v in zip(steps, values, strict=True)
    )
    circles = "".join(
        f'<circle cx="{scale.x(step):.1f}" cy="{scale.y(value):.1f}" r="4.5" fill="{colour}"/>'
        for step, value in ((1, curve.before), (scale.last, curve.after))
        if value is not None
    )
    line = f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
    return line + circles


def _names(curves: Sequence[Curve], scale: _Scale) -> str:
    """At the ends of the curves, moved apart where they would cover each other."""
    ends = [
        (scale.y(_end_of(curve)), curve.name, colour)
        for curve, colour in zip(curves, cycle(COLOURS), strict=False)
    ]
    named, free = "", -float("inf")
    for y, name, colour in sorted(ends):
        free = max(y + 4, free + LABEL_PX)
        named += (
            f'<text x="{WIDTH - RIGHT + 12}" y="{free:.1f}" style="fill:{colour}" '
            f'font-weight="600">{escape(name)}</text>'
        )
    return named


def _end_of(curve: Curve) -> float:
    """Where its line ends, or its last circle is."""
    if curve.after is not None:
        return curve.after
    return _smooth(curve)[-1]


def _smooth(curve: Curve) -> list[float]:
    values = [value for _, value in curve.points]
    recent = [values[max(0, i - curve.smooth + 1) : i + 1] for i in range(len(values))]
    return [sum(few) / len(few) for few in recent]
