#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "gguf/printable.h"
#include "model/architecture.h"
#include "model/model.h"

namespace winnow::model {
namespace {

// Bounds far beyond any real model, so that products of two sizes cannot overflow.
constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxHeadSize = int64_t{1} << 16;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

// Keys that would change the arithmetic of the supported architectures. Converters of these
// architectures do not write them; results for a file that has one would be wrong. `neutral` is the
// value that has no effect.
struct UnsupportedKey {
  std::string_view name;
  double neutral;
};
constexpr UnsupportedKey kForeignKeys[] = {
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.temperature_scale", 0},
    {"rope.scaling.yarn_log_multiplier", 0},
};

std::string JoinNames(const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

std::string NumberText(double value) {
  std::string text = std::to_string(value);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

struct Range {
  int64_t min = 0;
  int64_t max = 0;
};

// Keys of one architecture, without its prefix.
class Keys {
 public:
  Keys(const gguf::File& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string FullName(std::string_view key) const { return prefix_ + std::string(key); }
  bool Has(std::string_view key) const { return file_.Find(FullName(key)) != nullptr; }

  Error Missing(std::string_view key) const {
    return Error{"model: " + FullName(key) + " is missing"};
  }

  Result<int64_t> Integer(std::string_view key, Range range,
                          std::optional<int64_t> otherwise = std::nullopt) const {
    const std::string name = FullName(key);
    WINNOW_ASSIGN(const std::optional<int64_t> found, file_.Int(name));
    if (!found && !otherwise) return Missing(key);
    return InRange(name, found.value_or(otherwise.value_or(0)), range);
  }

  // One number per layer, or a number for all of them: [n_layers].
  Result<std::vector<int64_t>> PerLayer(std::string_view key, int n_layers, Range range,
                                        std::optional<int64_t> otherwise = std::nullopt) const {
    const std::string name = FullName(key);
    const gguf::Value* value = file_.Find(name);
    if (value == nullptr || value->type != gguf::Value::Type::kArray) {
      WINNOW_ASSIGN(const int64_t of_all, Integer(key, range, otherwise));
      return std::vector<int64_t>(static_cast<size_t>(n_layers), of_all);
    }
    WINNOW_ASSIGN(auto ints, file_.Ints(name));
    std::vector<int64_t> found = std::move(ints).value_or(std::vector<int64_t>());
    WINNOW_TRY(OneForEach(name, found.size(), n_layers));
    for (const int64_t of_layer : found) WINNOW_TRY(InRange(name, of_layer, range));
    return found;
  }

  // As PerLayer, for numbers > `above`.
  Result<std::vector<double>> NumbersAbove(double above, std::string_view key, int n_layers,
                                           std::optional<double> otherwise) const {
    const std::string name = FullName(key);
    const gguf::Value* value = file_.Find(name);
    if (value == nullptr || value->type != gguf::Value::Type::kArray) {
      WINNOW_ASSIGN(const double of_all, NumberAbove(above, key, otherwise));
      return std::vector<double>(static_cast<size_t>(n_layers), of_all);
    }
    WINNOW_ASSIGN(auto floats, file_.Floats(name));
    const std::vector<float> found = std::move(floats).value_or(std::vector<float>());
    WINNOW_TRY(OneForEach(name, found.size(), n_layers));
    for (const float of_layer : found) WINNOW_TRY(CheckNumberAbove(name, of_layer, above));
    return std::vector<double>(found.begin(), found.end());
  }

  Result<double> Number(std::string_view key, std::optional<double> otherwise) const {
    const std::string name = FullName(key);
    WINNOW_ASSIGN(const std::optional<double> found, file_.Float(name));
    if (!found && !otherwise) return Missing(key);
    return CheckFinite(name, found ? *found : *otherwise);
  }

  // As Number; the value must be > `above`, also when rounded to 32 bits.
  Result<double> NumberAbove(double above, std::string_view key,
                             std::optional<double> otherwise) const {
    WINNOW_ASSIGN(const double value, Number(key, otherwise));
    return CheckNumberAbove(FullName(key), value, above);
  }

  // As Number; the value must be >= 0.
  Result<double> NumberFromZero(std::string_view key, std::optional<double> otherwise) const {
    WINNOW_ASSIGN(const double value, Number(key, otherwise));
    if (value < 0) {
      return Error{"model: " + FullName(key) + " is " + NumberText(value) +
                   ", expected at least 0"};
    }
    return value;
  }

  Result<std::string> Text(std::string_view key, std::string_view otherwise) const {
    WINNOW_ASSIGN(const auto found, file_.String(FullName(key)));
    return std::string(found.value_or(otherwise));
  }

  static Result<int64_t> InRange(const std::string& name, int64_t value, Range range) {
    if (value < range.min || value > range.max) {
      return Error{"model: " + name + " is " + std::to_string(value) + ", expected " +
                   std::to_string(range.min) + ".." + std::to_string(range.max)};
    }
    return value;
  }

 private:
  static Result<void> OneForEach(const std::string& name, size_t n_found, int n_layers) {
    if (n_found == static_cast<size_t>(n_layers)) return {};
    return Error{"model: " + name + " has " + std::to_string(n_found) +
                 " values, expected one for each of the " + std::to_string(n_layers) + " layers"};
  }
  static Result<double> CheckFinite(const std::string& name, double value) {
    if (std::isfinite(static_cast<float>(value))) return value;
    return Error{"model: " + name + " is " + NumberText(value) +
                 ", expected a finite 32-bit number"};
  }
  static Result<double> CheckNumberAbove(const std::string& name, double value, double above) {
    WINNOW_TRY(CheckFinite(name, value));
    if (static_cast<float>(value) > static_cast<float>(above)) return value;
    return Error{"model: " + name + " is " + NumberText(value) + ", expected more than " +
                 NumberText(above)};
  }

  const gguf::File& file_;
  std::string prefix_;
};

Result<RopeParameters::Scaling> ReadScaling(const Keys& keys) {
  using Scaling = RopeParameters::Scaling;
  WINNOW_ASSIGN(const std::string type, keys.Text("rope.scaling.type", "linear"));
  if (type == "none") return Scaling::kNone;
  if (type == "linear") return Scaling::kLinear;
  if (type == "yarn") return Scaling::kYarn;
  if (type == "longrope") return Scaling::kLongRope;
  return Error{"model: " + keys.FullName("rope.scaling.type") + " is '" + gguf::Printable(type) +
               "', supported: none, linear, yarn, longrope"};
}

// The parameters shared by all layers; ReadRopes adds those of each layer.
Result<RopeParameters> ReadScaledRope(const Keys& keys, const Architecture& architecture,
                                      const Hyperparameters& h) {
  using Scaling = RopeParameters::Scaling;
  RopeParameters rope;
  rope.interleaved = architecture.rope_interleaved;
  WINNOW_ASSIGN(rope.scaling, ReadScaling(keys));
  const std::string_view factor_key =
      keys.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  WINNOW_ASSIGN(rope.factor, keys.NumberFromZero(factor_key, 1));
  // Files write 0 for "not scaled".
  if (rope.factor == 0 || rope.scaling == Scaling::kNone) rope.factor = 1;
  if (rope.scaling == Scaling::kLinear && rope.factor == 1) rope.scaling = Scaling::kNone;

  WINNOW_ASSIGN(rope.original_context, keys.Integer("rope.scaling.original_context_length",
                                                    {1, kMaxContext}, h.trained_context));
  WINNOW_ASSIGN(const double attention_factor, keys.NumberAbove(0, "rope.scaling.attn_factor", 1));
  WINNOW_ASSIGN(const double yarn_attention_factor,
                keys.NumberAbove(0, "rope.scaling.yarn_attn_factor", 1));
  rope.attention_factor = attention_factor * yarn_attention_factor;
  WINNOW_ASSIGN(rope.yarn_ext_factor, keys.NumberFromZero("rope.scaling.yarn_ext_factor", 1));
  WINNOW_ASSIGN(rope.yarn_beta_fast, keys.NumberAbove(0, "rope.scaling.yarn_beta_fast", 32));
  WINNOW_ASSIGN(rope.yarn_beta_slow, keys.NumberAbove(0, "rope.scaling.yarn_beta_slow", 1));
  return rope;
}

// Requires: the layers' key_dim is set.
Result<void> ReadRopes(const Keys& keys, const Architecture& architecture, Hyperparameters& h) {
  WINNOW_ASSIGN(const RopeParameters shared, ReadScaledRope(keys, architecture, h));
  // Angles decrease with the pair's number only if the base is above 1, and YaRN divides by its
  // logarithm.
  WINNOW_ASSIGN(const std::vector<double> bases,
                keys.NumbersAbove(1, "rope.freq_base", h.n_layers, 10000));
  std::vector<int64_t> n_rotated;
  if (keys.Has("rope.dimension_count")) {
    WINNOW_ASSIGN(n_rotated, keys.PerLayer("rope.dimension_count", h.n_layers, {2, kMaxHeadSize}));
  }
  for (size_t i = 0; i < h.layers.size(); ++i) {
    LayerSpec& layer = h.layers[i];
    const int64_t n = n_rotated.empty() ? layer.key_dim : n_rotated[i];
    WINNOW_TRY(Keys::InRange(keys.FullName("rope.dimension_count"), n, {2, layer.key_dim}));
    if (n % 2 != 0) {
      return Error{"model: " + keys.FullName("rope.dimension_count") + " is " + std::to_string(n) +
                   ", expected an even number"};
    }
    layer.rope = shared;
    layer.rope.base = bases[i];
    layer.rope.n_rotated = static_cast<int>(n);
  }
  return {};
}

// Reads the numbers and sizes of heads, scales and sliding windows.
Result<void> ReadAttention(const Keys& keys, Hyperparameters& h) {
  constexpr std::string_view kHeads = "attention.head_count", kKvHeads = "attention.head_count_kv";
  constexpr std::string_view kKeys = "attention.key_length", kValues = "attention.value_length";
  WINNOW_ASSIGN(const auto n_heads, keys.PerLayer(kHeads, h.n_layers, {1, kMaxHeads}));
  std::vector<int64_t> n_kv_heads = n_heads, key_dims, value_dims, windows;
  if (keys.Has(kKvHeads)) {
    WINNOW_ASSIGN(n_kv_heads, keys.PerLayer(kKvHeads, h.n_layers, {1, kMaxHeads}));
  }
  if (keys.Has(kKeys)) {
    WINNOW_ASSIGN(key_dims, keys.PerLayer(kKeys, h.n_layers, {2, kMaxHeadSize}));
  }
  if (keys.Has(kValues)) {
    WINNOW_ASSIGN(value_dims, keys.PerLayer(kValues, h.n_layers, {1, kMaxHeadSize}));
  }
  WINNOW_ASSIGN(windows,
                keys.PerLayer("attention.sliding_window", h.n_layers, {0, kMaxContext}, 0));
  std::vector<double> scales;
  if (keys.Has("attention.scale")) {
    WINNOW_ASSIGN(scales, keys.NumbersAbove(0, "attention.scale", h.n_layers, std::nullopt));
  }
  for (size_t i = 0; i < h.layers.size(); ++i) {
    if (n_heads[i] % n_kv_heads[i] != 0) {
      return Error{"model: " + keys.FullName(kHeads) + " (" + std::to_string(n_heads[i]) +
                   ") is not a multiple of " + keys.FullName(kKvHeads) + " (" +
                   std::to_string(n_kv_heads[i]) + ")"};
    }
    if (h.embedding % n_heads[i] != 0 && (key_dims.empty() || value_dims.empty())) {
      return Error{"model: " + keys.FullName("embedding_length") + " (" +
                   std::to_string(h.embedding) + ") is not a multiple of " + keys.FullName(kHeads) +
                   " (" + std::to_string(n_heads[i]) + ")"};
    }
    const int64_t head_size = h.embedding / n_heads[i];
    const int64_t key_dim = key_dims.empty() ? head_size : key_dims[i];
    const int64_t value_dim = value_dims.empty() ? head_size : value_dims[i];
    WINNOW_TRY(Keys::InRange(keys.FullName(kKeys), key_dim, {2, kMaxHeadSize}));
    WINNOW_TRY(Keys::InRange(keys.FullName(kValues), value_dim, {1, kMaxHeadSize}));
    LayerSpec& layer = h.layers[i];
    layer.n_heads = static_cast<int>(n_heads[i]);
    layer.n_kv_heads = static_cast<int>(n_kv_heads[i]);
    layer.key_dim = static_cast<int>(key_dim);
    layer.value_dim = static_cast<int>(value_dim);
    layer.attention_scale = static_cast<float>(
        scales.empty() ? 1 / std::sqrt(static_cast<double>(key_dim)) : scales[i]);
    layer.sliding_window = windows[i];
  }
  return {};
}

// Number of tokens: from the token list, else the key, else the rows of the embedding.
Result<int64_t> ReadVocabulary(const gguf::File& file, const Keys& keys) {
  if (const gguf::Value* tokens = file.Find("tokenizer.ggml.tokens")) {
    const auto* array = std::get_if<gguf::Value::Array>(&tokens->data);
    if (array == nullptr) return Error{"model: tokenizer.ggml.tokens is not a list"};
    const size_t n = std::visit([](const auto& list) { return list.size(); }, *array);
    if (n == 0 || n > static_cast<size_t>(kMaxVocabulary)) {
      return Error{"model: tokenizer.ggml.tokens has " + std::to_string(n) +
                   " entries, expected 1.." + std::to_string(kMaxVocabulary)};
    }
    return static_cast<int64_t>(n);
  }
  if (keys.Has("vocab_size")) return keys.Integer("vocab_size", {1, kMaxVocabulary});
  const gguf::Tensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding != nullptr) {
    return Keys::InRange("the number of rows of token_embd.weight", embedding->shape[1],
                         {1, kMaxVocabulary});
  }
  return Error{"model: the size of the vocabulary is unknown: neither tokenizer.ggml.tokens nor " +
               keys.FullName("vocab_size") + " is present"};
}

Result<void> RejectUnsupported(const gguf::File& file, const Keys& keys) {
  WINNOW_ASSIGN(const int64_t n_experts,
                keys.Integer("expert_count", {0, std::numeric_limits<int64_t>::max()}, 0));
  if (n_experts > 0) {
    return Error{"model: a mixture of " + std::to_string(n_experts) + " experts (" +
                 keys.FullName("expert_count") + ") is not supported"};
  }
  for (const UnsupportedKey& key : kForeignKeys) {
    const std::string name = keys.FullName(key.name);
    WINNOW_ASSIGN(const std::optional<double> found, file.Float(name));
    if (found && *found != key.neutral && *found != 0) {
      return Error{"model: " + name + " (" + NumberText(*found) + ") is not supported"};
    }
  }
  return {};
}

}  // namespace

Result<Hyperparameters> ReadHyperparameters(const gguf::File& file) {
  Hyperparameters h;
  WINNOW_ASSIGN(const auto architecture_name, file.String("general.architecture"));
  if (!architecture_name) return Error{"model: general.architecture is missing"};
  const Architecture* architecture = FindArchitecture(*architecture_name);
  if (architecture == nullptr) {
    return Error{"model: the architecture '" + gguf::Printable(*architecture_name) +
                 "' is not supported; supported: " + JoinNames(SupportedArchitectures())};
  }
  h.architecture = std::string(*architecture_name);
  WINNOW_ASSIGN(const auto name, file.String("general.name"));
  h.name = std::string(name.value_or(""));

  const Keys keys(file, h.architecture);
  WINNOW_TRY(RejectUnsupported(file, keys));
  WINNOW_ASSIGN(const int64_t n_layers, keys.Integer("block_count", {1, kMaxLayers}));
  h.n_layers = static_cast<int>(n_layers);
  WINNOW_ASSIGN(h.embedding, keys.Integer("embedding_length", {1, kMaxWidth}));
  WINNOW_ASSIGN(h.trained_context, keys.Integer("context_length", {1, kMaxContext}));
  WINNOW_ASSIGN(const std::vector<int64_t> widths,
                keys.PerLayer("feed_forward_length", h.n_layers, {1, kMaxWidth}));
  h.layers.resize(widths.size());
  for (size_t i = 0; i < widths.size(); ++i) h.layers[i].feed_forward = widths[i];
  WINNOW_TRY(ReadAttention(keys, h));

  const std::string_view epsilon_key = architecture->norm == NormKind::kRms
                                           ? "attention.layer_norm_rms_epsilon"
                                           : "attention.layer_norm_epsilon";
  WINNOW_ASSIGN(const double epsilon, keys.NumberAbove(0, epsilon_key, std::nullopt));
  h.norm_epsilon = static_cast<float>(epsilon);
  WINNOW_TRY(ReadRopes(keys, *architecture, h));
  WINNOW_ASSIGN(h.vocabulary, ReadVocabulary(file, keys));
  return h;
}

}  // namespace winnow::model
