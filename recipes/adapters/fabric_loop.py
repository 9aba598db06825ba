"""A loop of Lightning Fabric, and a `hooktrainer.Session` around it.

What the loop passes to ``fabric.log`` goes to the session's loggers. Started again after a kill, it
continues from its last checkpoint. The module, the optimizer, the random state and the position in
the data come back, on one device bit for bit; `DataCollector` keeps the position of a data set or
a `DataLoader`, also of one with workers. What Fabric keeps itself does not come back: the scale of
``precision="16-mixed"``, and the state of its own loggers and callbacks. Sharded and distributed
strategies are refused, since a session is one process.
"""

from dataclasses import asdict, dataclass

import torch
import tyro
from lightning_fabric import Fabric
from lightning_fabric.loggers.logger import Logger
from torch import nn

from hooktrainer import DataCollector, Session


@dataclass
class Args:
    directory: str = "out/fabric"
    seed: int = 1
    epochs: int = 3
    batch_size: int = 32
    lr: float = 1e-3
    save_interval: int = 1_000


class SessionLogger(Logger):
    """Passes what Fabric logs to a session."""

    name, version, session = "hooktrainer", None, None

    def log_metrics(self, metrics, step=None):
        self.session.log(metrics)

    def log_hyperparams(self, params, *args, **kwargs):
        raise NotImplementedError("pass Session(config=...)")


def main(args: Args):
    logger = SessionLogger()
    fabric = Fabric(accelerator="auto", devices=1, loggers=logger)
    fabric.seed_everything(args.seed, verbose=False)
    fabric.launch()
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 1))
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=args.lr))
    x = torch.randn(1_000, 8, generator=torch.Generator().manual_seed(0))
    data = DataCollector(
        {"x": x, "y": x.square().sum(-1, keepdim=True)},
        args.batch_size,
        epochs=args.epochs,
        seed=args.seed,
    )
    given = {"model": model, "optimizer": optimizer, "data": data, "resume": "latest"}
    given |= {"config": asdict(args), "save_interval": args.save_interval, "unit": "samples"}
    total = args.epochs * len(x)
    with Session(args.directory, total_frames=total, log_interval=500, **given) as session:
        logger.session = session
        for batch in data:
            batch = batch.to(fabric.device)
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            session.step("post_optim")
            fabric.log("loss/mse", loss)
            if not session.end_batch(len(batch), batch):
                break  # and in a run that had ended, there is no batch


if __name__ == "__main__":
    main(tyro.cli(Args))
