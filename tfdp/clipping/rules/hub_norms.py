"""keras_hub's own root-mean-square norms: outputs = inputs / rms(inputs) * scale."""

from __future__ import annotations

import functools

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import at_least_float32, register_rule, unbroadcast
from tfdp.clipping.terms import ExplicitTerm

_MODELS = "keras_hub.src.models"
# By name: importing keras_hub takes seconds, and many models do without it.
_SCALED = (
    "llama.llama_layernorm.LlamaLayerNorm",
    "mistral.mistral_layer_norm.MistralLayerNormalization",
    "mixtral.mixtral_layer_norm.MixtralLayerNormalization",
    "phi3.phi3_layernorm.Phi3LayerNorm",
    "qwen.qwen_layernorm.QwenLayerNorm",
    "qwen_moe.qwen_moe_layernorm.QwenMoeLayerNorm",
    "gpt_oss.gpt_oss_layer_norm.GptOssLayerNormalization",
)
_SCALED_FROM_ONE = (  # they multiply by 1 + scale
    "gemma.rms_normalization.RMSNormalization",
    "gemma3.gemma3_layers.RMSNormalization",
)


def _scaled(layer, call, tap, inputs, shift):
    values = at_least_float32(inputs)
    squares = tf.reduce_mean(values * values, axis=-1, keepdims=True)
    normalized = values * tf.math.rsqrt(squares + layer.epsilon)

    def terms(gradient):
        gradient = at_least_float32(gradient) * normalized
        yield layer.scale, ExplicitTerm(unbroadcast(gradient, layer.scale.shape))

    scale = tf.cast(keras.ops.convert_to_tensor(layer.scale), values.dtype)
    return tap(tf.cast(normalized * (shift + scale), layer.compute_dtype), terms)


for _name in _SCALED:
    register_rule(f"{_MODELS}.{_name}")(functools.partial(_scaled, shift=0.0))
for _name in _SCALED_FROM_ONE:
    register_rule(f"{_MODELS}.{_name}")(functools.partial(_scaled, shift=1.0))
