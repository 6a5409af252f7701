"""Every way to say who trains together, as tables."""

import json

import pytest

from keras_tpu_kit.cluster import Cluster, expand_nodelist, expand_tasks_per_node
from keras_tpu_kit.errors import HardwareError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("a,b", ["a", "b"]),
        ("node[01-03,7]", ["node01", "node02", "node03", "node7"]),
        ("node[08-11]", ["node08", "node09", "node10", "node11"]),
        ("gnode[10,20,25,37]", ["gnode10", "gnode20", "gnode25", "gnode37"]),
        ("a[1-2],b3,c[5]", ["a1", "a2", "b3", "c5"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("tux[0099-0101]", ["tux0099", "tux0100", "tux0101"]),
    ],
)
def test_nodelists(text, hosts):
    assert expand_nodelist(text) == hosts


@pytest.mark.parametrize("text", ["", "node[", "node[1-", "node[a-b]", "node[1-2", "node1]"])
def test_nodelists_that_cannot_be_read(text):
    with pytest.raises(HardwareError) as caught:
        expand_nodelist(text)
    assert caught.value.finding.code == "slurm-nodelist"


@pytest.mark.parametrize(
    ("text", "counts"), [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4,1(x2)", [4, 1, 1])]
)
def test_tasks_per_node(text, counts):
    assert expand_tasks_per_node(text) == counts


def test_tasks_per_node_that_cannot_be_read():
    with pytest.raises(HardwareError):
        expand_tasks_per_node("two")


SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_PROCID": "2",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
}


def test_slurm_counts_tasks_node_by_node_with_a_port_each():
    cluster = Cluster.from_slurm(SLURM)
    assert cluster.addresses == ("n1:24242", "n1:24243", "n2:24242", "n2:24243")
    assert cluster.index == 2
    assert Cluster.from_slurm(SLURM, port=5).addresses[3] == "n2:6"


def test_slurm_prefers_the_step_to_the_job():
    step = {**SLURM, "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_TASKS_PER_NODE": "1"}
    step |= {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    assert Cluster.from_slurm(step, port=5) == Cluster(("n2:5",), 0)


def test_slurm_without_the_places_of_tasks_is_believed():
    told = {name: SLURM[name] for name in SLURM if name not in ("SLURM_NODEID", "SLURM_LOCALID")}
    assert Cluster.from_slurm(told, port=5).index == int(SLURM["SLURM_PROCID"])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"SLURM_PROCID": ""}, "cluster-variable-missing"),
        ({"SLURM_JOB_NODELIST": ""}, "cluster-variable-missing"),
        ({"SLURM_PROCID": "9"}, "worker-index"),
        ({"SLURM_PROCID": "x"}, "cluster-variable-unreadable"),
        ({"SLURM_JOB_ID": "x"}, "cluster-variable-unreadable"),
        ({"SLURM_TASKS_PER_NODE": "1"}, "slurm-nodelist"),
        # Cyclic distribution: task 2 is the second task of the first node.
        ({"SLURM_NODEID": "0", "SLURM_LOCALID": "1"}, "slurm-distribution"),
    ],
)
def test_slurm_faults(changes, code):
    with pytest.raises(HardwareError) as caught:
        Cluster.from_slurm(SLURM | changes)
    assert caught.value.finding.code == code


def test_kubernetes():
    variables = {"JOB_COMPLETION_INDEX": "11", "HOSTNAME": "my-train-11"}
    cluster = Cluster.from_kubernetes(variables, 12, "workers")
    assert cluster.addresses[0] == "my-train-0.workers:12345"
    assert cluster.addresses[cluster.index] == "my-train-11.workers:12345"


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"HOSTNAME": "train-0"}, "cluster-variable-missing"),
        ({"JOB_COMPLETION_INDEX": "0", "HOSTNAME": "train-abcde"}, "kubernetes-hostname"),
        ({"JOB_COMPLETION_INDEX": "2", "HOSTNAME": "train-2"}, "worker-index"),
        ({"JOB_COMPLETION_INDEX": "x", "HOSTNAME": "train-x"}, "cluster-variable-unreadable"),
    ],
)
def test_kubernetes_faults(variables, code):
    with pytest.raises(HardwareError) as caught:
        Cluster.from_kubernetes(variables, 2, "workers")
    assert caught.value.finding.code == code


def test_hosts_with_and_without_ports():
    assert Cluster.from_hosts(["a", "b:7"], 1, 9).addresses == ("a:9", "b:7")
    with pytest.raises(HardwareError, match="ports"):
        Cluster.from_hosts(["a", "a"], 0)


def tf_config(cluster, task_type="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}})


@pytest.mark.parametrize("chief", ["chief", "master"])
@pytest.mark.parametrize(("task", "place"), [(("{chief}", 0), 0), (("worker", 0), 1)])
def test_both_spellings_of_the_chief(chief, task, place):
    jobs = {"worker": ["b:1", "c:1"], chief: ["a:1"]}
    cluster = Cluster.from_tf_config(tf_config(jobs, task[0].format(chief=chief), task[1]))
    assert cluster == Cluster(("a:1", "b:1", "c:1"), place)


def test_tf_config_without_a_cluster_is_one_machine():
    assert Cluster.from_tf_config("{}") is None
    assert Cluster.from_tf_config('{"task": {"type": "worker", "index": 0}}') is None


def test_an_index_may_be_text_and_a_listed_evaluator_is_no_worker():
    jobs = {"worker": ["a:1", "b:1"], "evaluator": ["e:1"]}
    assert Cluster.from_tf_config(tf_config(jobs, "worker", "1")) == Cluster(("a:1", "b:1"), 1)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("{cluster}", "tf-config-malformed", "not JSON"),
        ("[]", "tf-config-malformed", "not an object"),
        ('{"cluster": []}', "tf-config-malformed", "not an object"),
        ('{"cluster": {"worker": "a:1"}}', "tf-config-malformed", "not a list"),
        ('{"cluster": {"worker": [1]}}', "tf-config-malformed", "not a list"),
        ('{"cluster": {"worker": ["a:1"]}}', "tf-config-malformed", "task"),
        ('{"cluster": {"worker": ["a:1"]}, "task": []}', "tf-config-malformed", "task"),
        (tf_config({"worker": ["a:1"]}, index=-1), "tf-config-malformed", "index"),
        (tf_config({"worker": ["a:1"]}, index=1), "tf-config-malformed", "no worker number 1"),
        (tf_config({"worker": ["a:1"]}, "chief"), "tf-config-malformed", "at most one"),
        (tf_config({"chief": ["a:1", "b:1"]}, "chief"), "tf-config-malformed", "at most one"),
        (tf_config({"worker": ["a"]}), "worker-address", "host:port"),
        (tf_config({"worker": ["a:99999"]}), "worker-address", "1 to 65535"),
        (tf_config({"worker": ["a:0"]}), "worker-address", "1 to 65535"),
        (tf_config({"worker": ["a:1", "a:1"]}), "worker-address", "of their own"),
        (tf_config({"worker": ["a:1"], "ps": ["b:1"]}, "ps"), "tf-config-task", "'ps'"),
        (tf_config({"worker": ["a:1"], "ps": ["b:1"]}), "tf-config-task", "'ps'"),
        (tf_config({"worker": ["a:1"]}, "evaluator"), "tf-config-task", "evaluator"),
    ],
)
def test_tf_config_faults(text, code, says):
    with pytest.raises(HardwareError, match=says) as caught:
        Cluster.from_tf_config(text)
    assert caught.value.finding.code == code


def test_what_is_written_is_what_tensorflow_reads():
    written = json.loads(Cluster(("a:1", "b:2"), 1).to_tf_config())
    assert written == {
        "cluster": {"worker": ["a:1", "b:2"]},
        "task": {"type": "worker", "index": 1},
    }


def test_a_cluster_counts_its_workers():
    assert Cluster(("host0:12345", "host1:12345", "host2:12345"), 1).num_workers == 3
