#include "server/openai/probabilities.h"

#include <algorithm>
#include <utility>

namespace winnow::server {
namespace {

constexpr double kImpossible = -9999;

double Shown(float log_probability) {
  return std::max(static_cast<double>(log_probability), kImpossible);  // kImpossible for NaN too
}

report::List ByteList(const std::string& text) {
  report::List bytes;
  bytes.reserve(text.size());
  for (const char c : text) bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return bytes;
}

// The fields common to chat and llama-server, which also has the id.
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

report::Record EntryWithTop(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token,
                            bool with_id) {
  report::Record entry = Entry(tokenizer, token.token, token.log_probability, with_id);
  report::List top;
  for (const runtime::TokenProbability& other : token.top) {
    top.emplace_back(Entry(tokenizer, other.token, other.log_probability, with_id));
  }
  entry.Add("top_logprobs", std::move(top));
  return entry;
}

}  // namespace

report::Record ChatProbability(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token) {
  return EntryWithTop(tokenizer, token, /*with_id=*/false);
}

report::Record NativeProbability(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token) {
  return EntryWithTop(tokenizer, token, /*with_id=*/true);
}

std::array<report::Value, kTextProbabilities.size()> TextProbability(
    const tokenizer::Tokenizer& tokenizer, const DrawnToken& token, int64_t offset) {
  report::Record top;
  for (const runtime::TokenProbability& other : token.top) {
    std::string name = tokenizer.Piece(other.token, /*render_special=*/true);
    if (top.Find(name) == nullptr) top.Add(std::move(name), Shown(other.log_probability));
  }
  return {tokenizer.Piece(token.token, /*render_special=*/true), Shown(token.log_probability),
          std::move(top), offset};
}

int64_t CountCharacters(const tokenizer::Tokenizer& tokenizer, runtime::TokenId token) {
  const std::string text = tokenizer.Piece(token, /*render_special=*/true);
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

void AppendItem(std::string& list, std::string_view json) {
  list += list.empty() ? '[' : ',';
  list += json;
}

std::string ListFrom(std::string_view items) {
  return items.empty() ? "[]" : std::string(items) + "]";
}

void AppendField(std::string& object, std::string_view name, std::string_view json) {
  object.back() = ',';
  object.append("\"").append(name).append("\":").append(json).append("}");
}

}  // namespace winnow::server
