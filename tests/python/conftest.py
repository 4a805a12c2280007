# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
import importlib.util

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
# Modules that import torch at the top.
collect_ignore = [] if HAS_TORCH else ["reference.py"]
WITHOUT_TORCH = {"test_import.py", "test_jax.py", "test_numpy.py"}


def pytest_ignore_collect(collection_path, config):
    if not HAS_TORCH and collection_path.name.startswith("test_"):
        return collection_path.name not in WITHOUT_TORCH
    return None


def pytest_report_header(config):
    if HAS_TORCH:
        return None
    return "torch is not installed: only the tests of import and of NumPy arrays run"


@pytest.fixture(autouse=True)
def _one_seed():
    if HAS_TORCH:
        import torch

        torch.manual_seed(0)
