"""Which layers a step's matrix products are in, and what padding wastes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from keras_tpu_kit.checks import tpu as rules
from keras_tpu_kit.checks.refusals import layer_of
from keras_tpu_kit.tpu_compiler.program import MatrixProduct


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerWork:
    """The matrix products of one layer, forward and backward.

    Args:
        layer: As users would name it.
        flops: Operations of all of them.
        share: Their share of the step's, 0 to 1.
        rows: Of the largest of them, as are the next two.
        depth: Axis that is summed over.
        columns: Columns.
        waste: Share of the matrix unit's work that goes into padding, over all of them.
        dtype: Of the largest.
    """

    layer: str
    flops: float
    share: float
    rows: int
    depth: int
    columns: int
    waste: float
    dtype: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as a dict of JSON types."""
        return dataclasses.asdict(self)


def work_by_layer(
    products: Iterable[MatrixProduct], layer_names: Iterable[str]
) -> tuple[LayerWork, ...]:
    """Returns the matrix products by layer, those with most operations first.

    Args:
        products: Of a program.
        layer_names: The model's layers.

    Example:

    >>> made = MatrixProduct("model/dense_1/MatMul", "dot", 1, 128, 784, 128, "f32")
    >>> [(each.layer, each.share) for each in work_by_layer([made], ["dense"])]
    [("layer 'dense'", 1.0)]
    """
    names = list(layer_names)
    groups: dict[str, list[MatrixProduct]] = {}
    for product in products:
        layer = layer_of(f"{{{{node {product.name}}}}}", names) or product.name or "the step"
        groups.setdefault(layer, []).append(product)
    total = sum(each.flops for group in groups.values() for each in group) or 1.0
    found = []
    for layer, group in groups.items():
        largest = max(group, key=lambda each: each.flops)
        flops = sum(each.flops for each in group)
        done = sum(
            each.flops / (1 - rules.padding_waste(each.rows, each.depth, each.columns))
            for each in group
        )
        found.append(
            LayerWork(
                layer=layer,
                flops=flops,
                share=flops / total,
                rows=largest.rows,
                depth=largest.depth,
                columns=largest.columns,
                waste=1 - flops / done if done else 0.0,
                dtype=largest.dtype,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.flops))


def float32_share(products: Iterable[MatrixProduct]) -> float:
    """Returns the share of matrix operations, 0 to 1, that read float32."""
    flops = [(each.flops, each.dtype == "f32") for each in products]
    total = sum(each for each, _ in flops)
    return sum(each for each, is_float32 in flops if is_float32) / total if total else 0.0
