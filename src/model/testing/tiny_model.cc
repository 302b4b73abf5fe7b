#include "model/testing/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/ops.h"

namespace winnow::model::testing {
namespace {

using gguf::testing::Builder;

// Numbers that depend only on the name (FNV-1a seeds the generator), uniform in [-scale, scale)
// around `center`.
std::vector<float> Numbers(std::string_view name, int64_t n, double scale, double center = 0) {
  uint64_t seed = 0xCBF29CE484222325u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  Rng rng(seed);
  std::vector<float> numbers(static_cast<size_t>(n));
  for (float& x : numbers) x = static_cast<float>(center + scale * (2 * rng.Uniform() - 1));
  return numbers;
}

class Writer {
 public:
  explicit Writer(const TinySpec& spec) : spec_(spec) {}

  Builder Build() {
    WriteMetadata();
    WriteMatrix("token_embd", {"token_embd"}, spec_.embedding, spec_.vocabulary, 1.0);
    for (int layer = 0; layer < spec_.n_layers; ++layer) {
      if (pads_heads()) {
        WritePaddedAttention("blk." + std::to_string(layer) + ".", Heads(layer));
      } else {
        WriteAttention("blk." + std::to_string(layer) + ".", Heads(layer));
      }
      WriteFeedForward("blk." + std::to_string(layer) + ".", Width(layer));
    }
    WriteNorm("output_norm", spec_.embedding, spec_.falcon);
    if (!spec_.tied_output) {
      WriteMatrix("output", {"output"}, spec_.embedding, spec_.vocabulary, 0.3);
    }
    if (spec_.rope_freqs) {
      builder_.TensorF32("rope_freqs.weight", {spec_.key_dim / 2},
                         Numbers("rope_freqs", spec_.key_dim / 2, 2, 4));
    }
    return std::move(builder_);
  }

 private:
  struct Shape {
    int64_t in = 0, out = 0;
  };

  void WriteMetadata() {
    const auto set = [&](const char* key, int value) {
      builder_.Uint32(spec_.architecture + "." + key, static_cast<uint32_t>(value));
    };
    builder_.String("general.architecture", spec_.architecture);
    builder_.String("general.name", "tiny");
    set("block_count", spec_.n_layers);
    set("context_length", spec_.context);
    set("embedding_length", spec_.embedding);
    if (spec_.feed_forward_of_layer.empty() || spec_.pad_layers) {
      set("feed_forward_length", spec_.feed_forward);
    } else {
      builder_.Uint32s(spec_.architecture + ".feed_forward_length",
                       {spec_.feed_forward_of_layer.begin(), spec_.feed_forward_of_layer.end()});
    }
    set("vocab_size", spec_.vocabulary);
    WriteHeads();
    if (spec_.rope_dims > 0) set("rope.dimension_count", spec_.rope_dims);
    if (!spec_.rope_base_of_layer.empty()) {
      builder_.Float32s(spec_.architecture + ".rope.freq_base", spec_.rope_base_of_layer);
    }
    if (!spec_.attention_scale_of_layer.empty()) {
      builder_.Float32s(spec_.architecture + ".attention.scale", spec_.attention_scale_of_layer);
    }
    builder_.Float32(spec_.architecture + (spec_.falcon ? ".attention.layer_norm_epsilon"
                                                        : ".attention.layer_norm_rms_epsilon"),
                     1e-5f);
  }

  bool pads_heads() const { return spec_.pad_layers && !spec_.heads_of_layer.empty(); }

  TinyHeads Heads(int layer) const {
    if (!spec_.heads_of_layer.empty()) return spec_.heads_of_layer[static_cast<size_t>(layer)];
    return {.n_heads = spec_.n_heads,
            .n_kv_heads = spec_.n_kv_heads,
            .key_dim = spec_.key_dim,
            .value_dim = spec_.value_dim};
  }

  void WriteHeads() {
    const auto write = [&](const char* key, int TinyHeads::*number, int of_all) {
      const std::string name = spec_.architecture + ".attention." + key;
      if (spec_.heads_of_layer.empty() || spec_.pad_layers) {
        builder_.Uint32(name, static_cast<uint32_t>(of_all));
        return;
      }
      std::vector<uint32_t> numbers;
      for (const TinyHeads& heads : spec_.heads_of_layer) {
        numbers.push_back(static_cast<uint32_t>(heads.*number));
      }
      builder_.Uint32s(name, numbers);
    };
    write("head_count", &TinyHeads::n_heads, spec_.n_heads);
    write("head_count_kv", &TinyHeads::n_kv_heads, pads_heads() ? spec_.n_heads : spec_.n_kv_heads);
    write("key_length", &TinyHeads::key_dim, spec_.key_dim);
    write("value_length", &TinyHeads::value_dim, spec_.value_dim);
  }

  // Writes the matrices `parts`, with [in] columns and `out` rows each, below one another as one
  // tensor.
  void WriteMatrix(const std::string& name, const std::vector<std::string>& parts, int64_t in,
                   int64_t out_of_each, double scale) {
    WriteMatrix(name, parts, in, std::vector<int64_t>(parts.size(), out_of_each), scale);
  }
  void WriteMatrix(const std::string& name, const std::vector<std::string>& parts, int64_t in,
                   const std::vector<int64_t>& out, double scale) {
    std::vector<float> values;
    int64_t rows = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::vector<float> part = Numbers(parts[i], in * out[i], scale);
      values.insert(values.end(), part.begin(), part.end());
      rows += out[i];
    }
    std::vector<std::byte> bytes(static_cast<size_t>(gguf::RowBytes(spec_.type, in) * rows));
    kernels::Quantize(spec_.type, values, bytes);
    builder_.Tensor(name + ".weight", spec_.type, {in, rows}, bytes);
  }

  void WriteBias(const std::string& name, const std::vector<std::string>& parts,
                 const std::vector<int64_t>& n) {
    std::vector<float> values;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::vector<float> part = Numbers(parts[i] + ".bias", n[i], 0.3);
      values.insert(values.end(), part.begin(), part.end());
    }
    builder_.TensorF32(name + ".bias", {static_cast<int64_t>(values.size())}, values);
  }

  void WriteNorm(const std::string& name, int64_t n, bool with_bias) {
    builder_.TensorF32(name + ".weight", {n}, Numbers(name, n, 0.2, 1));
    if (with_bias) WriteBias(name, {name}, {n});
  }

  // Query head j of the padded layer is head j of the original one, or has zero weights. KV head j
  // of the padded layer is a copy of the KV head that query head j attends to.
  void WritePaddedAttention(const std::string& prefix, const TinyHeads& own) {
    const int64_t in = spec_.embedding;
    const double scale = 2 / std::sqrt(static_cast<double>(in));
    // The padded layer divides scores by the root of its own key_dim.
    const float grow =
        std::sqrt(static_cast<float>(spec_.key_dim) / static_cast<float>(own.key_dim));
    // Writes rows of heads: [head * dim + i, in].
    const auto write = [&](const char* name, Shape dims, int n_own, auto head_of, float factor) {
      const std::vector<float> numbers = Numbers(prefix + name, in * n_own * dims.in, scale);
      std::vector<float> padded(static_cast<size_t>(in * spec_.n_heads * dims.out));
      for (int head = 0; head < own.n_heads; ++head) {
        for (int64_t i = 0; i < dims.in * in; ++i) {
          padded[static_cast<size_t>(head * dims.out * in + i)] =
              factor * numbers[static_cast<size_t>(head_of(head) * dims.in * in + i)];
        }
      }
      builder_.TensorF32(prefix + name + ".weight", {in, spec_.n_heads * dims.out}, padded);
    };
    const auto same = [](int head) { return head; };
    const auto of_group = [&](int head) { return head * own.n_kv_heads / own.n_heads; };
    WriteNorm(prefix + "attn_norm", in, /*with_bias=*/false);
    write("attn_q", {own.key_dim, spec_.key_dim}, own.n_heads, same, grow);
    write("attn_k", {own.key_dim, spec_.key_dim}, own.n_kv_heads, of_group, 1);
    write("attn_v", {own.value_dim, spec_.value_dim}, own.n_kv_heads, of_group, 1);

    const int64_t n_own = own.n_heads * own.value_dim, n_padded = spec_.n_heads * spec_.value_dim;
    const std::vector<float> numbers =
        Numbers(prefix + "attn_output", n_own * in, 2 / std::sqrt(static_cast<double>(n_own)));
    std::vector<float> padded(static_cast<size_t>(n_padded * in));
    for (int64_t row = 0; row < in; ++row) {
      for (int64_t col = 0; col < n_own; ++col) {
        const int64_t head = col / own.value_dim;
        padded[static_cast<size_t>(row * n_padded + head * spec_.value_dim + col % own.value_dim)] =
            numbers[static_cast<size_t>(row * n_own + col)];
      }
    }
    builder_.TensorF32(prefix + "attn_output.weight", {n_padded, in}, padded);
  }

  void WriteAttention(const std::string& prefix, const TinyHeads& heads) {
    const int64_t in = spec_.embedding;
    const std::vector<std::string> parts = {prefix + "attn_q", prefix + "attn_k",
                                            prefix + "attn_v"};
    const std::vector<int64_t> out = {heads.n_heads * heads.key_dim,
                                      heads.n_kv_heads * heads.key_dim,
                                      heads.n_kv_heads * heads.value_dim};
    const double scale = 2 / std::sqrt(static_cast<double>(in));
    WriteNorm(prefix + "attn_norm", in, spec_.falcon);
    if (spec_.second_norm) WriteNorm(prefix + "attn_norm_2", in, /*with_bias=*/true);
    if (spec_.fused_qkv) {
      WriteMatrix(prefix + "attn_qkv", parts, in, out, scale);
      if (spec_.qkv_bias) WriteBias(prefix + "attn_qkv", parts, out);
    }
    for (size_t i = 0; i < 3 && !spec_.fused_qkv; ++i) {
      WriteMatrix(parts[i], {parts[i]}, in, out[i], scale);
      if (spec_.qkv_bias) WriteBias(parts[i], {parts[i]}, {out[i]});
    }
    if (spec_.head_norms) {
      WriteNorm(prefix + "attn_q_norm", heads.key_dim, /*with_bias=*/false);
      WriteNorm(prefix + "attn_k_norm", heads.key_dim, /*with_bias=*/false);
    }
    WriteProjection(prefix + "attn_output", heads.n_heads * heads.value_dim, in);
  }

  int Width(int layer) const {
    if (spec_.feed_forward_of_layer.empty()) return spec_.feed_forward;
    return spec_.feed_forward_of_layer[static_cast<size_t>(layer)];
  }

  void WriteFeedForward(const std::string& prefix, int width) {
    const int64_t in = spec_.embedding;
    const double scale = 2 / std::sqrt(static_cast<double>(in));
    if (!spec_.falcon) WriteNorm(prefix + "ffn_norm", in, /*with_bias=*/false);
    if (spec_.fused_feed_forward) {
      WriteMatrix(prefix + "ffn_up", {prefix + "ffn_gate", prefix + "ffn_up"}, in, width, scale);
    } else if (spec_.pad_layers) {
      for (const char* name : {"ffn_gate", "ffn_up"}) {
        WritePadded(prefix + name, {in, width}, {in, spec_.feed_forward});
      }
      return WritePadded(prefix + "ffn_down", {width, in}, {spec_.feed_forward, in});
    } else {
      if (!spec_.falcon) WriteProjection(prefix + "ffn_gate", in, width);
      WriteProjection(prefix + "ffn_up", in, width);
    }
    WriteProjection(prefix + "ffn_down", width, in);
  }

  // Writes a projection into the corner of a larger one of zeros.
  void WritePadded(const std::string& name, Shape shape, Shape padded) {
    const std::vector<float> numbers =
        Numbers(name, shape.in * shape.out, 2 / std::sqrt(static_cast<double>(shape.in)));
    std::vector<float> values(static_cast<size_t>(padded.in * padded.out));
    for (int64_t row = 0; row < shape.out; ++row) {
      std::copy_n(numbers.begin() + row * shape.in, shape.in, values.begin() + row * padded.in);
    }
    builder_.TensorF32(name + ".weight", {padded.in, padded.out}, values);
  }

  void WriteProjection(const std::string& name, int64_t in, int64_t out) {
    WriteMatrix(name, {name}, in, out, 2 / std::sqrt(static_cast<double>(in)));
    if (spec_.other_bias) WriteBias(name, {name}, {out});
  }

  const TinySpec& spec_;
  Builder builder_;
};

}  // namespace

TinySpec MakeTinySpec(const std::string& form) {
  TinySpec spec;
  spec.architecture = form.substr(0, form.find('-'));
  if (form == "qwen2") spec.qkv_bias = true;
  if (form == "qwen3") {
    spec.head_norms = true;
    spec.key_dim = 32;  // differs from embedding / heads
    spec.value_dim = 32;
  }
  if (spec.architecture == "falcon") {
    spec.falcon = true;
    spec.fused_qkv = true;
    spec.second_norm = form == "falcon-40b";
    spec.n_kv_heads = form == "falcon-40b" ? 2 : 1;
  }
  if (form == "phi3") {
    spec.fused_qkv = true;
    spec.fused_feed_forward = true;
  }
  return spec;
}

Builder TinyBuilder(const TinySpec& spec) { return Writer(spec).Build(); }

std::shared_ptr<const gguf::File> TinyModel(const TinySpec& spec) {
  auto file = gguf::File::Parse(TinyBuilder(spec).Bytes());
  WINNOW_CHECK(file.has_value());
  return std::move(file).value();
}

void AddTinyTokenizer(Builder& builder, int n_tokens) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};  // unknown, control
  while (static_cast<int>(tokens.size()) < n_tokens) {
    tokens.push_back("piece" + std::to_string(tokens.size()));
    types.push_back(1);
  }
  builder.String("tokenizer.ggml.model", "llama");
  builder.Strings("tokenizer.ggml.tokens", tokens);
  builder.Float32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
  builder.Int32s("tokenizer.ggml.token_type", types);
  builder.Uint32("tokenizer.ggml.bos_token_id", 1);
  builder.Uint32("tokenizer.ggml.eos_token_id", 2);
}

}  // namespace winnow::model::testing
