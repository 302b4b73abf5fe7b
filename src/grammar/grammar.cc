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

// xgrammar throws; this is the door where that ends.
template <typename Function>
auto Caught(const char* what, const Function& function) -> Result<decltype(function())> {
  try {
    return function();
  } catch (const std::exception& error) {
    return Error{std::string(what) + ": " + error.what()};
  }
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
  const Json parsed = Json::parse(schema, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Error{"the JSON schema is no JSON object"};
  const std::string used = parsed.empty() ? R"({"type": "object"})" : schema;
  return Caught("the JSON schema", [&] {
    return Matcher(std::make_unique<Matcher::Data>(
        xgrammar::GrammarMatcher(data_->compiler.CompileJSONSchema(
            used, /*any_whitespace=*/true, std::nullopt, std::nullopt, /*strict_mode=*/false)),
        data_->n_tokens));
  });
}

Result<Matcher> GrammarSet::HermesCalls(std::span<const ToolSchema> tools) const {
  if (tools.empty()) return Error{"tools: there are none to call"};
  Json tags = Json::array();
  for (const ToolSchema& tool : tools) {
    const Json parameters = Json::parse(tool.parameters, nullptr, /*allow_exceptions=*/false);
    if (!parameters.is_object()) {
      return Error{"tool '" + tool.name + "': the parameters are no JSON schema"};
    }
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
