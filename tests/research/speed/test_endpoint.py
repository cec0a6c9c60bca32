import json

from rewardlab.research.speed.endpoint import Load, speedup


def test_the_speed_table_counts_what_it_asked():
    found = speedup(Load(latency=0.01, in_flight=4, asks=12, alone=3))
    assert found["most in flight"] in range(1, 5) and json.dumps(found)
    assert set(found["speed-up"]) == {"one at a time", "in flight", "in flight, kept"}
