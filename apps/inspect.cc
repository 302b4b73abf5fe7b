#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fixed.h"
#include "commands.h"
#include "gguf/summary.h"
#include "model/model.h"
#include "options.h"
#include "report/record.h"
#include "tokenizer/tokenizer.h"

namespace winnow::apps {
namespace {

using kernels::TensorType;

constexpr TensorType kCacheTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                      TensorType::kQ8_0, TensorType::kQ4_0};
constexpr int64_t kCacheTokens = 1000;

// What inspect reads from a file; parts that could not be read hold an error.
struct Findings {
  gguf::Summary summary;
  Result<model::Hyperparameters> shape = Error{};
  Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer = Error{};
};

std::string LowerName(TensorType type) {
  std::string name(gguf::GetTypeInfo(type).name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Bytes of one token's keys and values in all layers; nothing if a head's size does not suit the
// type.
std::optional<int64_t> CacheBytesPerToken(const model::Hyperparameters& h, TensorType type) {
  const int block = gguf::GetTypeInfo(type).block_elements;
  int64_t bytes = 0;
  for (const model::LayerSpec& layer : h.layers) {
    if (layer.key_dim % block != 0 || layer.value_dim % block != 0) return std::nullopt;
    bytes += layer.n_kv_heads *
             (gguf::RowBytes(type, layer.key_dim) + gguf::RowBytes(type, layer.value_dim));
  }
  return bytes;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

void PrintLine(std::string name, const std::string& value) {
  name.resize(std::max<size_t>(name.size() + 1, 18), ' ');
  Print(name + value + "\n");
}

std::string RopeText(const model::RopeParameters& rope) {
  std::string text = Fixed(rope.base, 0) + " base, " + std::to_string(rope.n_rotated) +
                     " dimensions, " + (rope.interleaved ? "pairs" : "halves");
  switch (rope.scaling) {
    case model::RopeParameters::Scaling::kNone:
      break;
    case model::RopeParameters::Scaling::kLinear:
      text += ", linear";
      break;
    case model::RopeParameters::Scaling::kYarn:
      text += ", YaRN";
      break;
    case model::RopeParameters::Scaling::kLongRope:
      text += ", LongRoPE";
      break;
  }
  if (rope.scaling != model::RopeParameters::Scaling::kNone && rope.factor != 1) {
    text += " x" + Fixed(rope.factor, 2);
  }
  return text;
}

using model::LayerSpec;
using LayerList = std::vector<LayerSpec>;

// "96", or "32 to 96, by layer".
std::string TextByLayer(const LayerList& layers, auto number) {
  const auto [min, max] = std::ranges::minmax_element(layers, {}, number);
  const auto least = std::invoke(number, *min), most = std::invoke(number, *max);
  std::string text = std::to_string(least);
  if (least < most) text += " to " + std::to_string(most) + ", by layer";
  return text;
}

// One number if all layers are equal, otherwise a list.
report::Value ValuesByLayer(const LayerList& layers, auto number) {
  const auto first = std::invoke(number, layers.front());
  if (std::ranges::all_of(layers,
                          [&](const auto& layer) { return std::invoke(number, layer) == first; })) {
    return first;
  }
  report::List values;
  for (const LayerSpec& layer : layers) values.emplace_back(std::invoke(number, layer));
  return values;
}

double RopeBase(const model::LayerSpec& layer) { return layer.rope.base; }

void PrintShape(const model::Hyperparameters& h) {
  PrintLine("layers", std::to_string(h.n_layers));
  PrintLine("width", std::to_string(h.embedding) + ", feed-forward " +
                         TextByLayer(h.layers, &LayerSpec::feed_forward));
  const bool equal_dims = std::ranges::all_of(
      h.layers, [](const LayerSpec& layer) { return layer.key_dim == layer.value_dim; });
  PrintLine("heads",
            TextByLayer(h.layers, &LayerSpec::n_heads) + " query, " +
                TextByLayer(h.layers, &LayerSpec::n_kv_heads) + " key-value, of " +
                TextByLayer(h.layers, &LayerSpec::key_dim) +
                (equal_dims ? "" : " and " + TextByLayer(h.layers, &LayerSpec::value_dim)));
  PrintLine("trained context", std::to_string(h.trained_context) + " tokens");
  const bool one_rope = std::ranges::all_of(
      h.layers, [&](const LayerSpec& layer) { return layer.rope == h.layers.front().rope; });
  PrintLine("rotation",
            RopeText(h.layers.front().rope) + (one_rope ? "" : "; other layers differ"));
}

void PrintCache(const model::Hyperparameters& h) {
  Print("\nCache for " + std::to_string(kCacheTokens) + " tokens, and for the trained context:\n");
  for (const TensorType type : kCacheTypes) {
    const auto bytes = CacheBytesPerToken(h, type);
    PrintLine("  " + LowerName(type),
              bytes ? PadLeft(HumanBytes(*bytes * kCacheTokens), 10) +
                          PadLeft(HumanBytes(*bytes * h.trained_context), 14)
                    : "not possible: head sizes are not a multiple of " +
                          std::to_string(gguf::GetTypeInfo(type).block_elements));
  }
}

void PrintTokenizer(const tokenizer::Tokenizer& t) {
  std::string kind(t.model_name());
  if (!t.pre_tokenizer_name().empty()) kind += " / " + std::string(t.pre_tokenizer_name());
  PrintLine("tokenizer", kind + ", " + std::to_string(t.vocabulary_size()) + " tokens");
}

void PrintText(const Findings& found, bool all_tensors) {
  const gguf::Summary& s = found.summary;
  PrintLine("architecture", s.architecture.empty() ? "(not given)" : s.architecture);
  if (!s.name.empty()) PrintLine("name", s.name);
  PrintLine("file", "GGUF version " + std::to_string(s.version) + ", " + HumanBytes(s.file_bytes));
  if (!s.tensors.empty()) {
    PrintLine("parameters",
              HumanCount(s.n_parameters) + ", " + Fixed(s.bits_per_weight, 2) + " bits each");
  }
  if (found.shape) PrintShape(*found.shape);
  if (found.tokenizer) PrintTokenizer(**found.tokenizer);

  if (s.tensors.empty()) {
    Print("\nNo tensors: a vocabulary only.\n");
  } else {
    Print("\nTensors by type:\n");
    for (const gguf::TypeShare& share : s.types) {
      const double percent =
          100.0 * static_cast<double>(share.bytes) / static_cast<double>(std::max<int64_t>(1, [&] {
            int64_t total = 0;
            for (const gguf::TypeShare& other : s.types) total += other.bytes;
            return total;
          }()));
      PrintLine("  " + std::string(gguf::GetTypeInfo(share.type).name),
                PadLeft(std::to_string(share.n_tensors), 6) + " tensors" +
                    PadLeft(HumanCount(share.n_elements), 12) + " weights" +
                    PadLeft(HumanBytes(share.bytes), 12) + PadLeft(Fixed(percent, 1), 8) + " %");
    }
  }
  if (found.shape) PrintCache(*found.shape);

  Print("\nMetadata:\n");
  for (const auto& [key, value] : s.metadata) Print("  " + key + " = " + value + "\n");
  if (!all_tensors || s.tensors.empty()) return;
  Print("\nTensors (row length first):\n");
  size_t widest = 0;
  for (const gguf::TensorSummary& tensor : s.tensors) widest = std::max(widest, tensor.name.size());
  for (const gguf::TensorSummary& tensor : s.tensors) {
    std::string name = tensor.name;
    name.resize(widest + 2, ' ');
    std::string type(gguf::GetTypeInfo(tensor.type).name);
    type.resize(8, ' ');
    Print("  " + name + type + PadLeft(HumanBytes(tensor.bytes), 10) + "  " +
          ShapeText(tensor.shape) + "\n");
  }
}

report::Value FindingsJson(const Findings& found, bool all_tensors) {
  const gguf::Summary& s = found.summary;
  report::Record out = {{"architecture", s.architecture},
                        {"name", s.name},
                        {"gguf_version", static_cast<int64_t>(s.version)},
                        {"file_bytes", s.file_bytes},
                        {"n_parameters", s.n_parameters},
                        {"bits_per_weight", s.bits_per_weight}};
  if (found.shape) {
    const model::Hyperparameters& h = *found.shape;
    out.Add("hyperparameters",
            report::Record{{"n_layers", h.n_layers},
                           {"embedding", h.embedding},
                           {"feed_forward", ValuesByLayer(h.layers, &LayerSpec::feed_forward)},
                           {"n_heads", ValuesByLayer(h.layers, &LayerSpec::n_heads)},
                           {"n_kv_heads", ValuesByLayer(h.layers, &LayerSpec::n_kv_heads)},
                           {"key_dim", ValuesByLayer(h.layers, &LayerSpec::key_dim)},
                           {"value_dim", ValuesByLayer(h.layers, &LayerSpec::value_dim)},
                           {"vocabulary", h.vocabulary},
                           {"trained_context", h.trained_context},
                           {"rope_base", ValuesByLayer(h.layers, RopeBase)}});
    report::Record per_1k;
    for (const TensorType type : kCacheTypes) {
      const auto bytes = CacheBytesPerToken(h, type);
      per_1k.Add(LowerName(type), bytes ? report::Value(*bytes * kCacheTokens) : report::Value());
    }
    out.Add("cache_bytes_per_1k_tokens", per_1k);
  } else {
    out.Add("hyperparameters_error", found.shape.error().message);
  }
  if (found.tokenizer) {
    const tokenizer::Tokenizer& t = **found.tokenizer;
    out.Add("tokenizer",
            report::Record{{"model", t.model_name()},
                           {"pre_tokenizer", t.pre_tokenizer_name()},
                           {"vocabulary", t.vocabulary_size()},
                           {"adds_bos", t.adds_bos()},
                           {"adds_eos", t.adds_eos()},
                           {"end_of_generation", report::MakeList(t.end_of_generation())}});
  } else {
    out.Add("tokenizer_error", found.tokenizer.error().message);
  }
  report::List types;
  for (const gguf::TypeShare& share : s.types) {
    types.emplace_back(report::Record{{"type", gguf::GetTypeInfo(share.type).name},
                                      {"tensors", share.n_tensors},
                                      {"elements", share.n_elements},
                                      {"bytes", share.bytes}});
  }
  out.Add("types", types);
  report::Record metadata;
  for (const auto& [key, value] : s.metadata) metadata.Add(key, value);
  out.Add("metadata", metadata);
  if (all_tensors) {
    report::List tensors;
    for (const gguf::TensorSummary& tensor : s.tensors) {
      tensors.emplace_back(report::Record{{"name", tensor.name},
                                          {"type", gguf::GetTypeInfo(tensor.type).name},
                                          {"shape", report::MakeList(tensor.shape)},
                                          {"bytes", tensor.bytes}});
    }
    out.Add("tensors", tensors);
  }
  return out;
}

}  // namespace

int Inspect(Arguments arguments) {
  bool json = false;
  bool tensors = false;
  std::optional<std::string> model;
  FlagTable table(
      "inspect", "[FILE] [flags]",
      "Says what is in a GGUF file: architecture, shape, tensors by type, metadata, and "
      "the memory a cache takes for each way of storing it. Reads no weights.");
  table.Add({"-m", "--model"}, "FILE", "another way to name the file", &model);
  table.Switch({"--tensors"}, "list every tensor", &tensors);
  table.Switch({"--json"}, "one JSON object", &json);
  table.Add({{"-h", "--help"}, "", "this text", "", {}, false, {}});
  std::vector<std::string> files;
  if (const auto over = ParseFlags(table, arguments, &files)) return *over;
  if (model) files.push_back(*model);
  if (files.empty()) files.emplace_back(kBundled);
  if (files.size() != 1) return Misuse("inspect", "give one file, not several");

  ConsoleLog log;
  const auto file = OpenModelFile(files[0], log);
  if (!file) return Fail(file.error());
  Findings found;
  found.summary = gguf::Summarize(**file);
  found.shape = model::ReadHyperparameters(**file);
  found.tokenizer = tokenizer::Tokenizer::Load(*file);
  if (json) {
    Print(report::ToJson(FindingsJson(found, tensors), 2) + "\n");
  } else {
    PrintText(found, tensors);
  }
  const bool vocabulary_only = found.summary.tensors.empty();
  if (!found.shape && !vocabulary_only)
    log.Warning("cannot be run: " + found.shape.error().message);
  if (!found.tokenizer) log.Warning("no tokenizer: " + found.tokenizer.error().message);
  return FinishOutput();
}

}  // namespace winnow::apps
