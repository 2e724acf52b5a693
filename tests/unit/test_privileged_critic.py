"""A critic that sees more than its actor: in training only, and nothing of it in what is exported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.observation import Observation
from bbrgym.envs.privileged import PRIVILEGED, Privileged
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.scenario import HEADER_BYTES, Flow, Scenario

PAIR = Scenario(
    duration_s=2.0,
    flows=(Flow("agent", rtt_ms=10.0), Flow("bbr", start_s=0.5), Flow("agent", rtt_ms=50.0, start_s=1.0)),
)
DRAWN = Distribution.from_dict(
    {
        "rate_mbps": {"log_uniform": [6, 24]},
        "duration_s": {"uniform": [0.5, 1.5]},
        "flows": [{"algorithm": "agent"}, {"algorithm": "agent", "start_s": 0.3}],
    }
)
ALL = tuple(PRIVILEGED)


@pytest.mark.parametrize("engine", ["fake", "native"])
@pytest.mark.parametrize("scenario", [PAIR, DRAWN], ids=["pair", "distribution"])
def test_they_stand_behind_what_the_actor_sees(scenario: Any, engine: Any) -> None:
    """Terminal observations too; the actor's part and everything else is as without them."""
    spec = EpisodeSpec(scenario, observation=Observation(history=2), engine=engine)
    plain, more = SharedPolicyVecEnv(spec, 2), SharedPolicyVecEnv(spec, 2, ALL, has_infos=True)
    own = spec.observation.space.shape[0]
    assert more.observation_space.shape == (own + len(ALL),)
    plain.seed(3)
    more.seed(3)
    seen = more.reset()
    np.testing.assert_array_equal(seen[:, :own], plain.reset())
    assert (seen[:, own + ALL.index("link_queue")] == 0.0).all()
    rng = np.random.default_rng(1)
    ends = 0
    for _ in range(60):
        actions = rng.uniform(-1, 1, (4, 2)).astype(np.float32)
        seen, rewards, dones, infos = more.step(actions)
        others = plain.step(actions)
        np.testing.assert_array_equal(seen[:, :own], others[0])
        np.testing.assert_array_equal(rewards, others[1])
        np.testing.assert_array_equal(dones, others[2])
        for row in range(4):
            last = infos[row]["terminal_observation"] if dones[row] else seen[row]
            assert last in more.observation_space
            facts = dict(zip(ALL, last[own:].tolist(), strict=True))
            info, drawn = infos[row], more.record.scenarios[row // 2]
            of_engine = infos[row // 2 * 2 : row // 2 * 2 + 2]
            assert facts["log_link_rate"] == pytest.approx(np.log10(drawn.rate_mbps), abs=1e-4)
            assert facts["utilisation"] == pytest.approx(info["link_utilisation"], abs=1e-6)
            longest_ms = max(flow.rtt_ms for flow in drawn.flows)
            assert facts["link_queue"] == pytest.approx(min(10.0, info["link_queue_mean_ms"] / longest_ms), rel=1e-5)
            assert facts["log_longest_rtt"] == pytest.approx(np.log10(longest_ms))
            assert facts["log_base_rtt"] == pytest.approx(np.log10(drawn.flows[info["flow_index"]].rtt_ms))
            assert facts["is_active"] == pytest.approx(info["is_active"])
            if len(drawn.flows) == 2:
                active = sum(
                    flow["is_active"] + flow["sent_packets"] + flow["delivered_packets"] > 0 for flow in of_engine
                )
                assert facts["log_flows"] == pytest.approx(np.log2(active))
                payload = drawn.packet_bytes / (drawn.packet_bytes + HEADER_BYTES)
                share = info["delivery_rate_mbps"] / (info["link_rate_mbps"] * payload / active)
                assert facts["log_share"] == pytest.approx(np.clip(np.log2(max(share, 1e-9)), -5, 5), abs=1e-4)
            if dones[row]:
                np.testing.assert_array_equal(last[:own], others[3][row]["terminal_observation"])
                ends += 1
    assert ends > 3


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"unknown critic feature 'fair_share' .*; known: log_link_rate, "):
        Privileged(("fair_share",))
    with pytest.raises(ValueError, match="at least one name and none twice"):
        Privileged(("log_flows", "log_flows"))
    with pytest.raises(ValueError, match="unknown critic feature 'x'"):
        SharedPolicyVecEnv(EpisodeSpec(PAIR, engine="fake"), 1, ("x",))
