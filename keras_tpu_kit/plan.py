"""How the data is cut: from samples to steps, as a value."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from keras_tpu_kit.checks import batches, steps
from keras_tpu_kit.errors import Finding, PlanError, refuse
from keras_tpu_kit.topology import Topology

# Fused steps shorten an epoch; beyond this many the gain is under a tenth while progress bars
# and callbacks speak less often (measured in docs/performance.md). Two executions an epoch are
# the least with which the first epoch has one that is not spent on compilation.
AUTO_STEPS_PER_EXECUTION = 64
AUTO_EXECUTIONS_PER_EPOCH = 2

# Without a wish, each replica gets Keras's own batch, or on a TPU the size that fills its
# matrix unit (checks.batches names the source).
DEFAULT_PER_REPLICA_BATCH = {"tpu": batches.TPU_BATCH_IDEAL, "gpu": 32, "cpu": 32}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """An even cut of the data over replicas, steps and executions.

    A value in hand is a valid value: facts are stored, all else follows from them, so
    `dataclasses.replace(plan, per_replica_batch_size=256)` is consistent. Each training step
    takes `global_batch_size` rows, the same number on each replica; rows that do not fill a
    batch are left out of an epoch. Validation leaves out none.

    Args:
        topology: Where training runs.
        num_samples: Training rows in one epoch, over all workers.
        per_replica_batch_size: Rows of one step on one replica.
        num_validation_samples: Validation rows, 0 for none.
        max_steps_per_execution: The most steps to run in one call of the train function; the
            plan uses the largest divisor of the epoch up to it.

    Raises:
        PlanError: If a size is below 1 or the data does not fill one batch.

    Example:

    >>> plan = BatchPlan(topology=Topology(accelerator="tpu", num_replicas=8),
    ...                  num_samples=60_000, per_replica_batch_size=150)
    >>> plan.global_batch_size, plan.steps_per_epoch, plan.dropped_samples
    (1200, 50, 0)
    >>> dataclasses.replace(plan, per_replica_batch_size=75).steps_per_epoch
    100
    >>> BatchPlan.from_json(plan.to_json()) == plan
    True
    """

    topology: Topology
    num_samples: int
    per_replica_batch_size: int
    num_validation_samples: int = 0
    max_steps_per_execution: int = 1

    def __post_init__(self) -> None:
        for name in (
            "num_samples",
            "per_replica_batch_size",
            "num_validation_samples",
            "max_steps_per_execution",
        ):
            # NumPy's integers count as well, and become plain ones that JSON can hold.
            count = require_count(name, getattr(self, name), 0 if "validation" in name else 1)
            object.__setattr__(self, name, count)
        replicas = self.topology.num_replicas
        refuse(
            PlanError,
            batches.check_batch_fits_data(self.global_batch_size, self.num_samples, replicas),
        )

    @property
    def global_batch_size(self) -> int:
        """Rows of one training step over all replicas and workers."""
        return self.per_replica_batch_size * self.topology.num_replicas

    @property
    def worker_batch_size(self) -> int:
        """Rows of one training step that this process feeds to its replicas."""
        return self.per_replica_batch_size * self.topology.replicas_per_worker

    @property
    def steps_per_epoch(self) -> int:
        """Whole training batches in one epoch."""
        return self.num_samples // self.global_batch_size

    @property
    def dropped_samples(self) -> int:
        """Training rows that an epoch leaves out since they do not fill a batch."""
        return self.num_samples % self.global_batch_size

    @property
    def steps_per_execution(self) -> int:
        """Steps that run in one call of the train function: always a divisor of the epoch."""
        return largest_divisor(self.steps_per_epoch, self.max_steps_per_execution)

    @property
    def validation_batches(self) -> tuple[int, ...]:
        """Rows of each validation batch over all replicas, in order; no row is left out.

        The last rows are cut into a batch that the replicas divide and a rest of fewer rows
        than replicas, so that all shapes but the last are even.

        Example:

        >>> plan_batches(Topology(accelerator="cpu", num_replicas=4), num_samples=64,
        ...              global_batch_size=16, num_validation_samples=39).validation_batches
        (16, 16, 4, 3)
        """
        whole, rest = divmod(self.num_validation_samples, self.global_batch_size)
        uneven = rest % self.topology.num_replicas
        return (self.global_batch_size,) * whole + tuple(n for n in (rest - uneven, uneven) if n)

    @property
    def validation_steps(self) -> int:
        """Batches in one pass over the validation rows."""
        return len(self.validation_batches)

    def fit_args(self) -> dict[str, Any]:
        """Returns the keyword arguments of `model.fit` that this plan decides.

        `shuffle=False`, since the dataset shuffles and Keras's own default only warns.

        Example:

        >>> plan_batches(Topology(accelerator="cpu"), num_samples=640,
        ...              global_batch_size=32).fit_args()
        {'steps_per_epoch': 20, 'shuffle': False}
        """
        return {"steps_per_epoch": self.steps_per_epoch, "shuffle": False}

    def findings(self) -> tuple[Finding, ...]:
        """Returns advice on this cut: rows left out, padding on a TPU."""
        on_tpu = self.topology.accelerator == "tpu"
        replicas = self.topology.num_replicas
        nearest = nearest_batch(self.num_samples, replicas, self.global_batch_size) * replicas
        found = (
            batches.check_rows_dropped(self.num_samples, self.global_batch_size, nearest),
            batches.check_tpu_batch(self.per_replica_batch_size) if on_tpu else None,
        )
        return tuple(finding for finding in found if finding is not None)

    def to_dict(self) -> dict[str, Any]:
        """Returns the stored facts as a dict of JSON types."""
        stored = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**stored, "topology": self.topology.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BatchPlan:
        """Returns the plan that `to_dict` wrote.

        Raises:
            PlanError: If the numbers were changed into ones that cannot work.
        """
        return cls(**{**fields, "topology": Topology.from_dict(fields["topology"])})

    def to_json(self) -> str:
        """Returns the plan as JSON text that `from_json` reads."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> BatchPlan:
        """Returns the plan that `to_json` wrote."""
        return cls.from_dict(json.loads(text))


def plan_batches(
    topology: Topology,
    *,
    num_samples: int,
    global_batch_size: int | None = None,
    per_replica_batch_size: int | None = None,
    target_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    num_validation_samples: int = 0,
    steps_per_execution: int | Literal["auto"] = "auto",
) -> BatchPlan:
    """Returns the plan for a batch size that is said in any one of four ways.

    Args:
        topology: Where training runs.
        num_samples: Training rows in one epoch.
        global_batch_size: Rows of one step over all replicas; they must divide it.
        per_replica_batch_size: Rows of one step on one replica.
        target_batch_size: About how many rows a step takes over all replicas: the plan
            chooses, between half and twice of it, the size that leaves the fewest rows over,
            and of those the nearest.
        steps_per_epoch: Steps of one epoch; the rows must divide over steps and replicas.
        num_validation_samples: Validation rows, 0 for none.
        steps_per_execution: Steps in one call of the train function, a divisor of the epoch;
            `"auto"` takes the largest divisor up to 64 and up to half the epoch. Callbacks
            and progress bars speak once per execution.

    With no size given, the target is 32 rows a replica (Keras's default), 128 on a TPU.

    Raises:
        PlanError: If more than one size is given, or the numbers cannot work.

    Example:

    >>> topology = Topology(accelerator="tpu", num_replicas=8)
    >>> plan = plan_batches(topology, num_samples=60_000, target_batch_size=1190)
    >>> plan.per_replica_batch_size, plan.steps_per_epoch, plan.dropped_samples
    (150, 50, 0)
    """
    replicas = topology.num_replicas
    num_samples = require_count("num_samples", num_samples, 1)
    sizes = {
        "global_batch_size": global_batch_size,
        "per_replica_batch_size": per_replica_batch_size,
        "target_batch_size": target_batch_size,
        "steps_per_epoch": steps_per_epoch,
    }
    given = {name: size for name, size in sizes.items() if size is not None}
    if len(given) > 1:
        raise PlanError(_more_than_one_size(given))
    for name, size in given.items():
        is_global = name in ("global_batch_size", "target_batch_size")
        require_count(name, size, 1, least_useful=replicas if is_global else 1)
    if steps_per_epoch is not None:
        global_batch_size = _batch_of_steps(num_samples, steps_per_epoch, replicas)
    if global_batch_size is not None:
        refuse(PlanError, batches.check_global_batch(global_batch_size, replicas))
        per_replica_batch_size = global_batch_size // replicas
    if per_replica_batch_size is None:
        target = target_batch_size or DEFAULT_PER_REPLICA_BATCH[topology.accelerator] * replicas
        per_replica_batch_size = nearest_batch(num_samples, replicas, target)
    epoch = num_samples // (per_replica_batch_size * replicas)
    if steps_per_execution == "auto":
        most = max(1, min(AUTO_STEPS_PER_EXECUTION, epoch // AUTO_EXECUTIONS_PER_EPOCH))
    else:
        most = require_count("steps_per_execution", steps_per_execution, 1)
        # An epoch without a step is named by the plan itself, with the better words.
        refuse(PlanError, steps.check_steps_per_execution(epoch, most) if epoch else None)
    return BatchPlan(
        topology=topology,
        num_samples=num_samples,
        per_replica_batch_size=per_replica_batch_size,
        num_validation_samples=num_validation_samples,
        max_steps_per_execution=most,
    )


def nearest_batch(num_samples: int, num_replicas: int, target_batch_size: int) -> int:
    """Returns the per-replica batch size near a target that leaves the fewest rows over.

    Searched from half to twice the target, so that a better fit never means another training.

    Args:
        num_samples: Rows of the training data.
        num_replicas: Replicas in sync.
        target_batch_size: Wished rows of one step over all replicas.

    Example:

    >>> nearest_batch(60_000, 8, 1_200)
    150
    >>> nearest_batch(1_797, 8, 64)  # 1,797 is odd: some rows are over whatever the size
    8
    """
    target = target_batch_size / num_replicas
    most = max(1, num_samples // num_replicas)
    low = min(max(1, math.ceil(target / 2)), most)
    high = min(max(low, math.floor(target * 2)), most)
    return min(
        range(low, high + 1),
        key=lambda size: (num_samples % (size * num_replicas), abs(size - target)),
    )


def largest_divisor(number: int, limit: int) -> int:
    """Returns the largest divisor of `number` that is at most `limit`.

    Example:

    >>> largest_divisor(468, 64)
    52
    """
    # Divisors come in pairs around the square root, so that a thousand million need 31,622 looks.
    small = (d for d in range(1, min(limit, math.isqrt(number)) + 1) if number % d == 0)
    return max(d for pair in small for d in (pair, number // pair) if d <= limit)


def _batch_of_steps(num_samples: int, steps_per_epoch: int, num_replicas: int) -> int:
    """Returns the global batch size with which `steps_per_epoch` steps use every row."""
    if num_samples % (steps_per_epoch * num_replicas) == 0:
        return num_samples // steps_per_epoch
    cures = [
        {"steps_per_epoch": s} for s in _fitting_steps(num_samples, steps_per_epoch, num_replicas)
    ]
    target = max(num_replicas, num_samples // steps_per_epoch)
    fix = " or ".join(f"steps_per_epoch={cure['steps_per_epoch']}" for cure in cures)
    raise PlanError(
        Finding(
            "steps-not-even",
            "error",
            what=f"num_samples={num_samples} do not divide over steps_per_epoch="
            f"{steps_per_epoch} and the {num_replicas} replicas.",
            why="Some replicas would get a row more than others, or rows would be left over.",
            fix=(f"Use {fix}, or " if fix else "Use ")
            + f"target_batch_size={target} for the nearest even cut.",
            cures=(
                *cures,
                {"steps_per_epoch": None, "target_batch_size": target},
            ),
        )
    )


def _fitting_steps(num_samples: int, steps_per_epoch: int, num_replicas: int) -> Iterator[int]:
    """Yields the nearest steps below and above with which every row is used."""
    even, rest = divmod(num_samples, num_replicas)
    if rest:
        return
    # Steps that fit are the divisors of the rows of one replica; one step always does.
    yield largest_divisor(even, steps_per_epoch - 1)
    if steps_per_epoch < even:
        yield even // largest_divisor(even, (even - 1) // steps_per_epoch)


def _more_than_one_size(given: Mapping[str, int]) -> Finding:
    told = ", ".join(f"{name}={size}" for name, size in given.items())
    return Finding(
        "batch-said-twice",
        "error",
        what=f"The batch is said {len(given)} times: {told}.",
        why="Each of these alone decides all the others.",
        fix=f"Keep one, such as {next(iter(given))}={next(iter(given.values()))}.",
        cures=tuple({name: None for name in given if name != kept} for kept in given),
    )


def require_count(name: str, value: Any, minimum: int, least_useful: int = 1) -> int:
    """Returns `value` as an int, or raises where it is no whole number of at least `minimum`.

    Args:
        name: What users call it.
        value: What they gave.
        minimum: The least that counts.
        least_useful: The least that the next rule will accept, for the message.

    Raises:
        PlanError: If it is no such number.
    """
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_whole and value >= minimum:
        return int(value)
    least = max(minimum, least_useful)
    raise PlanError(
        Finding(
            "not-a-count",
            "error",
            what=f"{name}={value!r} is not a whole number of at least {minimum}.",
            why="Rows, steps and replicas are counted, not measured.",
            fix=f"Use {name}={least} or more.",
            cures=({name: least},),
        )
    )
