"""Which Python package has a module that a program could not import."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ANY_PACKAGE = "PACKAGE"
"""Stands for a package that kfjob does not know: the package of that name may be another one."""
_OTHER_NAMES: Mapping[str, str] = MappingProxyType({
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "dns": "dnspython", "dotenv": "python-dotenv", "flash_attn": "flash-attn",
    "google.protobuf": "protobuf", "grpc": "grpcio", "jwt": "pyjwt", "open_clip": "open-clip-torch", "PIL": "pillow",
    "pkg_resources": "'setuptools<81'", "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "yaml": "pyyaml",
})  # fmt: skip
"""Packages of modules with another name, as the packages state them in their own metadata (PyPI)."""
_SAME_NAMES = frozenset((
    "accelerate", "datasets", "deepspeed", "diffusers", "einops", "evaluate", "fire", "h5py", "huggingface_hub",
    "jinja2", "lightning", "matplotlib", "mlflow", "msgpack", "ninja", "nltk", "numba", "numpy", "omegaconf", "pandas",
    "peft", "psutil", "pyarrow", "pydantic", "regex", "requests", "safetensors", "scipy", "seaborn", "sentencepiece",
    "tensorboard", "tensorboardX", "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torchmetrics",
    "torchvision", "tqdm", "transformers", "triton", "trl", "wandb", "webdataset", "zarr",
))  # fmt: skip
"""Packages with the name of their module."""


def find_package(module: str) -> str:
    """Return the package to install for a module: `opencv-python-headless` for `cv2`, `PACKAGE` for one that is unknown."""
    return _OTHER_NAMES.get(module) or (module if module in _SAME_NAMES else ANY_PACKAGE)
