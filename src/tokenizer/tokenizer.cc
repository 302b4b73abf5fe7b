#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/check.h"
#include "gguf/printable.h"
#include "tokenizer/algorithm.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace winnow::tokenizer {
namespace {

// Spellings of tokens that end a turn, in all model families. Models generate these even if their
// EOS is another token.
constexpr std::array<std::string_view, 17> kEndSpellings = {"<|eot_id|>",
                                                            "<|im_end|>",
                                                            "<|end|>",
                                                            "<|return|>",
                                                            "<|call|>",
                                                            "<end_of_turn>",
                                                            "<|endoftext|>",
                                                            "</s>",
                                                            "<|eom_id|>",
                                                            "<EOT>",
                                                            "[EOT]",
                                                            "[EOS]",
                                                            "<|end_of_text|>",
                                                            "<end_of_utterance>",
                                                            "<eos>",
                                                            "<turn|>",
                                                            "<｜end▁of▁sentence｜>"};

// Phi-3's special tokens drop the white space after them, except these. The file does not say so;
// like llama.cpp, winnow goes by the model's name.
constexpr std::array<std::string_view, 3> kPhi3KeepsSpaceBehind = {"<unk>", "<s>", "<|endoftext|>"};

bool IsPhi3(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

template <typename Range, typename T>
bool Contains(const Range& range, const T& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

class VocabularyTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Make(Vocabulary vocabulary) {
    std::unique_ptr<VocabularyTokenizer> result(new VocabularyTokenizer(std::move(vocabulary)));
    WINNOW_TRY(result->MakeAlgorithm());
    result->FinishSpecialTokens();
    return std::unique_ptr<Tokenizer>(std::move(result));
  }

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override {
    const Range whole = {.begin = 0, .end = text.size()};
    std::vector<TokenId> tokens;
    if (options.add_special && adds_bos_) tokens.push_back(*vocabulary_.bos);
    EncodeText(text, options.parse_special ? std::span<const Range>() : std::span(&whole, 1),
               TextStart::kBegins, tokens);
    if (options.add_special && adds_eos_) tokens.push_back(*vocabulary_.eos);
    return tokens;
  }

  std::vector<TokenId> EncodeMarked(std::span<const MarkedText> stretches,
                                    bool add_special) const override {
    std::vector<TokenId> tokens = EncodeStretches(stretches, TextStart::kBegins);
    const bool begins_with_bos = !tokens.empty() && vocabulary_.bos == tokens.front();
    if (add_special && adds_bos_ && !begins_with_bos)
      tokens.insert(tokens.begin(), *vocabulary_.bos);
    return tokens;
  }

  std::vector<TokenId> EncodeAfter(TokenId last,
                                   std::span<const MarkedText> stretches) const override {
    CheckRange(last);
    return EncodeStretches(stretches,
                           IsWrittenLiterally(last) ? TextStart::kBegins : TextStart::kContinues);
  }

  std::string Piece(TokenId token, bool render_special) const override {
    CheckRange(token);
    switch (vocabulary_.kinds[token]) {
      case TokenKind::kUnknown:
      case TokenKind::kControl:
        return render_special ? std::string(vocabulary_.texts[token]) : std::string();
      case TokenKind::kUserDefined:
        return std::string(vocabulary_.texts[token]);
      case TokenKind::kNormal:
      case TokenKind::kUnused:
      case TokenKind::kByte:
        return algorithm_->Bytes(token);
    }
    WINNOW_CHECK(false);
  }

  std::string Decode(std::span<const TokenId> tokens, bool render_special) const override {
    std::string text;
    bool after_special = true;  // Encode may have added a space here
    for (TokenId token : tokens) {
      const std::string piece = Piece(token, render_special);
      if (IsWrittenLiterally(token)) {
        text += piece;
        after_special = true;
        continue;
      }
      const bool drop_space = after_special && algorithm_->adds_space() && piece.starts_with(' ');
      text += std::string_view(piece).substr(drop_space ? 1 : 0);
      after_special = false;
    }
    return text;
  }

  int64_t vocabulary_size() const override { return vocabulary_.size(); }
  std::string_view Text(TokenId token) const override {
    CheckRange(token);
    return vocabulary_.texts[token];
  }
  TokenKind Kind(TokenId token) const override {
    CheckRange(token);
    return vocabulary_.kinds[token];
  }
  std::optional<TokenId> Find(std::string_view text) const override {
    const TokenId token = index_.Find(text);
    return token >= 0 ? std::optional<TokenId>(token) : std::nullopt;
  }

  std::optional<TokenId> bos() const override { return vocabulary_.bos; }
  std::optional<TokenId> eos() const override { return vocabulary_.eos; }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_eos() const override { return adds_eos_; }
  bool IsEndOfGeneration(TokenId token) const override {
    return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), token);
  }
  std::vector<TokenId> end_of_generation() const override { return end_of_generation_; }

  std::string_view model_name() const override { return vocabulary_.model; }
  std::string_view pre_tokenizer_name() const override { return pre_; }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  explicit VocabularyTokenizer(Vocabulary vocabulary)
      : vocabulary_(std::move(vocabulary)), index_(vocabulary_.texts) {}

  // Chooses the algorithm by name and sets defaults that the file leaves to the kind of tokenizer.
  Result<void> MakeAlgorithm() {
    MarkEnds();
    const AlgorithmInput input = {
        .vocabulary = vocabulary_, .index = index_, .warnings = warnings_};
    bool adds_bos_by_default = false;
    if (vocabulary_.model == "llama") {
      DefaultId(vocabulary_.bos, 1);
      DefaultId(vocabulary_.eos, 2);
      DefaultId(vocabulary_.unknown, 0);
      adds_bos_by_default = true;
      WINNOW_ASSIGN(algorithm_, MakeSentencePiece(input));
    } else if (vocabulary_.model == "gpt2") {
      // Falcon's only special token. In other vocabularies token 11 is some word: use it only if it
      // is a control token.
      if (vocabulary_.size() > 11 && vocabulary_.kinds[11] == TokenKind::kControl) {
        DefaultId(vocabulary_.bos, 11);
        DefaultId(vocabulary_.eos, 11);
      }
      if (!vocabulary_.pre) {
        warnings_.push_back(
            "tokenizer: tokenizer.ggml.pre is missing: using 'default', which splits text "
            "differently from the model's training; quality will suffer");
      }
      pre_ = vocabulary_.pre.value_or("default");
      WINNOW_ASSIGN(const PreTokenizer pre_tokenizer, PreTokenizer::Make(pre_));
      adds_bos_by_default = pre_tokenizer.adds_bos();
      WINNOW_ASSIGN(algorithm_, MakeBytePairs(input, pre_));
    } else {
      return Error{"tokenizer: tokenizer.ggml.model: tokenizer '" +
                   gguf::Printable(vocabulary_.model) + "' not supported, supported: llama, gpt2"};
    }
    adds_bos_ = vocabulary_.add_bos.value_or(adds_bos_by_default) && vocabulary_.bos;
    adds_eos_ = vocabulary_.add_eos.value_or(false) && vocabulary_.eos;
    return {};
  }

  void DefaultId(std::optional<TokenId>& id, TokenId value) const {
    if (!id && value < vocabulary_.size()) id = value;
  }

  // Treats a token that ends a turn as a control token whatever the file says. As ordinary text it
  // would end generation whenever a user types it.
  void MarkEnds() {
    for (std::string_view spelling : kEndSpellings) {
      const TokenId token = index_.Find(spelling);
      if (token < 0) continue;
      vocabulary_.kinds[token] = TokenKind::kControl;
      end_of_generation_.push_back(token);
    }
  }

  void FinishSpecialTokens() {
    for (const std::optional<TokenId>& id : {vocabulary_.eos, vocabulary_.eot, vocabulary_.eom}) {
      if (id) end_of_generation_.push_back(*id);
    }
    std::sort(end_of_generation_.begin(), end_of_generation_.end());
    end_of_generation_.erase(std::unique(end_of_generation_.begin(), end_of_generation_.end()),
                             end_of_generation_.end());

    const bool phi3 = IsPhi3(vocabulary_.general_name);
    std::vector<SpecialTokens::Entry> entries;
    for (TokenId token = 0; token < vocabulary_.size(); ++token) {
      if (!IsWrittenLiterally(token)) continue;
      const std::string_view text = vocabulary_.texts[token];
      entries.push_back({.text = text,
                         .token = token,
                         .in_plain_text = vocabulary_.kinds[token] == TokenKind::kUserDefined,
                         .strips_space_after = phi3 && !Contains(kPhi3KeepsSpaceBehind, text)});
    }
    special_ = SpecialTokens(std::move(entries));
  }

  std::vector<TokenId> EncodeStretches(std::span<const MarkedText> stretches,
                                       TextStart start) const {
    std::string text;
    std::vector<Range> plain;
    for (const MarkedText& stretch : stretches) {
      const size_t begin = text.size();
      text += stretch.text;
      if (!stretch.parse_special && !stretch.text.empty())
        plain.push_back({.begin = begin, .end = text.size()});
    }
    std::vector<TokenId> tokens;
    EncodeText(text, plain, start, tokens);
    return tokens;
  }

  void EncodeText(std::string_view text, std::span<const Range> plain, TextStart start,
                  std::vector<TokenId>& out) const {
    algorithm_->Encode(special_.Partition(text, plain), start, out);
  }

  bool IsWrittenLiterally(TokenId token) const {
    return vocabulary_.IsReserved(token) || vocabulary_.kinds[token] == TokenKind::kUserDefined;
  }

  void CheckRange(TokenId token) const { WINNOW_CHECK(token >= 0 && token < vocabulary_.size()); }

  Vocabulary vocabulary_;
  StringIndex index_;
  std::unique_ptr<Algorithm> algorithm_;
  std::string pre_;
  SpecialTokens special_;
  std::vector<TokenId> end_of_generation_;  // sorted
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(Vocabulary vocabulary) {
  WINNOW_CHECK(vocabulary.kinds.size() == vocabulary.texts.size());
  WINNOW_CHECK(vocabulary.scores.empty() || vocabulary.scores.size() == vocabulary.texts.size());
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    if (!IsUtf8(vocabulary.texts[token])) {
      return Error{"tokenizer: tokenizer.ggml.tokens: entry " + std::to_string(token) +
                   " is not UTF-8"};
    }
  }
  return VocabularyTokenizer::Make(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(std::shared_ptr<const gguf::File> file) {
  WINNOW_ASSIGN(Vocabulary vocabulary, ReadVocabulary(std::move(file)));
  return MakeTokenizer(std::move(vocabulary));
}

}  // namespace winnow::tokenizer
