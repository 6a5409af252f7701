"""A chief and its workers: who is let in, what travels, who has which trial, when it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import threading
import time

import grpc
import pytest

from keras_tpu_kit.errors import SearchError
from keras_tpu_kit.processes import free_ports
from keras_tpu_kit.searching import ServiceSettings, messages
from keras_tpu_kit.tuner.project import Project
from keras_tpu_kit.tuner.service import ChiefClient, ChiefServer
from keras_tpu_kit.tuner.service import servicer as servicer_module
from keras_tpu_kit.tuner.service.retirement import Retirement
from tests.tuner.trials import oracle, score

TOKEN = "0123456789abcdef"
CHIEF = ServiceSettings("chief", "127.0.0.1", 0, TOKEN)


def opened(directory, **options):
    """Returns an oracle as a chief has it."""
    project = Project(directory, "p", oracle("random", **options))
    project.prepare()
    project.oracle.begin()
    return project.oracle


@contextlib.contextmanager
def chief(searched, settings=CHIEF):
    """Runs a chief in this process; yields it with the settings of a worker."""
    with ChiefServer(searched, settings) as server:
        host = "localhost" if settings.certificate else "127.0.0.1"
        worker = dataclasses.replace(
            settings, tuner_id="worker0", host=host, port=server.port, wait_seconds=2.0, key=""
        )
        yield server, worker


def client(settings, **changes):
    return ChiefClient(oracle("random"), dataclasses.replace(settings, **changes))


def finish(worker, trial, status="COMPLETED"):
    worker.update_trial(trial.trial_id, {"score": score(trial.hyperparameters.values)}, step=0)
    trial.status = status
    worker.end_trial(trial)


def code_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


# --- Who is let in -------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "f" * 16])
def test_a_worker_without_the_token_is_refused_and_the_chief_goes_on(tmp_path, token):
    with chief(opened(tmp_path)) as (_, settings):
        with pytest.raises(SearchError, match="the token is missing or wrong") as caught:
            client(settings, token=token)
        assert caught.value.finding.code == "chief-refused"
        assert client(settings).create_trial("worker0").trial_id == "0"


def test_every_method_asks_for_the_token(tmp_path):
    from keras_tuner.src import protos

    with chief(opened(tmp_path)) as (_, settings), messages.open_channel(settings) as channel:
        stub = protos.get_service_grpc().OracleStub(channel)
        empty = protos.get_service()
        methods = {
            "GetSpace": empty.GetSpaceRequest(),
            "UpdateSpace": empty.UpdateSpaceRequest(),
            "CreateTrial": empty.CreateTrialRequest(tuner_id="worker0"),
            "UpdateTrial": empty.UpdateTrialRequest(trial_id="0"),
            "EndTrial": empty.EndTrialRequest(),
            "GetTrial": empty.GetTrialRequest(trial_id="0"),
            "GetBestTrials": empty.GetBestTrialsRequest(num_trials=1),
        }
        refused = {
            name: code_of(lambda n=name, r=request: getattr(stub, n)(r, timeout=10))
            for name, request in methods.items()
        }
        tell = channel.unary_unary(messages.METHOD, messages.pack, messages.unpack)
        refused["Tell"] = code_of(lambda: tell({"kind": "alive"}, timeout=10))
    assert set(refused.values()) == {grpc.StatusCode.UNAUTHENTICATED}


def test_malformed_and_oversized_messages_are_refused_and_the_chief_goes_on(tmp_path):
    with chief(opened(tmp_path)) as (_, settings), messages.open_channel(settings) as channel:
        metadata = messages.credentials_metadata(settings)

        def send(method, data):
            channel.unary_unary(method)(data, timeout=20, metadata=metadata)

        for garbage in (b"{", b"[1]", b'{"kind": "nonsense"}', b"\xff\xfe"):
            assert code_of(lambda data=garbage: send(messages.METHOD, data)) in (
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.INVALID_ARGUMENT,
            )
        end_trial = "/keras_tuner.Oracle/EndTrial"
        assert code_of(lambda: send(end_trial, b"\xff" * 40)) in (
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNIMPLEMENTED,
        )
        large = b'{"kind": "' + b"x" * messages.MAX_MESSAGE_BYTES + b'"}'
        assert code_of(lambda: send(messages.METHOD, large)) == grpc.StatusCode.RESOURCE_EXHAUSTED
        worker = client(settings)
        with pytest.raises(SearchError, match="there is no trial '77'"):
            worker.update_trial("77", {"score": 1.0})
        assert worker.create_trial("worker0").trial_id == "0"


def test_a_chief_that_others_could_reach_needs_a_token():
    with pytest.raises(SearchError, match="without a token") as caught:
        ServiceSettings("chief", "0.0.0.0", 7077)
    assert caught.value.finding.code == "chief-without-token"
    with pytest.raises(SearchError, match="5 characters"):
        ServiceSettings("worker0", "10.0.0.1", 7077, token="short")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_with_certificates_the_token_travels_encrypted_and_strangers_are_not_trusted(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "chief.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    command += f" -addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    settings = dataclasses.replace(CHIEF, certificate=str(certificate), key=str(key))
    with chief(opened(tmp_path), settings) as (_, worker):
        assert client(worker).create_trial("worker0").trial_id == "0"
        with pytest.raises(SearchError, match="No chief answered"):
            client(worker, certificate="", wait_seconds=1.0)


# --- What travels --------------------------------------------------------------------------------


def test_values_scores_and_reasons_arrive_as_they_were_sent(tmp_path):
    searched = opened(tmp_path)
    with chief(searched) as (_, settings):
        worker = client(settings)
        trial = worker.create_trial("worker0")
        assert trial.hyperparameters.values == searched.trials["0"].hyperparameters.values
        trial.message = '{"outcome": "pruned", "reason": "Dürre"}'
        finish(worker, trial)
        assert worker._oracle.seed == searched.seed
        assert worker.get_trial("0").score == pytest.approx(searched.trials["0"].score)
        assert worker.get_best_trials(1)[0].trial_id == "0"
    assert searched.trials["0"].message == trial.message
    assert searched.trials["0"].score == pytest.approx(score(trial.hyperparameters.values))


def test_the_chief_asks_a_worker_to_end_a_trial_by_what_another_reported(tmp_path):
    from keras_tpu_kit.tuner.display import Display
    from keras_tpu_kit.tuner.pruning import MedianPruner, judge
    from keras_tpu_kit.tuner.supervision import supervise

    searched = opened(tmp_path)
    pruner = MedianPruner(warmup_epochs=1, min_trials=1)
    supervise(
        searched, judge=lambda *both: judge(pruner, *both), display=Display(searched, "quiet")
    )
    with chief(searched) as (_, settings):
        good, bad = client(settings), client(settings, tuner_id="worker1")
        first, second = good.create_trial("worker0"), bad.create_trial("worker1")
        for epoch in range(2):
            assert good.update_trial(first.trial_id, {"score": 0.9}, epoch).status == "RUNNING"
        answers = [
            bad.update_trial(second.trial_id, {"score": 0.1}, epoch).status for epoch in (0, 1)
        ]
    assert answers[-1] == "STOPPED"


# --- Who has which trial -------------------------------------------------------------------------


def test_a_report_that_is_repeated_counts_once(tmp_path):
    searched = opened(tmp_path)
    with chief(searched) as (_, settings):
        worker = client(settings)
        trial = worker.create_trial("worker0")
        assert worker.create_trial("worker0").trial_id == trial.trial_id
        finish(worker, trial)
        worker.end_trial(trial)
        worker.create_trial("worker0")
        worker.end_trial(trial)
    assert searched.end_order == ["0"] and searched.start_order == ["0", "1"]


def test_the_trial_of_a_dead_worker_goes_to_the_next_that_asks(tmp_path):
    searched = opened(tmp_path)
    with chief(searched) as (_, settings):
        dead, other = client(settings), client(settings, tuner_id="worker1")
        lost = dead.create_trial("worker0")
        assert messages.tell_once(settings, {"kind": "died", "tuner_id": "worker0"})
        again = other.create_trial("worker1")
        assert again.trial_id == lost.trial_id
        assert again.hyperparameters.values == lost.hyperparameters.values
        with pytest.raises(SearchError, match="gave this worker's trial to another") as caught:
            dead.update_trial(lost.trial_id, {"score": 1.0})
        assert caught.value.finding.code == "trial-given-away"
        finish(other, again)
    assert searched.trials["0"].status == "COMPLETED"


def test_a_worker_that_was_replaced_unnoticed_has_lost_its_trial(tmp_path):
    searched = opened(tmp_path)
    with chief(searched) as (_, settings):
        for _ in range(3):
            trial = client(settings).create_trial("worker0")
            assert trial.trial_id == "0"
        assert client(settings).create_trial("worker0").trial_id == "1"
    assert searched.trials["0"].status == "FAILED"
    assert "died 3 times" in searched.trials["0"].message


def test_a_worker_that_is_silent_for_too_long_counts_as_dead(tmp_path):
    now = 0.0
    searched = opened(tmp_path)
    servicer = servicer_module.SearchServicer(searched, clock=lambda: now)
    context = FakeContext({messages.INCARNATION: "one"})
    servicer.tell({"kind": "hello", "tuner_id": "worker0"}, context)
    searched.create_trial("worker0")
    now = servicer_module.LEASE_SECONDS - 1
    servicer.check_leases()
    assert searched.ongoing_trials
    now += 2
    servicer.check_leases()
    assert not searched.ongoing_trials and searched._retry_queue == ["0"]


class FakeContext:
    """What a servicer asks of a call's context: who called."""

    def __init__(self, metadata):
        self._metadata = metadata

    def invocation_metadata(self):
        return list(self._metadata.items())


def test_workers_that_outlived_their_chief_keep_their_trials(tmp_path):
    searched = opened(tmp_path)
    with chief(searched) as (server, settings):
        alive, dead = client(settings), client(settings, tuner_id="worker1")
        kept, lost = alive.create_trial("worker0"), dead.create_trial("worker1")
    port = server.port
    project = Project(tmp_path, "p", oracle("random"))
    project.oracle.begin(keep_ongoing=True)
    with chief(project.oracle, dataclasses.replace(CHIEF, port=port)) as (_, settings):
        replacement = client(settings, tuner_id="worker1")
        assert replacement.create_trial("worker1").trial_id == lost.trial_id
        finish(alive, kept)
        assert alive.create_trial("worker0").trial_id == "2"
    assert project.oracle._crashes == {lost.trial_id: 1}
    assert project.oracle.trials[kept.trial_id].status == "COMPLETED"


# --- When it ends --------------------------------------------------------------------------------


def test_idle_workers_stay_until_no_trial_can_come_back_and_the_end_is_prompt(tmp_path):
    searched = opened(tmp_path, max_trials=2)
    with chief(searched) as (server, settings):
        ended = []
        serving = threading.Thread(target=lambda: ended.append(server.serve()))
        serving.start()
        one, two = client(settings), client(settings, tuner_id="worker1")
        finish(one, one.create_trial("worker0"))
        last = two.create_trial("worker1")
        assert one.create_trial("worker0").status == "IDLE"
        finish(two, last)
        begun = time.monotonic()
        assert two.create_trial("worker1").status == "STOPPED"
        assert one.create_trial("worker0").status == "STOPPED"
        serving.join(timeout=20)
        assert ended == [None]
        assert time.monotonic() - begun < 20


def test_an_error_that_ends_the_search_ends_the_chief_with_its_text(tmp_path):
    with chief(opened(tmp_path)) as (server, settings):
        client(settings).create_trial("worker0")
        messages.tell_once(settings, {"kind": "failed", "error": "worker0: KeyError: 'x'"})
        with pytest.raises(SearchError, match="worker0: KeyError: 'x'"):
            server.serve()


def test_a_worker_without_a_chief_says_so_and_ends():
    settings = ServiceSettings("worker0", "127.0.0.1", free_ports(1)[0], wait_seconds=1.0)
    begun = time.monotonic()
    with pytest.raises(SearchError, match="No chief answered at 127") as caught:
        client(settings)
    assert caught.value.finding.code == "chief-missing"
    assert 1.0 <= time.monotonic() - begun < 20.0


def test_a_worker_that_loses_its_chief_says_so_meanwhile(tmp_path, capsys, monkeypatch):
    from keras_tpu_kit.tuner.service import client as client_module

    monkeypatch.setattr(client_module, "_SAY_SECONDS", 0.5)
    with chief(opened(tmp_path)) as (_, settings):
        worker = client(settings, lost_seconds=2.0)
    with pytest.raises(SearchError, match="has not answered for") as caught:
        worker.create_trial("worker0")
    assert caught.value.finding.code == "chief-lost"
    assert "giving up after 2 s" in capsys.readouterr().err


def test_a_worker_retires_after_a_number_of_trials_or_when_it_has_grown(monkeypatch, tmp_path):
    with chief(opened(tmp_path)) as (_, settings):
        worker = client(settings, max_trials=1)
        finish(worker, worker.create_trial("worker0"))
        assert worker.create_trial("worker0").status == "STOPPED"
        assert worker.retirement.has_retired
    from keras_tpu_kit.tuner.service import retirement

    # 610 MB after two trials is what the later sizes are compared with.
    sizes = iter([500.0, 600.0, 610.0, 640.0, 665.0])
    monkeypatch.setattr(retirement, "resident_megabytes", lambda: next(sizes))
    grown, due = Retirement(0, 50), []
    for _ in range(5):
        due.append(grown.is_due())
        grown.count_trial()
    assert due == [False, False, False, False, True]


def test_settings_survive_the_environment():
    settings = ServiceSettings(
        "worker1", "::1", 7, TOKEN, "a.pem", "", 3.0, 4.5, True, 8, 9, begun=1.5e9
    )
    assert ServiceSettings.from_environment(settings.to_environment()) == settings
    assert settings.address == "[::1]:7"
    assert ServiceSettings.from_environment({}) is None
    with pytest.raises(SearchError, match="KERASTUNER_TUNER_ID"):
        ServiceSettings.from_environment({"KERASTUNER_ORACLE_IP": "x"})
