import copy
import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tpu_kit import PlanError, Topology

topologies = st.builds(
    lambda accelerator, workers, per_worker, chip, data: Topology(
        accelerator=accelerator,
        num_replicas=workers * per_worker,
        num_workers=workers,
        worker_index=data % workers,
        chip=chip,
        devices=tuple(f"/device:{i}" for i in range(per_worker)),
    ),
    accelerator=st.sampled_from(["tpu", "gpu", "cpu"]),
    workers=st.integers(1, 5),
    per_worker=st.integers(1, 8),
    chip=st.sampled_from([None, "TPU v3", "T4"]),
    data=st.integers(0, 1000),
)


@given(topologies)
def test_a_topology_survives_copy_pickle_and_json(topology):
    assert copy.deepcopy(topology) == topology
    assert pickle.loads(pickle.dumps(topology)) == topology
    assert Topology.from_dict(json.loads(json.dumps(topology.to_dict()))) == topology


@given(topologies)
def test_workers_share_the_replicas_evenly_and_one_is_chief(topology):
    assert topology.replicas_per_worker * topology.num_workers == topology.num_replicas
    chiefs = [
        dataclasses.replace(topology, worker_index=index).is_chief
        for index in range(topology.num_workers)
    ]
    assert chiefs == [True] + [False] * (topology.num_workers - 1)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"accelerator": "npu"}, "unknown-accelerator"),
        ({"num_replicas": 0}, "no-replicas"),
        ({"num_workers": 0}, "no-replicas"),
        ({"num_replicas": 5, "num_workers": 2}, "replicas-not-divisible"),
        ({"num_workers": 2, "worker_index": 2}, "worker-index"),
        ({"worker_index": -1}, "worker-index"),
    ],
)
def test_contradictions_are_refused_and_their_cures_hold(wrong, code):
    fields = {"accelerator": "gpu", "num_replicas": 4, **wrong}
    with pytest.raises(PlanError) as caught:
        Topology(**fields)
    assert caught.value.finding.code == code
    for cure in caught.value.finding.cures:
        Topology(**{**fields, **cure})


def test_a_topology_reads_as_people_say_it():
    assert str(Topology(accelerator="cpu")) == "1 replica on CPU"
    pod = Topology(accelerator="tpu", num_replicas=16, num_workers=2, chip="TPU v3")
    assert str(pod) == "16 replicas on 2 workers on TPU (TPU v3)"
    assert pod.is_replicated
