"""What a vector environment says of where its episodes begin."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv


def said_autoreset_mode(env: Any) -> Any:
    """``metadata["autoreset_mode"]`` of an environment; ``None`` if it says none.

    Classes without ``metadata`` of their own share one dict, that of `gymnasium.vector.VectorEnv`,
    and some environments write their mode into it (ALE's do): there it is the last one made that
    speaks. Those have it as an attribute too.
    """
    metadata = getattr(env, "metadata", None) or {}
    if metadata is VectorEnv.metadata:
        return getattr(getattr(env, "unwrapped", env), "autoreset_mode", None)
    return metadata.get("autoreset_mode")
