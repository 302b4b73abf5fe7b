#include "grammar/grammar.h"

#include <dlpack/dlpack.h>
#include <time.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "grammar/gbnf.h"
#include "grammar/schema_limits.h"

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCacheBytes = int64_t{64} << 20;  // of compiled grammars
// Some models, if no other token fits, write white space forever where the grammar allows it.
constexpr int kMaxSpaces = 16;
constexpr size_t kMaxTools = 128;
constexpr size_t kMaxToolNameBytes = 256;
// Matching an ambiguous grammar takes longer with every token, on the thread that decodes all
// sequences.
constexpr double kMatchMs = 500;        // limit for an answer
constexpr double kMatchMsPerToken = 5;  // plus this for each of its tokens

double ThreadCpuMs() {
  struct timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// The bytes of each token in running text. Control tokens have none, so no grammar allows them,
// unless they are `markers`.
std::vector<std::string> Pieces(const tokenizer::Tokenizer& tokenizer,
                                std::span<const std::string_view> markers) {
  std::vector<std::string> pieces;
  for (int64_t token = 0; token < tokenizer.vocabulary_size(); ++token) {
    const auto id = static_cast<tokenizer::TokenId>(token);
    const bool writes = tokenizer.Kind(id) != tokenizer::TokenKind::kControl &&
                        tokenizer.Kind(id) != tokenizer::TokenKind::kUnused;
    pieces.push_back(writes ? tokenizer.Piece(id) : "");
  }
  for (const std::string_view marker : markers) {
    const auto id = tokenizer.Find(marker);
    if (id && tokenizer.Kind(*id) == tokenizer::TokenKind::kControl) {
      pieces[static_cast<size_t>(*id)] = marker;
    }
  }
  return pieces;
}

// Removes xgrammar's prefix "[time] file:line: ".
std::string Message(std::string text) {
  if (text.starts_with("[")) {
    const size_t line = text.find(".cc:");
    const size_t end = line == std::string::npos ? line : text.find(": ", line);
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// xgrammar throws: turn that into a Result.
template <typename Function>
auto Caught(const std::string& what, const Function& function) -> Result<decltype(function())> {
  try {
    return function();
  } catch (const std::exception& error) {
    return Error{what + ": " + Message(error.what())};
  }
}

struct Tool {
  std::string name;
  Json parameters;
};

// Errors: those of GrammarSet::Calls.
Result<std::vector<Tool>> ReadTools(std::span<const ToolSchema> tools) {
  if (tools.empty()) return Error{"tools: the list is empty"};
  if (tools.size() > kMaxTools) {
    return Error{"tools: found " + std::to_string(tools.size()) +
                 " that can be called, expected at most " + std::to_string(kMaxTools)};
  }
  std::vector<Tool> read;
  SchemaSize size;
  for (const ToolSchema& tool : tools) {
    if (tool.name.size() > kMaxToolNameBytes) {
      return Error{"tools: found a name of " + std::to_string(tool.name.size()) +
                   " bytes, expected at most " + std::to_string(kMaxToolNameBytes)};
    }
    size.bytes += tool.name.size();
    WINNOW_ASSIGN(Json parameters, ParseSchema("tool '" + tool.name + "': the schema of parameters",
                                               tool.parameters, size));
    if (parameters.empty()) parameters = {{"type", "object"}};
    read.push_back({tool.name, std::move(parameters)});
  }
  return read;
}

// Parts of xgrammar's structural tags.
Json OfSchema(const Json& schema) {
  return {{"type", "json_schema"}, {"json_schema", schema}, {"max_whitespace_cnt", kMaxSpaces}};
}
Json Constant(const std::string& text) { return {{"type", "const_string"}, {"value", text}}; }
Json Pattern(const std::string& pattern) { return {{"type", "regex"}, {"pattern", pattern}}; }
Json Optional(const Json& part) { return {{"type", "optional"}, {"content", part}}; }
Json Sequence(const std::vector<Json>& parts) {
  return {{"type", "sequence"}, {"elements", parts}};
}
Json Choice(const std::vector<Json>& parts) {
  if (parts.size() == 1) return parts[0];
  return {{"type", "or"}, {"elements", parts}};
}
Json Spaces() { return Pattern("[ \\n\\r\\t]{0," + std::to_string(kMaxSpaces) + "}"); }
// The parts with white space between them.
Json Spaced(const std::vector<Json>& parts) {
  std::vector<Json> spaced;
  for (const Json& part : parts) {
    if (!spaced.empty()) spaced.push_back(Spaces());
    spaced.push_back(part);
  }
  return Sequence(spaced);
}

// {"name": ..., ARGUMENTS: {...}}; `any_order`: or the members swapped, as Hermes 2 Pro writes
// them. "$ref" in the parameters refers to their own schema. (xgrammar's any_order would also allow
// members twice or not at all.)
Json CallObject(const Tool& tool, const std::string& arguments, bool any_order) {
  const auto member = [](const std::string& key, const Json& value) {
    return Spaced({Constant(Json(key).dump()), Constant(":"), value});
  };
  const Json name = member("name", Constant(Json(tool.name).dump()));
  const Json values = member(arguments, OfSchema(tool.parameters));
  const Json comma = Constant(",");
  std::vector<Json> orders = {Spaced({name, comma, values})};
  if (any_order) orders.push_back(Spaced({values, comma, name}));
  return Spaced({Constant("{"), Choice(orders), Constant("}")});
}

}  // namespace

struct Matcher::Data {
  Data(xgrammar::GrammarMatcher m, int64_t n) : matcher(std::move(m)), n_tokens(n) {}

  // All calls of xgrammar go through here: an error, or time above the limit, is a problem.
  template <typename Function>
  bool Ask(const Function& function) {
    const double start = ThreadCpuMs();
    const auto answer = Caught("the grammar", function);
    cost.ms += ThreadCpuMs() - start;
    const double allowed = kMatchMs + kMatchMsPerToken * static_cast<double>(cost.n_tokens);
    if (!answer) {
      problem = answer.error().message;
    } else if (cost.ms > allowed) {
      problem = "the grammar took " + std::to_string(static_cast<int64_t>(cost.ms)) +
                " ms of computing for " + std::to_string(cost.n_tokens) +
                " tokens, expected at most " + std::to_string(static_cast<int64_t>(allowed)) +
                "; a less ambiguous grammar is faster";
    }
    return problem.empty() && *answer;
  }
  // Computes the allowed tokens, one bit each. False: all are allowed, or there is a problem.
  bool FillBits() {
    bits.assign(static_cast<size_t>((n_tokens + 31) / 32), -1);
    auto n_words = static_cast<int64_t>(bits.size());
    DLTensor tensor = {};
    tensor.data = bits.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &n_words;
    return Ask([&] { return matcher.FillNextTokenBitmask(&tensor); });
  }
  bool IsAllowed(int64_t token) const {
    const auto word = static_cast<uint32_t>(bits[static_cast<size_t>(token / 32)]);
    return (word >> (token % 32) & 1) != 0;
  }
  bool ended() const { return !problem.empty() || matcher.IsTerminated(); }

  xgrammar::GrammarMatcher matcher;
  int64_t n_tokens = 0;  // of the vocabulary
  std::vector<int32_t> bits;
  MatchCost cost;
  std::string problem;
};

Matcher::Matcher(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

void Matcher::Mask(std::span<float> logits) {
  if (data_->ended() || !data_->FillBits()) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    const bool may_come = token < data_->n_tokens && data_->IsAllowed(token);
    if (!may_come) logits[i] = -std::numeric_limits<float>::infinity();
  }
}

bool Matcher::Accept(tokenizer::TokenId token) {
  if (data_->ended()) return false;
  const bool accepted = data_->Ask([&] { return data_->matcher.AcceptToken(token); });
  if (accepted) ++data_->cost.n_tokens;
  return accepted;
}

bool Matcher::AcceptText(const std::string& text) {
  if (text.empty()) return data_->problem.empty();
  if (data_->ended()) return false;
  return data_->Ask([&] { return data_->matcher.AcceptString(text); });
}

bool Matcher::finished() const {
  if (data_->ended()) return true;
  if (!data_->matcher.IsCompleted()) return false;
  // The text is complete, but may go on: digits of a number, another call.
  if (!data_->FillBits()) return !data_->problem.empty();
  const std::vector<int>& stops = data_->matcher.GetStopTokenIds();
  for (int64_t token = 0; token < data_->n_tokens; ++token) {
    if (data_->IsAllowed(token) && std::find(stops.begin(), stops.end(), token) == stops.end()) {
      return false;
    }
  }
  return true;
}

const std::string& Matcher::problem() const { return data_->problem; }
const MatchCost& Matcher::cost() const { return data_->cost; }
void Matcher::set_cost(const MatchCost& cost) { data_->cost = cost; }

bool Matcher::MayBegin() {
  if (!data_->FillBits()) return data_->problem.empty();
  for (int64_t token = 0; token < data_->n_tokens; ++token) {
    if (data_->IsAllowed(token)) return true;
  }
  return false;
}

Matcher Matcher::Copy() const {
  auto copy = std::make_unique<Data>(data_->matcher.Fork(), data_->n_tokens);
  copy->cost = data_->cost;
  copy->problem = data_->problem;
  return Matcher(std::move(copy));
}

struct GrammarSet::Data {
  explicit Data(const xgrammar::TokenizerInfo& info)
      : compiler(info, /*max_threads=*/1, /*cache_enabled=*/true, kMaxCacheBytes),
        n_tokens(info.GetVocabSize()) {}
  xgrammar::GrammarCompiler compiler;
  int64_t n_tokens = 0;
};

GrammarSet::GrammarSet(const tokenizer::Tokenizer& tokenizer,
                       std::span<const std::string_view> markers) {
  std::vector<int32_t> stops;
  for (const tokenizer::TokenId token : tokenizer.end_of_generation()) stops.push_back(token);
  const xgrammar::TokenizerInfo info(Pieces(tokenizer, markers), xgrammar::VocabType::RAW,
                                     static_cast<int>(tokenizer.vocabulary_size()), stops);
  data_ = std::make_unique<Data>(info);
}

GrammarSet::~GrammarSet() = default;

// Calls `compile` with xgrammar's compiler. Errors: xgrammar's; no text can match.
template <typename Compile>
Result<Matcher> GrammarSet::Make(const std::string& what, const Compile& compile) const {
  WINNOW_ASSIGN(Matcher matcher, Caught(what, [&] {
                  return Matcher(std::make_unique<Matcher::Data>(
                      xgrammar::GrammarMatcher(compile(data_->compiler)), data_->n_tokens));
                }));
  if (!matcher.MayBegin()) {
    // {"$ref": "#"} and similar schemas compile, but no text ends them.
    if (matcher.problem().empty()) return Error{what + " cannot be satisfied"};
    return Error{matcher.problem()};
  }
  return matcher;
}

Result<Matcher> GrammarSet::JsonSchema(const std::string& schema) const {
  SchemaSize size;
  WINNOW_ASSIGN(const Json parsed, ParseSchema("the JSON schema", schema, size));
  const std::string used = parsed.empty() ? R"({"type": "object"})" : schema;
  return Make("the JSON schema", [&](xgrammar::GrammarCompiler& compiler) {
    return compiler.CompileJSONSchema(used, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                      /*strict_mode=*/false, kMaxSpaces);
  });
}

Result<Matcher> GrammarSet::Gbnf(const std::string& grammar) const {
  WINNOW_ASSIGN(const std::string translated, EbnfFromGbnf(grammar));
  return Make("the grammar", [&](xgrammar::GrammarCompiler& compiler) {
    return compiler.CompileGrammar(translated, "r-root");
  });
}

Result<Matcher> GrammarSet::MakeCall(const std::string& format) const {
  return Make("the tools", [&](xgrammar::GrammarCompiler& compiler) {
    return compiler.CompileStructuralTag(R"({"type": "structural_tag", "format": )" + format + "}");
  });
}

Result<Matcher> GrammarSet::Calls(const CallSyntax& syntax,
                                  std::span<const ToolSchema> tools) const {
  WINNOW_ASSIGN(const std::vector<Tool> read, ReadTools(tools));
  Json tags = Json::array();
  for (const Tool& tool : read) {
    tags.push_back({{"type", "tag"},
                    {"begin", syntax.begin},
                    {"content", CallObject(tool, syntax.arguments, /*any_order=*/false)},
                    {"end", syntax.end}});
  }
  const Json calls = {{"type", "tags_with_separator"},
                      {"tags", tags},
                      {"separator", syntax.between},
                      {"at_least_one", true},
                      {"stop_after_first", !syntax.several}};
  return MakeCall(calls.dump());
}

Result<Matcher> GrammarSet::CallAfterMarker(const BegunCallSyntax& syntax,
                                            std::span<const ToolSchema> tools) const {
  WINNOW_ASSIGN(const std::vector<Tool> read, ReadTools(tools));
  std::vector<Json> objects, ways;
  for (const Tool& tool : read) {
    objects.push_back(CallObject(tool, syntax.arguments, /*any_order=*/true));
    if (!syntax.listed) continue;
    const Json id = Sequence({Constant("[CALL_ID]"), Pattern("[0-9A-Za-z_-]{1,64}")});
    ways.push_back(Sequence({Constant(tool.name), Optional(id), Optional(Constant("[ARGS]")),
                             OfSchema(tool.parameters)}));
  }
  const Json spaces = Spaces();
  const Json object = Choice(objects);
  if (!syntax.listed) {
    std::vector<Json> call = {spaces, object};
    if (!syntax.end.empty()) call.insert(call.end(), {spaces, Constant(syntax.end)});
    return MakeCall(Sequence(call).dump());
  }
  std::vector<Json> list = {Constant("["), spaces, object};
  if (syntax.several) {
    list.push_back(
        {{"type", "star"}, {"content", Sequence({spaces, Constant(","), spaces, object})}});
  }
  list.push_back(spaces);
  list.push_back(Constant("]"));
  ways.push_back(Sequence(list));
  return MakeCall(Sequence({spaces, Choice(ways)}).dump());
}

}  // namespace winnow::grammar
