#include "server/openai/probabilities.h"

#include <algorithm>
#include <utility>

namespace winnow::server {
namespace {

constexpr double kImpossible = -9999;

double Shown(float log_probability) {
  return std::max(static_cast<double>(log_probability), kImpossible);  // NaN: the other one
}

report::List ByteList(const std::string& text) {
  report::List bytes;
  bytes.reserve(text.size());
  for (const char c : text) bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return bytes;
}

// What is common to chat and llama-server; the latter says the id too.
report::Record Entry(const tokenizer::Tokenizer& tokenizer, runtime::TokenId token,
                     float log_probability, bool with_id) {
  const std::string text = tokenizer.Piece(token, /*render_special=*/true);
  report::Record entry;
  if (with_id) entry.Add("id", token);
  entry.Add("token", text);
  entry.Add("logprob", Shown(log_probability));
  entry.Add("bytes", ByteList(text));
  return entry;
}

report::List Entries(const tokenizer::Tokenizer& tokenizer, std::span<const DrawnToken> drawn,
                     bool with_id) {
  report::List list;
  for (const DrawnToken& token : drawn) {
    report::Record entry = Entry(tokenizer, token.token, token.log_probability, with_id);
    report::List top;
    for (const runtime::TokenProbability& other : token.top) {
      top.emplace_back(Entry(tokenizer, other.token, other.log_probability, with_id));
    }
    entry.Add("top_logprobs", std::move(top));
    list.emplace_back(std::move(entry));
  }
  return list;
}

int64_t CountCharacters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

report::Record ChatLogprobs(const tokenizer::Tokenizer& tokenizer,
                            std::span<const DrawnToken> drawn) {
  return {{"content", Entries(tokenizer, drawn, false)}, {"refusal", report::Value()}};
}

report::Record TextLogprobs(const tokenizer::Tokenizer& tokenizer,
                            std::span<const DrawnToken> drawn, int64_t offset) {
  report::List tokens, logprobs, tops, offsets;
  for (const DrawnToken& token : drawn) {
    const std::string text = tokenizer.Piece(token.token, true);
    report::Record top;
    for (const runtime::TokenProbability& other : token.top) {
      std::string name = tokenizer.Piece(other.token, true);
      if (top.Find(name) == nullptr) top.Add(std::move(name), Shown(other.log_probability));
    }
    tokens.emplace_back(text);
    logprobs.emplace_back(Shown(token.log_probability));
    tops.emplace_back(std::move(top));
    offsets.emplace_back(offset);
    offset += CountCharacters(text);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

report::List NativeLogprobs(const tokenizer::Tokenizer& tokenizer,
                            std::span<const DrawnToken> drawn) {
  return Entries(tokenizer, drawn, true);
}

}  // namespace winnow::server
