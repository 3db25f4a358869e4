"""Images of tasks whose configuration names none. Without the models of configuration, which an agent need not import."""

from __future__ import annotations

DEFAULT_CUDA_IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
DEFAULT_CPU_IMAGE = DEFAULT_CUDA_IMAGE
DEFAULT_ROCM_IMAGE = "rocm/pytorch:latest"
