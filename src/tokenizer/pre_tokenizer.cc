#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pre_tokenizer.h"

#include <pcre2.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "gguf/printable.h"
#include "tokenizer/utf8.h"

namespace winnow::tokenizer {
namespace {

struct Family {
  std::vector<std::string_view> names;
  std::vector<std::string> stages;
  bool whole_pieces = false;
  bool adds_bos = false;
};

// The regular expressions as published with the models, with two changes that do not alter what
// they match: case-insensitive contractions are spelled out, and "a letter, but not a-z", published
// as ((?=[\p{L}])([^a-z])), is the class [^\P{L}a-z], so that the matcher keeps no group per
// letter.
const std::vector<Family>& Families() {
  static const std::string contractions =
      "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
  static const std::string spaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string signs = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
  static const std::string slashed_signs = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)";
  static const std::string gpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
  static const std::string llama3 =
      contractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" + signs + "|" + spaces;
  // Words that begin with capitals, and words all in capitals.
  static const std::string capitalised = R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]*[^\P{L}A-Z]+)";
  static const std::string capitals = R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]+[^\P{L}A-Z]*)";

  static const std::vector<Family> families = {
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "midm-2.0"},
       .stages = {llama3},
       .whole_pieces = true,
       .adds_bos = true},
      {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, .stages = {llama3}},
      {.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "grok-2"},
       .stages = {contractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" + signs + "|" + spaces}},
      {.names = {"qwen35"},
       .stages = {contractions +
                  R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" +
                  spaces}},
      {.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "modern-bert"},
       .stages = {gpt2}},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       .stages = {R"(\p{N})", gpt2}},
      {.names = {"falcon"}, .stages = {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2, "[0-9][0-9][0-9]"}},
      {.names = {"default"},
       .stages = {R"([\p{P}\$\+<=>\^~\|]+)", gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"tekken"},
       .stages = {capitalised + "|" + capitals + R"(|\p{N}|)" + slashed_signs + "|" + spaces},
       .whole_pieces = true,
       .adds_bos = true},
      {.names = {"gpt-4o", "llama4"},
       .stages = {capitalised + contractions + "?|" + capitals + contractions + R"(?|\p{N}{1,3}|)" +
                  slashed_signs + "|" + spaces}},
      {.names = {"deepseek-v3"},
       .stages = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
                  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                  R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" +
                      spaces}},
  };
  return families;
}

// PCRE2's \s also matches U+180E, unlike the Unicode property White_Space that the published
// expressions mean. Therefore \s and \S are replaced by explicit lists; \S does not occur in
// brackets.
std::string WithUnicodeSpaces(std::string_view expression) {
  constexpr std::string_view kSpaces =
      R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '[' && !in_class) in_class = true;
    if (c == ']') in_class = false;
    if (c != '\\') {
      result += c;
      continue;
    }
    const char escaped = expression[++i];
    if (escaped != 's' && escaped != 'S') {
      result += c;
      result += escaped;
    } else if (in_class) {
      result += kSpaces;
    } else {
      result += (escaped == 's' ? "[" : "[^") + std::string(kSpaces) + "]";
    }
  }
  return result;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;

Code Compile(std::string_view expression) {
  const std::string pattern = WithUnicodeSpaces(expression);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &error_at, nullptr));
  WINNOW_CHECK(code != nullptr);
  // Without JIT (if executable memory is forbidden) the interpreter gives the same result, slower.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  return code;
}

}  // namespace

struct PreTokenizer::Data {
  std::vector<Code> stages;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;
  bool whole_pieces = false;
  bool adds_bos = false;

  // Splits one piece of valid UTF-8 by one expression.
  void Cut(const Code& stage, pcre2_match_data* match, std::string_view piece,
           std::vector<std::string_view>& out) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    size_t at = 0;
    while (at < piece.size()) {
      const int n = pcre2_match(stage.get(), subject, piece.size(), at, PCRE2_NO_UTF_CHECK, match,
                                context.get());
      if (n == PCRE2_ERROR_NOMATCH) break;
      WINNOW_CHECK(n > 0);
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
      WINNOW_CHECK(ends[1] > ends[0]);
      if (ends[0] > at) out.push_back(piece.substr(at, ends[0] - at));
      out.push_back(piece.substr(ends[0], ends[1] - ends[0]));
      at = ends[1];
    }
    if (at < piece.size()) out.push_back(piece.substr(at));
  }
};

PreTokenizer::PreTokenizer(std::unique_ptr<Data> data) : data_(std::move(data)) {}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

Result<PreTokenizer> PreTokenizer::Make(std::string_view name) {
  for (const Family& family : Families()) {
    for (std::string_view known : family.names) {
      if (known != name) continue;
      auto data = std::make_unique<Data>();
      for (const std::string& stage : family.stages) data->stages.push_back(Compile(stage));
      data->context.reset(pcre2_match_context_create(nullptr));
      WINNOW_CHECK(data->context != nullptr);
      // No limit: the expressions do not backtrack exponentially, and a long run of one character
      // must not fail.
      pcre2_set_match_limit(data->context.get(), std::numeric_limits<uint32_t>::max());
      data->whole_pieces = family.whole_pieces;
      data->adds_bos = family.adds_bos;
      return PreTokenizer(std::move(data));
    }
  }
  return Error{"tokenizer: tokenizer.ggml.pre: pre-tokenizer '" + gguf::Printable(name) +
               "' unknown, supported: " + PreTokenizerNames()};
}

std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> match(
      pcre2_match_data_create(1, nullptr));
  WINNOW_CHECK(match != nullptr);
  std::vector<std::string_view> result;
  std::vector<std::string_view> pieces;
  std::vector<std::string_view> cut;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, ValidPrefixLength(text));
    text.remove_prefix(valid.size());
    if (!valid.empty()) {
      pieces.assign(1, valid);
      for (const Code& stage : data_->stages) {
        cut.clear();
        for (std::string_view piece : pieces) data_->Cut(stage, match.get(), piece, cut);
        std::swap(pieces, cut);
      }
      result.insert(result.end(), pieces.begin(), pieces.end());
    }
    size_t n_invalid = 0;
    while (n_invalid < text.size() && CharacterLength(text.substr(n_invalid)) == 0) ++n_invalid;
    if (n_invalid > 0) result.push_back(text.substr(0, n_invalid));
    text.remove_prefix(n_invalid);
  }
  return result;
}

bool PreTokenizer::takes_whole_pieces() const { return data_->whole_pieces; }
bool PreTokenizer::adds_bos() const { return data_->adds_bos; }

std::string PreTokenizerNames() {
  std::string names;
  for (const Family& family : Families()) {
    for (std::string_view name : family.names) {
      if (!names.empty()) names += ", ";
      names += name;
    }
  }
  return names;
}

}  // namespace winnow::tokenizer
