#include "grammar/grammar.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCacheBytes = int64_t{64} << 20;  // of compiled grammars
// Models that find no next word write white space for ever where a grammar lets them.
constexpr int kMaxSpaces = 16;
// xgrammar takes minutes and gigabytes for schemas of a megabyte, and cannot be interrupted.
constexpr size_t kMaxSchemaBytes = size_t{32} << 10;
constexpr size_t kMaxSchemaValues = 1000;
constexpr size_t kMaxSchemaDepth = 64;
constexpr size_t kMaxPatternBytes = 256;  // of all patterns
constexpr int kMaxCountedValues = 1000;   // minProperties or maxProperties times all values

// Bytes a token stands for in running text; control tokens, which no grammar writes, stand for
// nothing.
std::vector<std::string> Pieces(const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  for (int64_t token = 0; token < tokenizer.vocabulary_size(); ++token) {
    const auto id = static_cast<tokenizer::TokenId>(token);
    const bool writes = tokenizer.Kind(id) != tokenizer::TokenKind::kControl &&
                        tokenizer.Kind(id) != tokenizer::TokenKind::kUnused;
    pieces.push_back(writes ? tokenizer.Piece(id) : "");
  }
  return pieces;
}

// Without what xgrammar puts before its messages: "[time] file:line: ".
std::string Message(std::string text) {
  if (text.starts_with("[")) {
    const size_t line = text.find(".cc:");
    const size_t end = line == std::string::npos ? line : text.find(": ", line);
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// xgrammar throws; this is the door where that ends.
template <typename Function>
auto Caught(const std::string& what, const Function& function) -> Result<decltype(function())> {
  try {
    return function();
  } catch (const std::exception& error) {
    return Error{what + ": " + Message(error.what())};
  }
}

Error TooLarge(const std::string& what, size_t found, size_t expected) {
  return Error{"the JSON schema has " + std::to_string(found) + " " + what + ", expected at most " +
               std::to_string(expected)};
}

struct SchemaSize {
  size_t values = 0, pattern_bytes = 0;
  double counted_properties = 0;  // the largest minProperties or maxProperties
};

// A repeated group that may itself repeat takes minutes: (a*b*)*.
bool RepeatsGroup(const std::string& pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == ')' &&
               std::string_view("*+{").find(pattern[i + 1]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

Result<void> CheckPattern(const std::string& pattern, SchemaSize& size) {
  size.pattern_bytes += pattern.size();
  if (size.pattern_bytes > kMaxPatternBytes) {
    return TooLarge("or more bytes in patterns", size.pattern_bytes, kMaxPatternBytes);
  }
  if (RepeatsGroup(pattern)) {
    return Error{"the JSON schema: pattern '" + pattern +
                 "' repeats a group; only characters and classes can be repeated"};
  }
  return {};
}

Result<void> CheckValues(const Json& value, size_t depth, SchemaSize& size) {
  if (depth > kMaxSchemaDepth) return TooLarge("levels", depth, kMaxSchemaDepth);
  if (++size.values > kMaxSchemaValues) {
    return TooLarge("or more values", size.values, kMaxSchemaValues);
  }
  if (!value.is_structured()) return {};  // items() of a number is the number itself
  for (const auto& [name, inner] : value.items()) {
    if (value.is_object() && name == "pattern" && inner.is_string()) {
      WINNOW_TRY(CheckPattern(inner.get_ref<const std::string&>(), size));
    }
    // Its names are patterns.
    if (value.is_object() && name == "patternProperties" && inner.is_object()) {
      for (const auto& property : inner.items()) WINNOW_TRY(CheckPattern(property.key(), size));
    }
    const bool counts = value.is_object() && (name == "minProperties" || name == "maxProperties");
    if (counts && inner.is_number()) {
      size.counted_properties = std::max(size.counted_properties, inner.get<double>());
    }
    WINNOW_TRY(CheckValues(inner, depth + 1, size));
  }
  return {};
}

// What is too large to be compiled while clients wait.
Result<Json> ParseSchema(const std::string& what, const std::string& text) {
  if (text.size() > kMaxSchemaBytes) return TooLarge("bytes", text.size(), kMaxSchemaBytes);
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Error{what + " is no JSON object"};
  SchemaSize size;
  WINNOW_TRY(CheckValues(parsed, 0, size));
  if (size.counted_properties * static_cast<double>(size.values) > kMaxCountedValues) {
    return Error{what + " counts up to " + std::to_string(size.counted_properties) +
                 " properties among " + std::to_string(size.values) +
                 " values, expected a product of at most " + std::to_string(kMaxCountedValues)};
  }
  return parsed;
}

}  // namespace

struct Matcher::Data {
  Data(xgrammar::GrammarMatcher m, int64_t n) : matcher(std::move(m)), n_tokens(n) {}

  // The tokens that may come, a bit for each. False: all may, or the grammar's reader failed.
  bool FillBits() {
    bits.assign(static_cast<size_t>((n_tokens + 31) / 32), -1);
    auto n_words = static_cast<int64_t>(bits.size());
    DLTensor tensor = {};
    tensor.data = bits.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &n_words;
    const auto filled =
        Caught("the grammar", [&] { return matcher.FillNextTokenBitmask(&tensor); });
    broken = broken || !filled.has_value();
    return filled.has_value() && *filled;
  }
  bool MayCome(int64_t token) const {
    const auto word = static_cast<uint32_t>(bits[static_cast<size_t>(token / 32)]);
    return (word >> (token % 32) & 1) != 0;
  }

  xgrammar::GrammarMatcher matcher;
  int64_t n_tokens = 0;  // of the vocabulary
  std::vector<int32_t> bits;
  bool broken = false;  // the grammar is too deep to go on: the answer ends
};

Matcher::Matcher(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

void Matcher::Mask(std::span<float> logits) {
  if (data_->broken || data_->matcher.IsTerminated() || !data_->FillBits()) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    const bool may_come = token < data_->n_tokens && data_->MayCome(token);
    if (!may_come) logits[i] = -std::numeric_limits<float>::infinity();
  }
}

bool Matcher::Accept(tokenizer::TokenId token) {
  if (data_->broken || data_->matcher.IsTerminated()) return false;
  const auto accepted = Caught("the grammar", [&] { return data_->matcher.AcceptToken(token); });
  data_->broken = !accepted.has_value();
  return accepted.has_value() && *accepted;
}

bool Matcher::finished() const {
  if (data_->broken || data_->matcher.IsTerminated()) return true;
  if (!data_->matcher.IsCompleted()) return false;
  // Complete, but more may follow: digits of a number, another call.
  if (!data_->FillBits()) return data_->broken;
  const std::vector<int>& stops = data_->matcher.GetStopTokenIds();
  for (int64_t token = 0; token < data_->n_tokens; ++token) {
    if (data_->MayCome(token) && std::find(stops.begin(), stops.end(), token) == stops.end()) {
      return false;
    }
  }
  return true;
}

bool Matcher::MayBegin() {
  if (!data_->FillBits()) return !data_->broken;
  for (int64_t token = 0; token < data_->n_tokens; ++token) {
    if (data_->MayCome(token)) return true;
  }
  return false;
}

Matcher Matcher::Copy() const {
  return Matcher(std::make_unique<Data>(data_->matcher.Fork(), data_->n_tokens));
}

struct GrammarSet::Data {
  explicit Data(const xgrammar::TokenizerInfo& info)
      : compiler(info, /*max_threads=*/1, /*cache_enabled=*/true, kMaxCacheBytes),
        n_tokens(info.GetVocabSize()) {}
  xgrammar::GrammarCompiler compiler;
  int64_t n_tokens = 0;
};

GrammarSet::GrammarSet(const tokenizer::Tokenizer& tokenizer) {
  std::vector<int32_t> stops;
  for (const tokenizer::TokenId token : tokenizer.end_of_generation()) stops.push_back(token);
  const xgrammar::TokenizerInfo info(Pieces(tokenizer), xgrammar::VocabType::RAW,
                                     static_cast<int>(tokenizer.vocabulary_size()), stops);
  data_ = std::make_unique<Data>(info);
}

GrammarSet::~GrammarSet() = default;

Result<Matcher> GrammarSet::JsonSchema(const std::string& schema) const {
  WINNOW_ASSIGN(const Json parsed, ParseSchema("the JSON schema", schema));
  const std::string used = parsed.empty() ? R"({"type": "object"})" : schema;
  WINNOW_ASSIGN(Matcher matcher, Caught("the JSON schema", [&] {
                  return Matcher(std::make_unique<Matcher::Data>(
                      xgrammar::GrammarMatcher(data_->compiler.CompileJSONSchema(
                          used, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                          /*strict_mode=*/false, kMaxSpaces)),
                      data_->n_tokens));
                }));
  // {"$ref": "#"} and the like compile, but nothing ends them.
  if (!matcher.MayBegin()) return Error{"the JSON schema: no value can have it"};
  return matcher;
}

Result<Matcher> GrammarSet::HermesCalls(std::span<const ToolSchema> tools) const {
  if (tools.empty()) return Error{"tools: there are none to call"};
  Json tags = Json::array();
  for (const ToolSchema& tool : tools) {
    WINNOW_ASSIGN(
        const Json parameters,
        ParseSchema("tool '" + tool.name + "': the schema of parameters", tool.parameters));
    const Json call = {
        {"type", "object"},
        {"properties",
         {{"name", {{"const", tool.name}}},
          {"arguments", parameters.empty() ? Json{{"type", "object"}} : parameters}}},
        {"required", {"name", "arguments"}},
        {"additionalProperties", false}};
    tags.push_back({{"type", "tag"},
                    {"begin", "<tool_call>\n"},
                    {"content", {{"type", "json_schema"}, {"json_schema", call}}},
                    {"end", "\n</tool_call>"}});
  }
  const Json format = {{"type", "structural_tag"},
                       {"format",
                        {{"type", "tags_with_separator"},
                         {"tags", tags},
                         {"separator", "\n"},
                         {"at_least_one", true}}}};
  return Caught("the tools", [&] {
    return Matcher(std::make_unique<Matcher::Data>(
        xgrammar::GrammarMatcher(data_->compiler.CompileStructuralTag(format.dump())),
        data_->n_tokens));
  });
}

}  // namespace winnow::grammar
