# SPDX-License-Identifier: GPL-2.0
"""Draws results as SVG: rate over size, distribution of latencies, rate over queue pairs.

Plain text, no library: what is needed is a few axes and lines.
"""

import html
import math
import textwrap

COLOURS = {"ferroce": "#0b6e4f", "rxe": "#c4572b", "limit": "#888888"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 360, 260, 64, 34, 12, 44
# Of the legend: the width of a name. Of the caption: the height of a line, and the width of a wide character.
NAME, LINE, CHARACTER = 165, 14, 6
SIZES = ("B", "KiB", "MiB")


def size_label(size):
    """2, 4 KiB, 1 MiB."""
    unit = 0
    while size >= 1024:
        size /= 1024
        unit += 1
    return f"{size:g} {SIZES[unit]}"


def number_label(value):
    """1, 10, 100, 10k."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


class Axis:
    """A scale by logarithm, from and to values that may not be zero."""

    def __init__(self, title, values, ticks=None, label=number_label):
        self.title = title
        self.label = label
        if ticks is None:
            low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
            ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
        self.ticks = ticks
        self.low = math.log(min([*ticks, *values]))
        self.high = max(math.log(max([*ticks, *values])), self.low + 1e-9)

    def place(self, value, begin, end):
        return begin + (math.log(value) - self.low) / (self.high - self.low) * (end - begin)


class Shares(Axis):
    """A linear scale of percents."""

    def __init__(self, title):
        super().__init__(title, [1], [1, 2])
        self.ticks = [0, 25, 50, 75, 100]
        self.label = lambda value: f"{value:g} %"

    def place(self, value, begin, end):
        return begin + value / 100 * (end - begin)


def text(x, y, words, **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{html.escape(words)}</text>'


def panel(left, title, across, up, lines):
    """One diagram. lines: (name, dashed, points)."""
    x0, x1 = left + LEFT, left + WIDTH - RIGHT
    y0, y1 = HEIGHT - BOTTOM, TOP
    parts = [text((x0 + x1) / 2, 18, title, text_anchor="middle", font_weight="bold")]
    for tick in across.ticks:
        x = across.place(tick, x0, x1)
        parts.append(f'<line x1="{x:.1f}" y1="{y0}" x2="{x:.1f}" y2="{y1}" class="grid"/>')
        parts.append(text(x, y0 + 14, across.label(tick), text_anchor="middle"))
    for tick in up.ticks:
        y = up.place(tick, y0, y1)
        parts.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x1}" y2="{y:.1f}" class="grid"/>')
        parts.append(text(x0 - 5, y + 4, up.label(tick), text_anchor="end"))
    parts.append(text((x0 + x1) / 2, HEIGHT - 10, across.title, text_anchor="middle"))
    middle = (y0 + y1) / 2
    parts.append(text(left + 14, middle, up.title, text_anchor="middle",
                      transform=f"rotate(-90 {left + 14} {middle})"))  # fmt: skip
    for name, dashed, points in lines:
        places = [(across.place(x, x0, x1), up.place(y, y0, y1)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"{dash}/>')
        if len(points) < 20 and name != "limit":
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[name]}"/>' for x, y in places]
    return parts


def document(path, about, panels, names):
    """Writes a file of panels side by side, with a legend and the command that made it."""
    # As wide as its legend, too.
    width = max(WIDTH * len(panels), LEFT + NAME * len(names) + RIGHT)
    words = f"{about['command']}; {about['source']}; kernel {about['kernel']}, {about['cpus']} CPUs, emulated"
    caption = textwrap.wrap(words, (width - LEFT) // CHARACTER)
    height = HEIGHT + 30 + LINE * len(caption)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<!-- SPDX-License-Identifier: GPL-2.0 -->",
        "<style>text{font:11px sans-serif;fill:#222}.grid{stroke:#ddd}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, arguments in enumerate(panels):
        parts += panel(number * WIDTH, *arguments)
    x = LEFT
    for name, words in names.items():
        dash = ' stroke-dasharray="5 4"' if words != name else ""
        parts.append(f'<line x1="{x}" y1="{HEIGHT + 6}" x2="{x + 24}" y2="{HEIGHT + 6}" '
                     f'stroke="{COLOURS[name.split()[0]]}" stroke-width="2"{dash}/>')  # fmt: skip
        parts.append(text(x + 30, HEIGHT + 10, words))
        x += NAME
    parts += [text(LEFT, HEIGHT + 32 + LINE * number, words) for number, words in enumerate(caption)]
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n")


def series(results, driver, value):
    """(case, value) of the cases that have a figure."""
    return [(case, value(case, result)) for case, result in results if driver in result]


def rate_panel(title, results, across, unit, scale):
    """ferroce, rxe and the limit over something; `across` makes the axis and says where a case stands on it."""
    make_axis, position = across
    metric = "messages_per_second" if unit.startswith("1000") else "bytes_per_second"
    lines = []
    for driver in ("ferroce", "rxe"):
        points = series(results, driver, lambda case, result: result[driver][metric]["median"] * scale)
        lines.append((driver, False, sorted((position(case), value) for case, value in points)))
    top = [(position(case), result["limit"] * (1 if unit.startswith("1000") else case.size) * scale)
           for case, result in results]  # fmt: skip
    lines.append(("limit", True, sorted(top)))
    lines = [line for line in lines if line[2]]
    values = [value for _, _, points in lines for _, value in points]
    return title, make_axis([position(case) for case, _ in results]), Axis(unit, values), lines


LEGEND = {"ferroce": "ferroce", "rxe": "rxe", "limit": "limit, from the yardsticks"}


def rate_over_size(path, about, results):
    """RC, polling, one queue pair, path MTU 4096."""

    def axis(values):
        return Axis("message", values, ticks=sorted(set(values))[::2], label=size_label)

    panels = []
    for operation in ("send", "write", "read"):
        chosen = [(case, result) for case, result in results
                  if (case.place, case.kind, case.transport, case.operation) == ("veth", "rate", "RC", operation)
                  and (case.events, case.list_length, case.qps, case.mtu) == (False, 1, 1, 4096)]  # fmt: skip
        if len(chosen) > 2 and any("ferroce" in result for _, result in chosen):
            panels.append(rate_panel(f"RC {operation}", chosen, (axis, lambda case: case.size), "MB/s", 1e-6))
    if panels:
        document(path, about, panels, LEGEND)


def rate_over_qps(path, about, results):
    """RC, polling, path MTU 4096."""

    def axis(values):
        return Axis("queue pairs", values, ticks=sorted(set(values)), label=lambda value: f"{value:g}")

    panels = []
    for operation, size, unit, scale in (
        ("send", 2, "1000 messages/s", 1e-3),
        ("send", 65536, "MB/s", 1e-6),
        ("write", 65536, "MB/s", 1e-6),
        ("read", 65536, "MB/s", 1e-6),
    ):
        chosen = [(case, result) for case, result in results
                  if (case.place, case.kind, case.transport, case.operation) == ("veth", "rate", "RC", operation)
                  and (case.events, case.list_length, case.size, case.mtu) == (False, 1, size, 4096)]  # fmt: skip
        if len(chosen) > 2 and any("ferroce" in result for _, result in chosen):
            title = f"RC {operation}, {size_label(size)}"
            panels.append(rate_panel(title, chosen, (axis, lambda case: case.qps), unit, scale))
    if panels:
        document(path, about, panels, LEGEND)


def latencies(path, about, results):
    """How many of the messages of 2 bytes took at most so long."""
    panels = []
    for operation, events in (("send", False), ("write", False), ("read", False), ("send", True)):
        lines = []
        for case, result in results:
            if (case.place, case.kind, case.transport, case.operation) != ("veth", "latency", "RC", operation):
                continue
            if (case.size, case.events) != (2, events):
                continue
            for driver in ("ferroce", "rxe"):
                every = result.get(driver, {}).get("hundredths")
                if every:
                    lines.append((driver, False, [(value * 1e6, share) for share, value in enumerate(every)]))
        if lines:
            values = [value for _, _, points in lines for value, _ in points]
            title = f"RC {operation}, 2 B, {'events' if events else 'polling'}"
            panels.append((title, Axis("us", values), Shares("of the messages"), lines))
    if panels:
        document(path, about, panels, {"ferroce": "ferroce", "rxe": "rxe"})


def write(directory, about, results):
    """All plots for which the results suffice."""
    rate_over_size(directory / "rate-over-size.svg", about, results)
    rate_over_qps(directory / "rate-over-queue-pairs.svg", about, results)
    latencies(directory / "latencies.svg", about, results)
