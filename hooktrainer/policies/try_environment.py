"""The program that tries an environment of unknown origin: ``python -m … JSON BYTES SECONDS``.

It makes it, and takes one step in it, with bounds of memory and time; see `Environment.make`. The
exit code is 0 if that is possible within them, also if the environment raises something else.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from ..base.child_program import end_with_parent
from .agents_environment import decode_environment

OUT_OF_MEMORY = 3


def _try(env: Any, *, renders: bool) -> None:
    env.reset(seed=0)
    if renders:
        env.render()
    several = hasattr(env, "possible_agents")
    if several:
        env.step({name: env.action_space(name).sample() for name in env.agents})
    else:
        env.step(env.action_space.sample())


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "allocat" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> int:
    """Try what the command line says, within its bounds."""
    end_with_parent()
    coded, memory, seconds = sys.argv[1:]
    environment, renders = json.loads(coded)
    for kind, bound in (
        (resource.RLIMIT_DATA, int(memory)),
        (resource.RLIMIT_CPU, int(seconds)),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))
    try:
        kwargs = {"render_mode": "rgb_array"} if renders else {}
        _try(decode_environment(environment).made(**kwargs), renders=renders)
    except Exception as error:  # which is said where it is made in earnest
        return OUT_OF_MEMORY if _is_out_of_memory(error) else 0
    return 0


if __name__ == "__main__":
    os._exit(main())  # whatever an environment does at its end
