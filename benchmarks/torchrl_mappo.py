"""TorchRL's MAPPO on VMAS, wired as its own script is: `sota-implementations/multiagent`."""

from __future__ import annotations

import warnings

import torch
import tyro
from mappo_settings import MAX_STEPS, SETTINGS, MappoRun
from measure import Meter
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import RewardSum, TransformedEnv
from torchrl.envs.libs.vmas import VmasEnv
from torchrl.modules import MultiAgentMLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss, ValueEstimators


def main(args: MappoRun) -> None:
    """Train, and print the result as one line of JSON."""
    warnings.filterwarnings("ignore")
    args.prepare()
    use = SETTINGS[args.settings]
    env = VmasEnv(
        args.scenario,
        num_envs=use.num_envs,
        continuous_actions=True,
        max_steps=MAX_STEPS,
        seed=args.seed,
    )
    env = TransformedEnv(
        env, RewardSum(in_keys=[env.reward_key], out_keys=[("agents", "episode_reward")])
    )
    features = env.observation_spec["agents", "observation"].shape[-1]
    actions = env.full_action_spec_unbatched["agents", "action"]
    network = {"n_agents": env.n_agents, "depth": 2, "num_cells": use.width}
    network |= {"share_params": True, "activation_class": nn.Tanh}
    actor_net = nn.Sequential(
        MultiAgentMLP(
            n_agent_inputs=features,
            n_agent_outputs=2 * actions.shape[-1],
            centralized=False,
            **network,
        ),
        NormalParamExtractor(),
    )
    module = TensorDictModule(
        actor_net,
        in_keys=[("agents", "observation")],
        out_keys=[("agents", "loc"), ("agents", "scale")],
    )
    policy = ProbabilisticActor(
        module=module,
        spec=env.full_action_spec_unbatched,
        in_keys=[("agents", "loc"), ("agents", "scale")],
        out_keys=[env.action_key],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": actions.space.low, "high": actions.space.high},
        return_log_prob=True,
        log_prob_key=("agents", "sample_log_prob"),
    )
    value_net = MultiAgentMLP(
        n_agent_inputs=features, n_agent_outputs=1, centralized=True, **network
    )
    critic = ValueOperator(value_net, in_keys=[("agents", "observation")])
    loss_module = ClipPPOLoss(
        actor_network=policy,
        critic_network=critic,
        clip_epsilon=0.2,
        entropy_coeff=0.0,
        critic_coeff=use.critic_coeff,
        loss_critic_type="l2",
        normalize_advantage=use.normalize_advantage,
    )
    loss_module.set_keys(
        reward=env.reward_key,
        action=env.action_key,
        sample_log_prob=("agents", "sample_log_prob"),
        done=("agents", "done"),
        terminated=("agents", "terminated"),
    )
    loss_module.make_value_estimator(ValueEstimators.GAE, gamma=use.gamma, lmbda=use.lmbda)
    collector = Collector(env, policy, frames_per_batch=use.frames_per_batch, total_frames=-1)
    replay_buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(use.frames_per_batch),
        sampler=SamplerWithoutReplacement(),
        batch_size=use.mini_batch_size,
    )
    optimizer = torch.optim.Adam(loss_module.parameters(), use.lr)
    meter = Meter(args, "vmas")
    meter.start()
    frames, curve = 0, []
    for batch in collector:
        following = batch["next"]
        for key in ("done", "terminated"):
            value = following[key].unsqueeze(-1).expand(following[env.reward_key].shape)
            following["agents", key] = value
        with torch.no_grad():
            loss_module.value_estimator(
                batch,
                params=loss_module.critic_network_params,
                target_params=loss_module.target_critic_network_params,
            )
        replay_buffer.extend(batch.reshape(-1))
        for _ in range(use.num_epochs):
            for _ in range(use.frames_per_batch // use.mini_batch_size):
                losses = loss_module(replay_buffer.sample())
                loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                loss.backward()
                torch.nn.utils.clip_grad_norm_(loss_module.parameters(), use.max_grad_norm)
                optimizer.step()
                optimizer.zero_grad()
        collector.update_policy_weights_()
        frames += batch.numel()
        done = following["agents", "done"]
        curve.append((frames, round(following["agents", "episode_reward"][done].mean().item(), 2)))
        if meter.tick(frames):
            break
    collector.shutdown()
    meter.print(curve=curve, mean_return=curve[-1][1])


if __name__ == "__main__":
    main(tyro.cli(MappoRun))
