"""Kinds of torch's operations, by the names that a dispatch mode sees."""

from __future__ import annotations

MATRIX = {"mm", "addmm", "bmm", "baddbmm", "matmul", "convolution", "linear", "_grouped_mm", "_scaled_mm", "mv", "dot"}
FUSED = {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
         "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math"}
"""Attention in one call."""
SOFTMAX = {"_softmax", "_safe_softmax"}
NORM = {"native_layer_norm", "_fused_rms_norm", "native_group_norm", "rms_norm"}
BATCH_NORM = {"native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
              "_native_batch_norm_legit_no_training", "_batch_norm_no_update", "batch_norm"}
NORMS = NORM | BATCH_NORM
REDUCTION = {"mean", "sum", "var", "var_mean", "std", "linalg_vector_norm", "norm", "amax", "amin"}
VIEW = {"view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice",
        "alias", "select", "split", "split_with_sizes", "chunk", "unbind", "clone", "_to_copy", "detach",
        "contiguous", "roll", "native_dropout", "lift_fresh", "copy_", "constant_pad_nd", "as_strided", "to", "cat",
        "_reshape_alias"}
"""Operations that change no number, or only drop some."""
FRESH = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "bernoulli", "new_zeros",
         "new_empty", "new_ones", "new_full", "argmax", "argsort", "eq", "ne", "lt", "le", "gt", "ge"}
"""Operations that take no more than a shape, or an order, from what they are given."""
SUM = {"add", "add_", "sub", "sub_", "rsub", "addcmul", "addcmul_"}
FACTOR = {"mul", "mul_", "div", "div_"}
BENT = {"relu", "relu_", "gelu", "silu", "silu_", "sigmoid", "tanh", "elu", "leaky_relu", "pow", "erf", "hardswish",
        "mish", "softplus", "threshold", "clamp", "clamp_min", "square", "abs", "hardtanh", "sin", "exp",
        "log_sigmoid_forward"}
"""Functions of one number."""
