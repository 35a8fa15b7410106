"""What GPUs can compute. Light: the catalogue of instance types needs it for every spec."""

FLOAT8_CAPABILITY = (8, 9)
"""CUDA compute capability of the first GPUs with fp8 (Ada: L4, L40S; then Hopper)."""
