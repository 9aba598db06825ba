"""Encoders: from observations of any space to features."""

from .encoder import (
    CONVOLUTIONS,
    Convolutions,
    EncodedNetwork,
    Encoder,
    GridEncoder,
    ObservationEncoder,
)
from .image import ImageEncoder, impala_cnn, nature_cnn, small_cnn
from .leaf import DiscreteEncoder, VectorEncoder

__all__ = [
    "CONVOLUTIONS",
    "Convolutions",
    "DiscreteEncoder",
    "EncodedNetwork",
    "Encoder",
    "GridEncoder",
    "ImageEncoder",
    "ObservationEncoder",
    "VectorEncoder",
    "impala_cnn",
    "nature_cnn",
    "small_cnn",
]
