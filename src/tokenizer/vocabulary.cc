#include "tokenizer/vocabulary.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "tokenizer/utf8.h"

namespace winnow::tokenizer {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

Error At(std::string_view key, const std::string& what) {
  return Error{"tokenizer: " + Key(key) + ": " + what};
}

Result<TokenKind> KindOfType(int64_t type, size_t token) {
  switch (type) {
    case 0:  // undefined: treated as ordinary text
    case 1:
      return TokenKind::kNormal;
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    case 6:
      return TokenKind::kByte;
    default:
      return At("token_type", "entry " + std::to_string(token) + " is " + std::to_string(type) +
                                  ", expected 0 to 6");
  }
}

Result<std::optional<TokenId>> SpecialId(const gguf::File& file, std::string_view key,
                                         TokenId size) {
  WINNOW_ASSIGN(const std::optional<int64_t> id, file.Int(Key(key)));
  if (!id) return std::optional<TokenId>();
  if (*id < 0 || *id >= size) {
    return At(key, std::to_string(*id) + " is outside the vocabulary of " + std::to_string(size) +
                       " tokens");
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

Result<void> ReadSpecialIds(const gguf::File& file, Vocabulary& vocabulary) {
  const std::array<std::pair<std::string_view, std::optional<TokenId>*>, 5> used = {{
      {"bos_token_id", &vocabulary.bos},
      {"eos_token_id", &vocabulary.eos},
      {"eot_token_id", &vocabulary.eot},
      {"eom_token_id", &vocabulary.eom},
      {"unknown_token_id", &vocabulary.unknown},
  }};
  for (const auto& [key, target] : used) {
    WINNOW_ASSIGN(*target, SpecialId(file, key, vocabulary.size()));
  }
  // These ids are not used, but a file with ids outside its vocabulary is rejected. "seperator" is
  // the spelling in GGUF.
  for (std::string_view key : {"seperator_token_id", "padding_token_id", "mask_token_id",
                               "fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id",
                               "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"}) {
    WINNOW_TRY(SpecialId(file, key, vocabulary.size()));
  }
  return {};
}

Result<void> ReadKindsAndScores(const gguf::File& file, Vocabulary& vocabulary) {
  const size_t n_tokens = vocabulary.texts.size();
  const auto other_length = [&](std::string_view key, size_t n) {
    return At(key, std::to_string(n) + " entries for " + std::to_string(n_tokens) + " tokens");
  };
  WINNOW_ASSIGN(const auto types, file.Ints(Key("token_type")));
  if (types && types->size() != n_tokens) return other_length("token_type", types->size());
  vocabulary.kinds.assign(n_tokens, TokenKind::kNormal);
  for (size_t i = 0; types && i < n_tokens; ++i) {
    WINNOW_ASSIGN(vocabulary.kinds[i], KindOfType((*types)[i], i));
  }
  WINNOW_ASSIGN(auto scores, file.Floats(Key("scores")));
  if (scores && scores->size() != n_tokens) return other_length("scores", scores->size());
  if (scores) vocabulary.scores = *std::move(scores);
  return {};
}

}  // namespace

Result<Vocabulary> ReadVocabulary(std::shared_ptr<const gguf::File> file) {
  Vocabulary vocabulary;
  WINNOW_ASSIGN(const auto model, file->String(Key("model")));
  if (!model) return At("model", "missing");
  vocabulary.model = *model;
  // A file without a tokenizer has no vocabulary: MakeTokenizer rejects the name.
  if (*model == "none" || *model == "no_vocab") return vocabulary;

  WINNOW_ASSIGN(const auto pre, file->String(Key("pre")));
  if (pre) vocabulary.pre = *pre;
  WINNOW_ASSIGN(const auto name, file->String("general.name"));
  vocabulary.general_name = name.value_or("");
  WINNOW_ASSIGN(auto texts, file->Strings(Key("tokens")));
  if (!texts || texts->empty()) return At("tokens", "no tokens");
  // BytePairs numbers symbols beyond the tokens' ids: keep twice as many numbers free.
  constexpr size_t kMaxTokens = std::numeric_limits<TokenId>::max() / 4;
  if (texts->size() > kMaxTokens) return At("tokens", std::to_string(texts->size()) + " tokens");
  vocabulary.texts = *std::move(texts);
  WINNOW_TRY(ReadKindsAndScores(*file, vocabulary));
  WINNOW_ASSIGN(auto merges, file->Strings(Key("merges")));
  if (merges) vocabulary.merges = *std::move(merges);
  WINNOW_TRY(ReadSpecialIds(*file, vocabulary));
  WINNOW_ASSIGN(vocabulary.add_bos, file->Bool(Key("add_bos_token")));
  WINNOW_ASSIGN(vocabulary.add_eos, file->Bool(Key("add_eos_token")));
  WINNOW_ASSIGN(vocabulary.add_space_prefix, file->Bool(Key("add_space_prefix")));
  vocabulary.owner = std::move(file);
  return vocabulary;
}

std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  int value = 0;
  for (char digit : text.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if (digit >= 'A' && digit <= 'F') {
      value += digit - 'A' + 10;
    } else if (digit >= 'a' && digit <= 'f') {
      value += digit - 'a' + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

}  // namespace winnow::tokenizer
