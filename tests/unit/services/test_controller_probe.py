"""The probe of the controller: what counts as a time without one."""

from __future__ import annotations

import threading

from kraftbridge.models.observation import ControllerProbe
from kraftbridge.storage.kafka_brokers import Prober


class Client:
    """Answers from a script, then for ever with its last word; says when the script is over."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.over = threading.Event()
        self.closed = threading.Event()

    def accepts(self) -> bool:
        if len(self.answers) > 1:
            return self.answers.pop(0)
        self.over.set()
        return self.answers[0]

    def close(self) -> None:
        self.closed.set()


def feed(*probes: tuple[bool, float, float]) -> ControllerProbe:
    prober = Prober(Client)
    for accepted, asked_at, answered_at in probes:
        prober.note(accepted=accepted, asked_at=asked_at, answered_at=answered_at)
    return prober._longest


def test_a_gap_lasts_from_the_first_refusal_to_the_next_acceptance() -> None:
    found = feed((True, 0.0, 0.1), (False, 0.25, 0.3), (False, 0.5, 1.5), (True, 1.5, 1.75))
    assert found.longest_milliseconds == 1500
    assert found.ended_at is not None


def test_the_longest_gap_stays() -> None:
    gaps = ((True, 0.0, 0.0), (False, 1.0, 1.0), (True, 4.0, 4.0), (False, 5.0, 5.0), (True, 5.5, 5.5))
    assert feed(*gaps).longest_milliseconds == 3000


def test_what_was_never_accepted_before_or_after_is_no_gap() -> None:
    assert feed((False, 0.0, 1.0), (True, 9.0, 9.0)).longest_milliseconds == 0
    assert feed((True, 0.0, 0.0), (False, 1.0, 2.0)).longest_milliseconds == 0
    assert feed((True, 0.0, 0.9), (True, 1.0, 1.9)).longest_milliseconds == 0


def test_it_probes_while_it_is_wanted_and_begins_anew_with_another_phase() -> None:
    client = Client(True, False, True)
    prober = Prober(lambda: client)
    assert prober.measure("TakingOver 1") == ControllerProbe(0, None)
    assert client.over.wait(10)
    assert prober.measure("TakingOver 1").longest_milliseconds > 0
    assert prober.measure("Finalizing 1") == ControllerProbe(0, None)
    prober.close()
    assert client.closed.wait(10)
