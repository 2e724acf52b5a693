"""BBR-ACD as its published simulation ran it (docs/algorithms/bbr-acd-ns3-published.md)."""

from ack_path import Hand, make

from bbrgym._testing import Recovery


def test_any_loss_halves_on_every_ack_whatever_the_rtt():
    hand = Hand(make("bbr-acd-ns3-published"))
    before = hand.window
    hand.hear(Recovery.RECOVERY)
    # RTprop itself: no congestion.
    assert hand.ack(40.8, in_flight=10) == before // 2
    assert hand.ack(40.8, in_flight=10) == before // 4
    # At least half of the packets in flight and acknowledged, and at least four.
    assert hand.ack(40.8, in_flight=61) == 31
    assert [hand.ack(40.8, in_flight=2) for _ in range(5)][-1] == 4


def test_the_gain_stays_one_until_probe_bw_is_entered_again():
    hand = Hand(make("bbr-acd-ns3-published"))
    for state in (Recovery.RECOVERY, Recovery.OPEN):
        hand.hear(state)
        hand.ack(45, in_flight=50)
    assert hand.metrics["cwnd_gain"] == 1.0
    hand.path.run_until(8000)
    assert hand.metrics["cwnd_gain"] == 1.0
    hand.path.run_until(13_000)  # through ProbeRTT
    assert hand.metrics["cwnd_gain"] == 2.0
