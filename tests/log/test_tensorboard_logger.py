"""The TensorBoard sink, read back with TensorBoard's own reader."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hooktrainer.log import Logger, TensorBoardSink, read_scalars


def logger_at(path: Path) -> Logger:
    return Logger({"tensorboard": TensorBoardSink(path)})


def accumulate(path: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(path), size_guidance={"images": 0, "scalars": 0})
    return accumulator.Reload()


def test_a_film_is_an_animated_gif(tmp_path):
    video = torch.zeros(1, 6, 3, 16, 24, dtype=torch.uint8)
    for frame in range(6):
        video[0, frame, :, :, 4 * frame : 4 * frame + 4] = 255
    with logger_at(tmp_path) as logger:
        logger.log_video("eval/policy", video, 10, fps=10)
    (event,) = accumulate(tmp_path).Images("eval/policy")
    assert (event.step, event.width, event.height) == (10, 24, 16)
    picture = Image.open(io.BytesIO(event.encoded_image_string))
    assert (picture.format, picture.n_frames, picture.info["duration"]) == ("GIF", 6, 100)
    picture.seek(5)
    assert picture.convert("RGB").getpixel((22, 8)) == (255, 255, 255)
    assert picture.convert("RGB").getpixel((2, 8)) == (0, 0, 0)


def test_histogram_and_text(tmp_path):
    with logger_at(tmp_path) as logger:
        logger.log_histogram("weights", torch.tensor([0.0, 1.0, 2.0, float("nan")]), 4, bins=3)
        logger.log_text("notes", "**bold**", 5)
    accumulator = accumulate(tmp_path)
    histogram = accumulator.Histograms("weights")[0].histogram_value
    assert (histogram.num, histogram.min, histogram.max, histogram.sum) == (3, 0, 2, 3)
    (text,) = accumulator.Tensors("notes/text_summary")
    assert text.tensor_proto.string_val[0] == b"**bold**"


def test_the_configuration_is_text_and_hyperparameters(tmp_path):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    with logger_at(tmp_path) as logger:
        logger.log_hparams({"optim": {"lr": 0.1}, "env": "CartPole-v1", "layers": [64, 64]})
    accumulator = accumulate(tmp_path)
    (text,) = accumulator.Tensors("config/text_summary")
    assert b"lr: 0.1" in text.tensor_proto.string_val[0]
    content = accumulator.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["optim.lr"].number_value == 0.1
    assert hparams["env"].string_value == "CartPole-v1"
    assert hparams["layers"].string_value == "[64, 64]"


def test_resume_shows_every_step_once(tmp_path):
    logger = logger_at(tmp_path)
    for step in range(10):
        logger.log_scalar("x", float(step), step)
    state = logger.state_dict()
    for resumed in range(3):
        for step in range(10, 15):
            logger.log_scalars({"x": -1.0, "y": float(resumed)}, step)
        logger.flush()
        logger = logger_at(tmp_path)
        logger.load_state_dict(state)
    for step in range(10, 20):
        logger.log_scalar("x", float(step), step)
    logger.close()
    expected = [(step, float(step)) for step in range(20)]
    found = [(event.step, event.value) for event in accumulate(tmp_path).Scalars("x")]
    assert found == expected
    assert read_scalars(tmp_path) == {"x": expected}


def test_a_torn_file_is_read_up_to_there(tmp_path):
    with logger_at(tmp_path) as logger:
        for step in range(4):
            logger.log_scalar("x", float(step), step)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-4])
    assert read_scalars(tmp_path) == {"x": [(0, 0.0), (1, 1.0), (2, 2.0)]}
