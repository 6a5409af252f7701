"""`launch` tells each worker its place, marks its lines, and ends all together."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from keras_tpu_kit.cli import main

TELL = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
print(config["task"]["index"], *config["cluster"]["worker"], *sys.argv[1:],
      os.environ.get("CUDA_VISIBLE_DEVICES", "-")) if config else print("alone", *sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "CUDA_"))]:
        monkeypatch.delenv(name)

    def write(code):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(code))
        return str(path)

    return write


def lines_of(capsys):
    return sorted(capsys.readouterr().out.splitlines())


def test_workers_on_this_machine(script, capsys):
    assert main(["launch", "--workers", "2", "--port", "7000", script(TELL), "--lr", "1"]) == 0
    assert lines_of(capsys) == [
        "[worker 0] 0 127.0.0.1:7000 127.0.0.1:7001 --lr 1 -",
        "[worker 1] 1 127.0.0.1:7000 127.0.0.1:7001 --lr 1 -",
    ]


def test_ports_are_chosen_and_gpus_shared_out(script, capsys):
    assert main(["launch", "--workers", "2", "--gpus-per-worker", "2", script(TELL)]) == 0
    first, second = (line.split() for line in lines_of(capsys))
    assert first[3:5] == second[3:5]
    assert len(set(first[3:5])) == 2
    assert (first[-1], second[-1]) == ("0,1", "2,3")


def test_one_worker_needs_no_cluster(script, capsys):
    assert main(["launch", "--workers", "1", script(TELL), "x"]) == 0
    assert lines_of(capsys) == ["[worker 0] alone x"]


def test_a_module(capsys):
    assert main(["launch", "--workers", "1", "-m", "platform"]) == 0
    (line,) = lines_of(capsys)
    assert line.startswith("[worker 0] Linux") or line.startswith("[worker 0] macOS")


def test_slurm(script, capsys, monkeypatch):
    variables = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "1",
        "SLURM_NODEID": "1",
        "SLURM_LOCALID": "0",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["launch", "--from", "slurm", script(TELL)]) == 0
    assert lines_of(capsys) == ["[worker 1] 1 n1:20001 n2:20001 -"]


def test_kubernetes(script, capsys, monkeypatch):
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    monkeypatch.setenv("HOSTNAME", "train-0")
    arguments = ["--from", "k8s", "--workers", "2", "--service", "net", "--port", "9"]
    assert main(["launch", *arguments, script(TELL)]) == 0
    assert lines_of(capsys) == ["[worker 0] 0 train-0.net:9 train-1.net:9 -"]


def test_hosts(script, capsys):
    arguments = ["--hosts", "a,b:5", "--index", "1", "--port", "9"]
    assert main(["launch", *arguments, script(TELL)]) == 0
    assert lines_of(capsys) == ["[worker 1] 1 a:9 b:5 -"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--index", "0"], ["--hosts", "a,b"], ["--from", "k8s"], ["--from", "slurm"]],
)
def test_arguments_that_do_not_say_enough_exit_2_with_a_fix(script, capsys, arguments, monkeypatch):
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    assert main(["launch", *arguments, script(TELL)]) == 2
    assert "Fix:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--hosts", "a,b", "--index", "0", "--workers", "5"], "launch-contradiction"),
        (["--workers", "2", "--index", "0"], "launch-contradiction"),
        (["--from", "slurm", "--workers", "4"], "launch-contradiction"),
        (["--workers", "2", "--port", "65535"], "launch-ports"),
    ],
)
def test_arguments_that_contradict_are_refused(script, capsys, arguments, code):
    assert main(["launch", *arguments, script(TELL)]) == 2
    assert code in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--workers", "0"], ["--workers", "2", "--port", "x"]])
def test_numbers_that_are_none_are_refused(script, capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(["launch", *arguments, script(TELL)])
    assert caught.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"SLURM_STEP_NODELIST": "n1,n2", "SLURM_PROCID": "0"}, "slurm-nodelist"),
        ({"SLURM_STEP_NODELIST": "n1", "SLURM_PROCID": "abc"}, "cluster-variable-unreadable"),
        (
            {"SLURM_STEP_NODELIST": "n1", "SLURM_PROCID": "0", "SLURM_JOB_ID": "x"},
            "cluster-variable-unreadable",
        ),
    ],
)
def test_variables_that_cannot_be_read_are_named(script, capsys, monkeypatch, variables, code):
    for name, value in {"SLURM_STEP_TASKS_PER_NODE": "1", **variables}.items():
        monkeypatch.setenv(name, value)
    assert main(["launch", "--from", "slurm", script(TELL)]) == 2
    assert code in capsys.readouterr().err


def test_one_failing_worker_ends_the_others_and_gives_its_code(script, capsys):
    code = """
        import json, os, sys, time
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            print("no luck")
            sys.exit(9)
        time.sleep(600)
    """
    assert main(["launch", "--workers", "3", script(code)]) == 9
    captured = capsys.readouterr()
    assert "[worker 1] no luck" in captured.out
    assert "worker 1 ended with exit code 9; the other workers were stopped." in captured.err


def test_sigterm_reaches_the_workers_and_their_code_75_comes_back(script):
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(75)))
        print("up")
        time.sleep(600)
    """
    argv = [sys.executable, "-m", "keras_tpu_kit", "launch", "--workers", "2", script(code)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as launcher:
        ups = [launcher.stdout.readline() for _ in range(2)]
        assert sorted(ups) == ["[worker 0] up\n", "[worker 1] up\n"]
        launcher.send_signal(signal.SIGTERM)
        out, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 75
    assert sorted(out.splitlines()) == ["[worker 0] saved", "[worker 1] saved"]
    assert "SIGTERM was passed on" in err


def test_a_worker_that_does_not_stop_is_killed_after_the_grace_period(script):
    code = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up")
        time.sleep(600)
    """
    argv = [sys.executable, "-m", "keras_tpu_kit", "launch", "--workers", "1", "--grace", "0.2"]
    with subprocess.Popen([*argv, script(code)], stdout=subprocess.PIPE, text=True) as launcher:
        launcher.stdout.readline()
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(timeout=60) == 128 + signal.SIGTERM


def test_tf_config_is_json_that_tensorflow_reads(script, capsys):
    code = "import os; print(os.environ['TF_CONFIG'])"
    main(["launch", "--workers", "2", "--port", "7000", script(code)])
    configs = [json.loads(line.partition("] ")[2]) for line in lines_of(capsys)]
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": index} for index in range(2)
    ]
