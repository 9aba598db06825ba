"""dm_control's suite through shimmy: its dict of vectors becomes one vector."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec

from .family import Family, Wrappers, gymnasiums


def _wrappers(spec: EnvSpec, training: bool) -> Wrappers:
    return (gymnasiums("FlattenObservation", "transform_observation"),)


FAMILY = Family(
    name="dm_control",
    ids=r"dm_control/",
    wrappers=_wrappers,
    says=lambda spec: "the parts of an observation in one vector",
)
