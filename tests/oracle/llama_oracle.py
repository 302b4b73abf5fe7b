"""llama.cpp through the low-level API of PyPI llama-cpp-python: quantising files and computing logits."""

import ctypes

import llama_cpp
import numpy as np

F32, F16 = 0, 1  # ggml's type numbers, for cache types

# llama.cpp's numbers for mixtures (llama_ftype) and for tensor types (ggml_type).
FILE_TYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17,
    "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32, "Q3_K": 12, "Q4_K": 15, "Q5_K": 17,
}  # fmt: skip
TENSOR_TYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
    "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30,
}  # fmt: skip


@llama_cpp.llama_log_callback
def _errors_only(level, text, _):
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        print(text.decode(errors="replace"), end="")


llama_cpp.llama_backend_init()
llama_cpp.llama_log_set(_errors_only, ctypes.c_void_p(0))


def quantize(source, target, kind, pure=False, threads=2):
    """Writes `target` with the matrices of `source` as the mixture `kind`, or, if `pure`, all in that one type."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = threads
    params.ftype = FILE_TYPES[kind]
    params.pure = pure
    if pure:
        params.token_embedding_type = TENSOR_TYPES[kind]
        params.output_tensor_type = TENSOR_TYPES[kind]
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"{source}: llama.cpp could not quantise to {kind}")


def dequantize(source, target):
    """Writes `source` to `target` with every matrix as F32."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = 2
    params.ftype = 0  # LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"{source}: llama.cpp could not widen to F32")


class Oracle:
    """A model in llama.cpp, computed without repacked weights or flash attention, by default with an F32 cache."""

    def __init__(self, path, context, cache_type=F32):
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = False
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"{path}: llama.cpp cannot load it")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(self.vocab)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = context
        params.n_ubatch = min(context, 512)
        params.n_threads = params.n_threads_batch = 2
        params.type_k = params.type_v = cache_type
        params.flash_attn_type = 0
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"{path}: llama.cpp refused a context of {context}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def tokenize(self, text):
        """Token ids of UTF-8 bytes, BOS first if the model adds one."""
        ids = (llama_cpp.llama_token * (len(text) + 2))()
        n = llama_cpp.llama_tokenize(self.vocab, text, len(text), ids, len(ids), True, False)
        return list(ids[:n])

    def logits(self, tokens):
        """The logits after every token of a text, [n, vocabulary] f32, starting with an empty cache."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        code = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode: {code}")
        rows = llama_cpp.llama_get_logits(self.context)
        return np.ctypeslib.as_array(rows, (len(tokens), self.vocabulary)).copy()
