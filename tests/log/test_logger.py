"""What the front checks, counts and passes on."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hooktrainer import get_logger
from hooktrainer.log import CSVSink, Logger, as_logger, as_loggers, media, read_csv, read_scalars


class Plain:
    """The least a user's logger can be."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, step: int) -> None:
        self.seen.append((name, value, step))


class Full(Plain):
    """A user's logger with everything."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any]] = []

    def log_hparams(self, cfg):
        self.calls.append(("hparams", cfg))

    def log_video(self, name, video, step=None, **kwargs):
        self.calls.append(("video", (tuple(video.shape), video.dtype, kwargs)))

    def log_str(self, name, value, step=None):
        self.calls.append(("str", value))

    def log_histogram(self, name, data, step=None, bins=None):
        self.calls.append(("histogram", (data.tolist(), bins)))

    def close(self):
        self.calls.append(("close", None))

    def state_dict(self):
        return {"n": len(self.seen)}

    def load_state_dict(self, state_dict):
        self.calls.append(("load", state_dict))


@pytest.mark.parametrize(
    "value", [2, 2.0, True + 1, np.float32(2), np.int64(2), torch.tensor(2.0), torch.tensor([[2]])]
)
def test_numbers_of_every_type_are_logged(value):
    plain = Plain()
    with as_logger(plain) as logger:
        logger.log_scalar("x", value, np.int64(3))
    assert plain.seen == [("x", 2.0, 3)]
    assert [type(part) for part in plain.seen[0]] == [str, float, int]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(3), r"'x' is a Tensor of shape \[3\]"),
        ("high", "'x' is a str"),
        (None, "'x' is a NoneType"),
    ],
)
def test_what_is_not_one_number_is_refused_by_name(value, message):
    with pytest.raises(TypeError, match=message):
        Logger({}).log_scalar("x", value, 0)


UNFIT = ["", "two\nlines", "nul\0", "half \udce9", "separator\u2028"]
FIT = ["unnamed", "two\\nlines", "nul\\x00", "half \\udce9", "separator\\u2028"]


def test_names_that_are_not_valid_text_are_escaped_with_one_warning(tmp_path, caplog):
    logger = get_logger(["csv", "tensorboard"], tmp_path, "half \udce9")
    for step in range(2):
        logger.log_scalars({**dict.fromkeys(UNFIT, 1.0), "good": 2.0}, step)
    logger.log_text("t", "half \udce9", 0)
    logger.log_hparams({"path\udce9": ["half \udce9", {"nul": "\0"}]})
    logger.close()
    assert logger.failures == {}
    assert len(caplog.records) == len(UNFIT)
    assert all("is not valid text: logged as" in record.message for record in caplog.records)
    (place,) = tmp_path.iterdir()
    for found in (read_csv(place), read_scalars(place / "tensorboard")):
        assert list(found) == [*FIT, "good"]
        assert all(len(rows) == 2 for rows in found.values())


def test_a_step_is_a_whole_number():
    with pytest.raises(TypeError, match=r"step counts frames and is an int, not 1\.5"):
        Logger({}).log_scalar("x", 1.0, 1.5)


def test_without_steps_each_metric_is_counted_and_the_count_is_saved():
    plain = Plain()
    logger = as_logger(plain)
    logger.log_scalar("a", 1.0)
    logger.log_scalars({"a": 2.0, "b": 3.0})
    resumed = as_logger(plain)
    resumed.load_state_dict(logger.state_dict())
    resumed.log_scalar("a", 4.0)
    resumed.flush()
    assert plain.seen == [("a", 1.0, 0), ("a", 2.0, 1), ("b", 3.0, 0), ("a", 4.0, 2)]


def test_a_users_logger_gets_the_records_it_supports(caplog):
    full = Full()
    logger = as_logger(full)
    logger.log_hparams({"a": {"b": 1}})
    logger.log_video("v", torch.zeros(2, 3, 1, 4, 5, dtype=torch.uint8), 1)
    logger.log_video("v", torch.zeros(3, 3, 4, 5, dtype=torch.uint8), 1, fps=5)
    logger.log_text("t", "hello", 1)
    logger.log_histogram("h", [1, 2], 1, bins=2)
    for _ in range(2):
        logger.log_image("i", torch.zeros(4, 4, dtype=torch.uint8), 1)
    logger.load_state_dict(logger.state_dict())
    logger.close()
    assert full.calls == [
        ("hparams", {"a": {"b": 1}}),
        ("video", ((1, 3, 1, 4, 10), torch.uint8, {})),
        ("video", ((1, 3, 3, 4, 5), torch.uint8, {"fps": 5})),
        ("str", "hello"),
        ("histogram", ([1.0, 2.0], 2)),
        ("load", {"n": 0}),
        ("close", None),
    ]
    assert [record.message for record in caplog.records] == [
        "Logger 'Full' cannot hold what log_image gives it: left out of it."
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchrls_mlflow_logger_writes_to_its_own_run_from_another_thread(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    from torchrl.record.loggers.mlflow import MLFlowLogger

    before = mlflow.get_tracking_uri()
    try:
        own = MLFlowLogger("exp", f"sqlite:///{tmp_path / 'mlflow.db'}")
        logger = as_logger(own)
        logger.log_scalars({"x": 1.0}, 3)
        logger.close()
        mlflow.end_run()
        assert logger.failures == {}
        (run,) = mlflow.MlflowClient().search_runs([own.id])
        assert run.info.run_id == own.experiment.info.run_id
        assert run.data.metrics == {"x": 1.0}
    finally:
        mlflow.set_tracking_uri(before)


def test_torchrls_video_recorder_takes_ours(tmp_path):
    from torchrl.record import VideoRecorder

    with Logger({"csv": CSVSink(tmp_path / "metrics.csv")}) as logger:
        recorder = VideoRecorder(logger=logger, tag="eval", skip=1)
        for _ in range(3):
            recorder._apply_transform(torch.zeros(3, 8, 8, dtype=torch.uint8))
        recorder.dump()
    assert len(list(tmp_path.rglob("*.gif"))) == 1


def test_anything_becomes_a_list_of_loggers():
    plain, logger = Plain(), Logger({})
    assert as_loggers(None) == []
    assert as_loggers(logger) == [logger]
    assert as_logger(logger) is logger
    several = as_loggers([plain, logger])
    assert several[1] is logger
    several[0].log_scalar("x", 1.0, 1)
    several[0].flush()
    assert plain.seen == [("x", 1.0, 1)]
    with pytest.raises(TypeError, match="log_scalar"):
        as_loggers([3])


def test_a_sink_only_the_checkpoint_knows_is_named(tmp_path, caplog):
    state = as_logger(Plain()).state_dict()
    Logger({"csv": CSVSink(tmp_path / "m.csv")}).load_state_dict(state)
    assert "Plain" in caplog.text


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, "finished"), (OSError, "failed"), (KeyboardInterrupt, "interrupted")],
)
def test_leaving_a_with_block_closes_with_the_right_status(tmp_path, error, status):
    class Noting(CSVSink):
        noted = ""

        def close(self, status="finished"):
            self.noted = status
            super().close(status)

    sink = Noting(tmp_path / "metrics.csv")
    try:
        with Logger({"csv": sink}) as logger:
            logger.log_scalar("x", 1.0, 0)
            if error is not None:
                raise error
    except (OSError, KeyboardInterrupt):
        pass
    assert sink.noted == status
    assert read_csv(tmp_path) == {"x": [(0, 1.0)]}


def test_pictures_are_copied_when_they_are_logged():
    image = np.zeros((4, 4, 3), np.uint8)
    video = torch.zeros(1, 2, 3, 4, 4, dtype=torch.uint8)
    copies = media.as_image("i", image), media.as_video("v", video)
    image.fill(9)
    video.fill_(9)
    assert all((copy == 0).all() for copy in copies)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 2, 4, 5, 5), torch.uint8, r"shape \[1, 2, 4, 5, 5\]"),
        ((2, 5, 5), torch.uint8, r"shape \[2, 5, 5\]"),
        ((0, 3, 5, 5), torch.uint8, r"shape \[0, 3, 5, 5\]"),
        ((1, 2, 3, 5, 5), torch.float32, "dtype float32; uint8"),
    ],
)
def test_a_film_of_the_wrong_form_is_refused_by_name(shape, dtype, message):
    with pytest.raises(ValueError, match=f"video 'v' has {message}"):
        Logger({}).log_video("v", torch.zeros(shape, dtype=dtype), 0)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_gif_keeps_frames_colours_and_time(channels):
    frames = np.zeros((12, 8, 8, channels), np.uint8)
    for t in range(12):
        frames[t, :, :, t % channels] = 20 * t
    picture = Image.open(io.BytesIO(media.gif(frames, 20)))
    assert (picture.n_frames, picture.info["duration"], picture.info["loop"]) == (12, 50, 0)
    for t in range(12):
        picture.seek(t)
        shown = np.asarray(picture.convert("RGB" if channels == 3 else "L"))
        assert np.array_equal(shown.reshape(8, 8, channels), frames[t])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("eval/policy", "eval/policy_000000000007.gif"),
        ("../../etc/x y", "etc/x_y_000000000007.gif"),
        ("/", "unnamed_000000000007.gif"),
    ],
)
def test_file_names_stay_where_they_are_put(name, path):
    assert str(media.file_name(name, 7, ".gif")) == path
