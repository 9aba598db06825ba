"""PPO in one file with its own loop, and a `hooktrainer.Session` around it.

Started again after a kill, it continues from its last checkpoint, bit for bit: networks, optimizer,
random generators and the variables of the loop are given to the session, and by `SavedEnvs` the
environments. That class is for those of Gymnasium's classic control, whose state is a few numbers.
Others need such a class of their own; without one, a resumed run begins new episodes.
"""

from dataclasses import asdict, dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn
from torch.distributions import Categorical

from hooktrainer import Session


@dataclass
class Args:
    directory: str = "out/ppo"
    seed: int = 1
    total_frames: int = 50_000
    num_envs: int = 4
    num_steps: int = 128
    save_interval: int = 5_000


class SavedEnvs:
    def __init__(self, vector):
        self.vector = vector

    def state_dict(self):
        envs, waiting = self.vector.envs, self.vector._autoreset_envs
        random = [env.unwrapped.np_random.bit_generator.state for env in envs]
        steps = [env.get_wrapper_attr("_elapsed_steps") for env in envs]
        states = [np.array(env.unwrapped.state) for env in envs]
        return {"random": random, "steps": steps, "states": states, "waiting": waiting}

    def load_state_dict(self, saved):
        self.vector.reset()
        for i, env in enumerate(self.vector.envs):
            env.unwrapped.np_random.bit_generator.state = saved["random"][i]
            env.set_wrapper_attr("_elapsed_steps", saved["steps"][i])
            env.unwrapped.state = saved["states"][i]
        self.vector._autoreset_envs = saved["waiting"]


def network(outputs):
    hidden = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Linear(64, outputs))


def main(args: Args):
    torch.manual_seed(args.seed)
    envs = gym.make_vec("CartPole-v1", num_envs=args.num_envs, vectorization_mode="sync")
    actor, critic = network(2), network(1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2.5e-4, eps=1e-5)
    zeros, size = np.zeros(args.num_envs, np.float32), args.num_envs * args.num_steps
    loop = {"obs": envs.reset(seed=args.seed)[0], "done": zeros, "returns": zeros}
    given = {"actor": actor, "critic": critic, "optimizer": optimizer, "loop": loop}
    given |= {"resume": "latest", "total_frames": args.total_frames, "log_interval": size}
    given |= {"config": asdict(args), "save_interval": args.save_interval, "seed": args.seed}
    with Session(args.directory, envs=SavedEnvs(envs), **given) as session:
        while session.going_on:
            steps = []
            for _ in range(args.num_steps):
                obs, was_done = torch.from_numpy(loop["obs"].copy()), loop["done"]
                with torch.no_grad():
                    policy, value = Categorical(logits=actor(obs)), critic(obs)[:, 0]
                    action = policy.sample()
                loop["obs"], reward, end, cut, _ = envs.step(action.numpy())
                loop["done"], loop["returns"] = (end | cut) * 1.0, loop["returns"] + reward
                for i in np.flatnonzero(loop["done"]):
                    session.log({"train/return": loop["returns"][i]})
                    loop["returns"][i] = 0.0
                row = [torch.as_tensor(each).float() for each in (reward, was_done, loop["done"])]
                steps.append([obs, action, policy.log_prob(action), value, *row])
            obs, action, log_prob, value, reward, was_done, done = map(
                torch.stack, zip(*steps, strict=True)
            )
            advantage, last = torch.zeros_like(reward), 0.0
            after = critic(torch.from_numpy(loop["obs"]))[:, 0].detach()
            for t in reversed(range(args.num_steps)):
                delta = reward[t] + 0.99 * after * (1 - done[t]) - value[t]
                last = delta + 0.99 * 0.95 * (1 - done[t]) * last
                advantage[t], after = last, value[t]
            rows = [obs, action, log_prob, advantage, advantage + value]
            rows = [each[was_done == 0] for each in rows]  # where it resets, nothing is learned
            for _ in range(4):
                for index in torch.randperm(len(rows[0])).chunk(4):
                    obs, action, log_prob, advantage, target = (each[index] for each in rows)
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                    policy = Categorical(logits=actor(obs))
                    ratio = (policy.log_prob(action) - log_prob).exp()
                    least = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                    value_loss = (critic(obs)[:, 0] - target).square().mean()
                    loss = 0.5 * value_loss - least.mean() - 0.01 * policy.entropy().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                    optimizer.step()
                    session.step("post_optim")
                    session.log({"loss/policy": -least.mean(), "loss/value": value_loss})
            session.end_batch(frames=size)


if __name__ == "__main__":
    main(tyro.cli(Args))
