"""How arrays lie in a TPU's memory, read from the layouts that its compiler chose."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

# Bytes of an element by the compiler's names; predicates take a byte each.
_ELEMENT_BYTES = {
    "pred": 1, "s4": 1, "u4": 1, "s8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1,
    "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
    "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
_ARRAY = re.compile(r"(\w+)\[([\d,<=\s]*)\](?:\{([^{}]*)\})?")


@dataclasses.dataclass(frozen=True)
class ArrayLayout:
    """An array with its order of axes and its tile.

    Args:
        dtype: The compiler's name of the element type.
        shape: Its axes.
        minor_to_major: Axes from the one that lies together in memory outwards.
        tile: Sizes of the tile over the minor-most axes, outermost first; empty for none.

    Example:

    >>> layout = next(array_layouts("f32[128,10]{0,1:T(8,128)}"))
    >>> layout.num_bytes, layout.padded_bytes     # 10 is padded to 16, 128 stays
    (5120, 8192)
    """

    dtype: str
    shape: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    tile: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes without padding."""
        return math.prod(self.shape) * _ELEMENT_BYTES[self.dtype]

    @property
    def padded_bytes(self) -> int:
        """Bytes with each axis of the tile filled up."""
        major_to_minor = [self.shape[axis] for axis in reversed(self.minor_to_major)]
        # A tile of more axes than the array: the array counts as one row of it.
        missing = max(0, len(self.tile) - len(major_to_minor))
        axes = [1] * missing + major_to_minor
        untiled = axes[: len(axes) - len(self.tile)]
        tiled = axes[len(axes) - len(self.tile) :]
        padded = [-(-size // tile) * tile for size, tile in zip(tiled, self.tile, strict=True)]
        return math.prod(untiled) * math.prod(padded) * _ELEMENT_BYTES[self.dtype]


def array_layouts(text: str) -> Iterator[ArrayLayout]:
    """Yields each array that a text of the compiler names, in order."""
    for dtype, axes, layout in _ARRAY.findall(text):
        if dtype not in _ELEMENT_BYTES:
            continue
        shape = tuple(int(axis.strip().lstrip("<=")) for axis in axes.split(",") if axis.strip())
        order, _, tiling = layout.partition(":")
        tile = re.search(r"T\(([\d,]+)\)", tiling)
        yield ArrayLayout(
            dtype=dtype,
            shape=shape,
            minor_to_major=tuple(int(axis) for axis in order.split(",") if axis)
            or tuple(reversed(range(len(shape)))),
            tile=tuple(int(size) for size in tile[1].split(",")) if tile else (),
        )


def parameter_layouts(optimised: str) -> tuple[ArrayLayout, ...]:
    """Returns the layout of each parameter of an optimised program.

    Args:
        optimised: The program's text, or at least its first line.

    Example:

    >>> line = "HloModule m, entry_computation_layout={(f32[]{:T(256)}, s32[9]{0:T(256)})->f32[]}"
    >>> [each.padded_bytes for each in parameter_layouts(line)]
    [1024, 1024]
    """
    start = optimised.index("entry_computation_layout={(") + len("entry_computation_layout={(")
    return tuple(array_layouts(optimised[start : optimised.index(")->", start)]))
