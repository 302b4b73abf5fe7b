#include "grammar/grammar.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include "grammar/call_format.h"
#include "grammar/gbnf.h"
#include "grammar/schema_limits.h"
#include "grammar/work_limit.h"

namespace winnow::grammar {
namespace {

constexpr int64_t kMaxCacheBytes = int64_t{64} << 20;  // of compiled grammars
// Limits of compiling a grammar. Ordinary schemas take longer with a large vocabulary: a text of at
// most 256 characters takes 5 to 8 s with 128,000 tokens.
constexpr double kCompileMs = 1500;
constexpr double kCompileMsPerToken = 0.1;  // of the vocabulary, if that is more
constexpr int64_t kMaxEdges = 2'000'000;    // 150 MB
// Matching an ambiguous grammar takes longer with every token, on the thread that decodes all
// sequences.
constexpr double kTokenMs = 100;        // limit for a token
constexpr double kMatchMs = 500;        // limit for an answer
constexpr double kMatchMsPerToken = 5;  // plus this for each of its tokens
// xgrammar's cache keeps the texts of grammars that it could not compile, and does not count them.
constexpr int64_t kMaxFailedBytes = int64_t{1} << 20;

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
  } catch (const WorkStopped& stopped) {
    return Error{what + " " + stopped.what()};
  } catch (const std::exception& error) {
    return Error{what + ": " + Message(error.what())};
  }
}

std::string Computed(double ms) {
  return "the grammar took " + std::to_string(static_cast<int64_t>(ms)) + " ms of computing for ";
}

}  // namespace

struct Matcher::Data {
  Data(xgrammar::GrammarMatcher m, int64_t n) : matcher(std::move(m)), n_tokens(n) {}

  // All calls of xgrammar go through here: an error, or time above a limit, is a problem.
  template <typename Function>
  bool Ask(const Function& function) {
    const double allowed = kMatchMs + kMatchMsPerToken * static_cast<double>(cost.n_tokens);
    const WorkLimit limit({.max_ms = std::min(allowed - cost.ms, kTokenMs - cost.token_ms)});
    const auto answer = Caught("the grammar", function);
    const double ms = limit.ms();
    cost.ms += ms;
    cost.token_ms += ms;
    constexpr const char* kAdvice = "; a less ambiguous grammar is faster";
    if (cost.token_ms > kTokenMs) {
      problem = Computed(cost.token_ms) + "one token, expected at most " +
                std::to_string(static_cast<int64_t>(kTokenMs)) + kAdvice;
    } else if (cost.ms > allowed) {
      problem = Computed(cost.ms) + std::to_string(cost.n_tokens) + " tokens, expected at most " +
                std::to_string(static_cast<int64_t>(allowed)) + kAdvice;
    } else if (!answer) {
      problem = answer.error().message;
    }
    return problem.empty() && *answer;
  }
  // Computes the allowed tokens, one bit each. False: all are allowed, or there is a problem.
  bool FillBits() {
    if (has_bits) return is_restricted;
    bits.assign(static_cast<size_t>((n_tokens + 31) / 32), -1);
    auto n_words = static_cast<int64_t>(bits.size());
    DLTensor tensor = {};
    tensor.data = bits.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &n_words;
    is_restricted = Ask([&] { return matcher.FillNextTokenBitmask(&tensor); });
    has_bits = problem.empty();
    return is_restricted;
  }
  template <typename Function>
  bool Advance(const Function& function) {
    has_bits = false;
    return Ask(function);
  }
  bool IsAllowed(int64_t token) const {
    const auto word = static_cast<uint32_t>(bits[static_cast<size_t>(token / 32)]);
    return (word >> (token % 32) & 1) != 0;
  }
  bool ended() const { return !problem.empty() || matcher.IsTerminated(); }

  xgrammar::GrammarMatcher matcher;
  int64_t n_tokens = 0;       // of the vocabulary
  std::vector<int32_t> bits;  // of FillBits, and its result; until the matcher advances
  bool has_bits = false, is_restricted = false;
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
  data_->cost.token_ms = 0;
  const bool accepted = data_->Advance([&] { return data_->matcher.AcceptToken(token); });
  if (accepted) ++data_->cost.n_tokens;
  return accepted;
}

bool Matcher::AcceptText(const std::string& text) {
  if (text.empty()) return data_->problem.empty();
  if (data_->ended()) return false;
  return data_->Advance([&] { return data_->matcher.AcceptString(text); });
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
  copy->bits = data_->bits;
  copy->has_bits = data_->has_bits;
  copy->is_restricted = data_->is_restricted;
  copy->cost = data_->cost;
  copy->problem = data_->problem;
  return Matcher(std::move(copy));
}

struct GrammarSet::Data {
  explicit Data(const xgrammar::TokenizerInfo& info)
      : compiler(info, /*max_threads=*/1, /*cache_enabled=*/true, kMaxCacheBytes),
        n_tokens(info.GetVocabSize()) {}
  // Called if compiling fails. xgrammar's cache keeps the failure, and has no way to remove only
  // it.
  void Failed(int64_t text_bytes, bool was_stopped) {
    n_failed_bytes += text_bytes;
    if (!was_stopped && n_failed_bytes <= kMaxFailedBytes) return;
    n_failed_bytes = 0;
    compiler.ClearCache();
  }

  xgrammar::GrammarCompiler compiler;
  int64_t n_tokens = 0;
  std::atomic<int64_t> n_failed_bytes{0};  // of texts in the compiler's cache
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

// Calls `compile` with xgrammar's compiler and the text. Errors: xgrammar's; too much work; no text
// can match.
template <typename Compile>
Result<Matcher> GrammarSet::Make(const std::string& what, const std::string& text,
                                 const Cancelled& cancelled, const Compile& compile) const {
  const auto make = [&] {
    const double max_ms =
        std::max(kCompileMs, kCompileMsPerToken * static_cast<double>(data_->n_tokens));
    const WorkLimit limit({max_ms, kMaxEdges, cancelled});
    auto made = Caught(what, [&] {
      return Matcher(std::make_unique<Matcher::Data>(
          xgrammar::GrammarMatcher(compile(data_->compiler, text)), data_->n_tokens));
    });
    if (!made) data_->Failed(static_cast<int64_t>(text.size()), limit.stopped());
    return made;
  };
  WINNOW_ASSIGN(Matcher matcher, make());
  if (!matcher.MayBegin()) {
    // {"$ref": "#"} and similar schemas compile, but no text ends them.
    if (matcher.problem().empty()) return Error{what + " cannot be satisfied"};
    return Error{matcher.problem()};
  }
  return matcher;
}

Result<Matcher> GrammarSet::JsonSchema(const std::string& schema,
                                       const Cancelled& cancelled) const {
  SchemaSize size;
  WINNOW_ASSIGN(const auto parsed, ParseSchema("the JSON schema", schema, size));
  const std::string used = parsed.empty() ? R"({"type": "object"})" : schema;
  return Make("the JSON schema", used, cancelled,
              [](xgrammar::GrammarCompiler& compiler, const std::string& text) {
                return compiler.CompileJSONSchema(text, /*any_whitespace=*/true, std::nullopt,
                                                  std::nullopt, /*strict_mode=*/false, kMaxSpaces);
              });
}

Result<Matcher> GrammarSet::Gbnf(const std::string& grammar, const Cancelled& cancelled) const {
  WINNOW_ASSIGN(const std::string translated, EbnfFromGbnf(grammar));
  return Make("the grammar", translated, cancelled,
              [](xgrammar::GrammarCompiler& compiler, const std::string& text) {
                return compiler.CompileGrammar(text, "r-root");
              });
}

Result<Matcher> GrammarSet::MakeCall(const std::string& format, const Cancelled& cancelled) const {
  const std::string tag = R"({"type": "structural_tag", "format": )" + format + "}";
  return Make("the tools", tag, cancelled,
              [](xgrammar::GrammarCompiler& compiler, const std::string& text) {
                return compiler.CompileStructuralTag(text);
              });
}

Result<Matcher> GrammarSet::Calls(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                                  const Cancelled& cancelled) const {
  WINNOW_ASSIGN(const std::string format, CallsFormat(syntax, tools));
  return MakeCall(format, cancelled);
}

Result<Matcher> GrammarSet::CallAfterMarker(const BegunCallSyntax& syntax,
                                            std::span<const ToolSchema> tools,
                                            const Cancelled& cancelled) const {
  WINNOW_ASSIGN(const std::string format, BegunCallFormat(syntax, tools));
  return MakeCall(format, cancelled);
}

}  // namespace winnow::grammar
