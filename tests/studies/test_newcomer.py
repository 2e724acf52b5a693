from bbrgym.envs import environment_ids
from studies.newcomer import environment_hash


def test_every_id_has_a_hash_that_is_of_its_environment() -> None:
    hashes = {id: environment_hash(id) for id in environment_ids()}
    assert hashes["bbrgym/Bottleneck-v1"] == hashes["bbrgym/Default-v1"]
    assert len(set(hashes.values())) == len(hashes) - 1
