"""Line plots as PNG files, without a library for it: numbers in, a picture out."""
from __future__ import annotations

import math

import numpy as np

from outboard import png

WIDTH, HEIGHT = 720, 480
LEFT, RIGHT, TOP, BOTTOM = 80, 180, 40, 60  # margins
SCALE = 2  # pixels for each dot of a letter
BLACK, GREY = (0, 0, 0), (215, 215, 215)
Place = tuple[float, float]  # x from the left, y from above
Colour = tuple[int, int, int]
COLOURS = [(31, 110, 190), (220, 100, 20), (40, 150, 60), (190, 40, 60), (120, 80, 180), (110, 90, 70)]

# Letters of 3 x 5 dots: an octal digit a row, its highest bit on the left.
FONT = dict(zip("0123456789abcdefghijklmnopqrstuvwxyz.-+%/=:,()_ ", (
    "75557 26227 71747 71717 55711 74717 74757 71122 75757 75717 25755 65656 34443 65556 74647 74644 34553 55755 72227 "
    "11152 55655 44447 57755 65555 25552 65644 25563 65655 34216 72222 55557 55552 55775 55255 55222 71247 00002 00700 "
    "02720 51245 11244 07070 02020 00024 24442 21112 00007 00000").split()))


class Canvas:
    def __init__(self) -> None:
        self.pixels = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)

    def dot(self, x: float, y: float, size: int, colour: Colour) -> None:
        column, row = round(x) - size // 2, round(y) - size // 2
        self.pixels[max(row, 0):max(row + size, 0), max(column, 0):max(column + size, 0)] = colour

    def line(self, begin: Place, end: Place, size: int, colour: Colour) -> None:
        steps = max(round(max(abs(end[0] - begin[0]), abs(end[1] - begin[1]))), 1)
        for x, y in zip(np.linspace(begin[0], end[0], steps + 1), np.linspace(begin[1], end[1], steps + 1)):
            self.dot(x, y, size, colour)

    def text(self, x: float, y: float, text: str, across: float = 0, colour: Colour = BLACK) -> None:
        """In capitals, centred on the row y; `across` of it is left of x. What has no letter is left blank."""
        x -= across * 4 * SCALE * len(text)
        for i, letter in enumerate(text.lower()):
            for row, bits in enumerate(FONT.get(letter, "00000")):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self.dot(x + SCALE * (4 * i + column), y + SCALE * (row - 2), SCALE, colour)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between the two, about five."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * 6 >= high - low)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def lines(path: str, series: dict[str, list[tuple[float, float]]], x_name: str, y_name: str, title: str) -> None:
    """A line for each entry of `series`, its points in the order of x. The x axis is logarithmic: x > 0.

    What is not finite (a training that ran away) has no point. Raises ValueError where nothing is left.
    """
    series = {name: sorted(p for p in points if all(map(math.isfinite, p))) for name, points in series.items()}
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    if not xs:
        raise ValueError(f"{path}: nothing to plot")
    margin = 0.05 * (max(ys) - min(ys)) or 0.05 * abs(ys[0]) or 1.0
    low, high = min(ys) - margin, max(ys) + margin
    width, height = math.log(xs[-1] / xs[0]) or 1.0, high - low

    def at(x: float, y: float) -> Place:
        right, up = (math.log(x / xs[0]) / width if len(xs) > 1 else 0.5), (y - low) / height
        return LEFT + (0.04 + 0.92 * right) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    canvas = Canvas()
    for y in ticks(low, high):
        row = at(xs[0], y)[1]
        canvas.line((LEFT, row), (WIDTH - RIGHT, row), 1, GREY)
        canvas.text(LEFT - 8, row, f"{y:.4g}", across=1)
    for x in xs:
        column = at(x, low)[0]
        canvas.line((column, TOP), (column, HEIGHT - BOTTOM), 1, GREY)
        canvas.text(column, HEIGHT - BOTTOM + 12, f"{x:.3g}", across=0.5)
    canvas.line((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), 2, BLACK)
    canvas.line((LEFT, TOP), (LEFT, HEIGHT - BOTTOM), 2, BLACK)
    canvas.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 36, x_name, across=0.5)
    canvas.text(8, TOP - 20, y_name)
    canvas.text((LEFT + WIDTH - RIGHT) / 2, TOP - 20, title, across=0.5)
    for i, (name, points) in enumerate(series.items()):
        colour, row = COLOURS[i % len(COLOURS)], TOP + 20 * i
        for begin, end in zip(points, points[1:]):
            canvas.line(at(*begin), at(*end), 2, colour)
        for point in points:
            canvas.dot(*at(*point), 7, colour)
        canvas.line((WIDTH - RIGHT + 16, row), (WIDTH - RIGHT + 40, row), 3, colour)
        canvas.text(WIDTH - RIGHT + 48, row, name)
    png.write(path, canvas.pixels)
