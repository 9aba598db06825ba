"""`hooktrainer play`: play a saved policy, and compare with the recorded episodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ..base.checks import check_count
from . import output
from .arguments import Flag, OptionalCount, OptionalSeed, SavedSpec, shown_as
from .policies import print_episodes

_VERDICTS = {
    True: "the same as recorded",
    False: "NOT the same as recorded",
    None: "nothing recorded to compare it with",
}

Render = Annotated[Literal["human"] | None, shown_as("human")]


def play(
    policy: SavedSpec,
    /,
    *,
    seed: OptionalSeed = None,
    episodes: OptionalCount = None,
    render: Render = None,
    draw: Flag = False,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Play a saved policy, and compare with its recorded episodes.

    By default it plays the recorded episodes again. On the same machine the returns are the same to
    the last bit; the exit code is 1 if they differ. The same seed always gives the same episodes.

    Example: hooktrainer play runs/a@best --seed 7 --episodes 5

    Args:
        policy: RUN (its latest policy), RUN@best, RUN@FRAMES, or the path of a saved policy, such
            as a file of hooktrainer pack
        seed: seed of the episodes; by default the recorded one
        episodes: how many to play; by default as many as were recorded
        render: human: show it on the screen
        draw: sample actions from the policy's distribution, as in training, instead of its mode
        trust: run the code that its environment needs, if that is not installed
        json: print JSON: the episodes, and whether they equal what was recorded
    """
    import torch

    from ..policies import Evaluation, load_policy, play_episodes
    from ..policies.saved import EPISODES, SEED
    from ..show.html import return_text

    if episodes is not None:
        check_count("--episodes", episodes)
    torch.set_num_threads(1)  # as in evaluations
    loaded = load_policy(policy, deterministic=not draw, trust=trust)
    recorded = loaded.evaluation
    if seed is None:
        seed = SEED if recorded is None else recorded.seed
    if episodes is None:
        episodes = EPISODES if recorded is None else recorded.episodes
    options: dict[str, Any] = {} if render is None else {"render_mode": render}
    played = play_episodes(loaded, seed, episodes, **options)
    returns, lengths = zip(*((one.return_, one.length) for one in played), strict=True)
    result = Evaluation(seed, returns, lengths)
    same = None
    if not draw and recorded is not None and recorded.seed == seed:  # no recorded action is sampled
        pairs = (result.returns, recorded.returns), (result.lengths, recorded.lengths)
        both = min(result.episodes, recorded.episodes)
        same = all(ours[:both] == theirs[:both] for ours, theirs in pairs)
    if json:
        facts = result.encode() | {"path": loaded.saved.path, "frames": loaded.frames}
        facts.pop("seconds")
        output.print_json({**facts, "equals_recorded": same})
    else:
        print_episodes(result)
        name = f"{loaded.saved.environment.name}, policy at {loaded.frames:,} frames, seed {seed}"
        output.line(f"{name}: return {return_text(result)}; {_VERDICTS[same]}")
    return 1 if same is False else 0
