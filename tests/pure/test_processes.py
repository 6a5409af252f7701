"""Process groups end, whatever their processes do."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from keras_tpu_kit.processes import (
    EXIT_RESUMABLE,
    EXIT_TIMED_OUT,
    Command,
    ProcessGroup,
    answers,
    describe_exit,
    free_ports,
    run_group,
    run_limited,
)

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
SAVES = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(75))); "
    + SLEEP
)


def python(code, name="", **env):
    return Command([sys.executable, "-c", code], name, env)


def run(*commands, **kwargs):
    lines = []
    outcome = run_group(commands, write=lines.append, **kwargs)
    return outcome, lines


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_marks_every_line_of_both_streams_and_keeps_each_whole():
    code = "import sys\nfor i in range(200): print('x' * 50); print('y' * 50, file=sys.stderr)"
    outcome, lines = run(python(code, "a"), python(code, "b"))
    assert outcome.exit_code == 0
    assert len(lines) == 800
    assert set(lines) == {f"[{name}] {letter * 50}" for name in "ab" for letter in "xy"}


def test_environment_is_added_to_this_one(monkeypatch):
    monkeypatch.setenv("ONE", "1")
    code = "import os; print(os.environ['ONE'], os.environ['TWO'])"
    assert run(python(code, TWO="2"))[1] == ["1 2"]


def test_output_that_is_not_text_is_shown_and_the_last_line_needs_no_newline():
    code = r"import sys; sys.stdout.buffer.write(b'\xff one\ntwo')"
    assert run(python(code))[1] == ["\ufffd one", "two"]


def test_one_failure_ends_the_others_and_gives_the_code():
    outcome, _ = run(python(SLEEP), python("import sys; sys.exit(3)"), python(SLEEP))
    assert (outcome.exit_code, outcome.first) == (3, 1)
    assert outcome.exit_codes == (128 + signal.SIGTERM, 3, 128 + signal.SIGTERM)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period():
    lines = []
    with ProcessGroup([python(STUBBORN)], write=lines.append, grace=0.2) as group:
        while not lines:
            time.sleep(0.02)
    assert group.exit_codes() == (128 + signal.SIGKILL,)


def test_a_killed_process_is_a_failure_with_the_shells_code():
    outcome, _ = run(python("import os; os.kill(os.getpid(), 9)"), python(SLEEP))
    assert outcome.exit_code == 137
    assert describe_exit(outcome.exit_code) == "was killed by SIGKILL"


def test_time_limit():
    outcome, _ = run(python(SLEEP), timeout=0.3, grace=5)
    assert outcome.timed_out
    assert outcome.exit_code == EXIT_TIMED_OUT
    assert run_limited([sys.executable, "-c", SLEEP], timeout=0.3)[0] == EXIT_TIMED_OUT


def test_a_stopped_process_that_saves_is_resumable_and_so_is_the_group():
    lines = []
    with ProcessGroup([python(SAVES), python(SAVES)], write=lines.append) as group:
        while lines.count("up") < 2:
            time.sleep(0.02)
        group.ask_to_stop(signal.SIGTERM)
        outcome = group.wait(timeout=60)
    assert outcome.exit_codes == (EXIT_RESUMABLE, EXIT_RESUMABLE)
    assert outcome.exit_code == EXIT_RESUMABLE
    assert lines.count("saved") == 2


def test_one_process_that_stops_by_itself_lets_the_others_save():
    code = SAVES.replace("time.sleep(600)", "time.sleep(1); sys.exit(75)")
    outcome, lines = run(python(SAVES), python(code))
    assert outcome.exit_code == EXIT_RESUMABLE
    assert outcome.exit_codes[0] == EXIT_RESUMABLE
    assert "saved" in lines


def test_what_a_process_started_ends_with_it():
    code = textwrap.dedent("""
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, flush=True)
    """)
    outcome, lines = run(python(code))
    assert outcome.exit_code == 0
    deadline = time.monotonic() + 10
    while is_alive(int(lines[0])) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(lines[0]))


def test_no_process_and_no_zombie_is_left_when_the_block_is_left_by_an_error():
    group = ProcessGroup([python(SLEEP)], write=lambda line: None)
    with pytest.raises(KeyError), group:
        raise KeyError
    assert not is_alive(group.pids[0])
    assert group.exit_codes() == (128 + signal.SIGTERM,)


def test_a_program_that_does_not_exist_leaves_none_of_the_others_running():
    with pytest.raises(FileNotFoundError):
        ProcessGroup([python(SLEEP), Command(["/no/such/program"])], write=lambda line: None)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_this_process_reach_the_children(signum):
    code = textwrap.dedent(f"""
        import sys
        from keras_tpu_kit.processes import Command, run_group
        child = {SAVES!r}.replace("signal.SIGTERM", "signal.{signal.Signals(signum).name}")
        outcome = run_group([Command([sys.executable, "-c", child], "0")],
                            write=lambda line: print(line, flush=True))
        sys.exit(outcome.exit_code)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "[0] up\n"
        parent.send_signal(signum)
        assert parent.stdout.readline() == "[0] saved\n"
        assert parent.wait(timeout=30) == EXIT_RESUMABLE


def test_outcome_of_a_stop_without_saving_is_the_signals():
    with ProcessGroup([python(SLEEP)], write=lambda line: None) as group:
        group.ask_to_stop(signal.SIGINT)
        assert group.wait().exit_code == 128 + signal.SIGINT


def test_ports_are_free_and_differ_and_answers_says_who_listens():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert not answers("127.0.0.1", ports[0], timeout=1)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert answers("127.0.0.1", ports[0], timeout=1)
    assert not answers("no-such-host.invalid", 1, timeout=1)


def test_exits_in_words():
    assert "can be resumed" in describe_exit(EXIT_RESUMABLE)
    assert describe_exit(2) == "ended with exit code 2"


def test_a_group_runs_in_a_thread_which_leaves_signals_to_the_main_one():
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    ended = []
    thread = threading.Thread(target=lambda: ended.append(run(python("print('done')", "0"))))
    thread.start()
    thread.join(60)
    ((outcome, lines),) = ended
    assert outcome.exit_code == 0
    assert any("done" in line for line in lines)
    assert handlers == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]


def test_sigterm_to_this_process_reaches_the_group():
    def write(line):
        if "up" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        outcome = run_group([python(SAVES, "0")], write=write, timeout=60)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert outcome.exit_code == EXIT_RESUMABLE
    assert outcome.stopped_by == signal.SIGTERM
