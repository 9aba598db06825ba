"""hooktrainer's MAPPO on VMAS, with CSV and TensorBoard logging."""

from __future__ import annotations

import tyro
from mappo_settings import MAX_STEPS, SETTINGS, MappoRun
from measure import Meter
from ours import Tick, make_logger
from tensordict import TensorDictBase

from hooktrainer.algorithms import MAPPO


def main(args: MappoRun) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    use = SETTINGS[args.settings]
    meter = Meter(args, "vmas")
    trainer = MAPPO(
        env=f"vmas/{args.scenario}",
        env_kwargs={"max_steps": MAX_STEPS},
        tuned=False,
        total_frames=args.frames,
        seed=args.seed,
        num_envs=use.num_envs,
        steps_per_batch=MAX_STEPS,
        num_epochs=use.num_epochs,
        mini_batch_size=use.mini_batch_size,
        lr=use.lr,
        anneal_lr=False,
        gamma=use.gamma,
        lmbda=use.lmbda,
        num_cells=(use.width, use.width),
        max_grad_norm=use.max_grad_norm,
        critic_coeff=use.critic_coeff,
        loggers=[make_logger(args)],
        eval_episodes=0,
        progress_bar=False,
    ).trainer()
    curve = []

    def returns(batch: TensorDictBase) -> None:
        ended = batch["next", "episode_reward"][batch["next", "done"]]
        curve.append((trainer.collected_frames, round(ended.mean().item(), 2)))

    trainer.register_op("pre_steps_log", returns)
    Tick(meter, None).register(trainer)
    meter.start()
    trainer.train()
    meter.print(curve=curve, mean_return=curve[-1][1])


if __name__ == "__main__":
    main(tyro.cli(MappoRun))
