#include "tokenizer/merge_chunks.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "base/rng.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::tokenizer {
namespace {

// Random merges: arbitrary pairs of symbols, with priorities that may be equal.
struct Rules {
  std::map<std::pair<int32_t, int32_t>, Merge> merges;

  std::optional<Merge> operator()(const Symbol& left, const Symbol& right) const {
    const auto found = merges.find({left.id, right.id});
    return found == merges.end() ? std::nullopt : std::optional(found->second);
  }
};

Rules RandomRules(int n_letters, int n_merges, Rng& rng) {
  Rules rules;
  int32_t n_ids = n_letters;
  for (int i = 0; i < n_merges; ++i) {
    const auto pick = [&] {
      return static_cast<int32_t>(rng.Next() % static_cast<uint64_t>(n_ids));
    };
    // Includes symbols that are merged before their own parts.
    const auto priority = static_cast<uint32_t>(rng.Next() % static_cast<uint64_t>(n_merges));
    const bool known = rng.Next() % 4 == 0;
    const Merge merge = {.priority = priority, .id = known ? pick() : n_ids};
    if (rules.merges.emplace(std::pair{pick(), pick()}, merge).second && !known) ++n_ids;
  }
  return rules;
}

using Parts = std::vector<std::tuple<uint32_t, uint32_t, int32_t>>;  // begin, length, id

Parts Merged(const std::string& text, const Rules& rules, const ChunkSize& chunk) {
  const auto make = [&](size_t begin, size_t end, std::vector<Symbol>& symbols) {
    for (size_t i = begin; i < end; ++i) {
      const auto place = static_cast<int32_t>(i - begin);
      symbols.push_back({.begin = static_cast<uint32_t>(i),
                         .length = 1,
                         .previous = place - 1,
                         .next = i + 1 < end ? place + 1 : -1,
                         .id = text[i] - 'a'});
    }
  };
  Parts parts;
  const auto emit = [&](const Symbol& symbol) {
    parts.emplace_back(symbol.begin, symbol.length, symbol.id);
  };
  MergeInChunks(text.size(), chunk, make, rules, emit, parts);
  return parts;
}

TEST(MergeInChunksTest, IsTheMergingOfTheWhole) {
  Rng rng(7);
  int n_cut = 0;
  for (int round = 0; round < 4000; ++round) {
    const int n_letters = 1 + static_cast<int>(rng.Next() % 4);
    const Rules rules = RandomRules(n_letters, 1 + static_cast<int>(rng.Next() % 12), rng);
    std::string text;
    const size_t n = 1 + rng.Next() % 50;
    for (size_t i = 0; i < n; ++i) {
      text += static_cast<char>('a' + rng.Next() % static_cast<uint64_t>(n_letters));
    }
    const ChunkSize chunk = {.bytes = 1 + rng.Next() % 9, .margin = rng.Next() % 5};
    const Parts whole = Merged(text, rules, {.bytes = n, .margin = 0});
    ASSERT_EQ(Merged(text, rules, chunk), whole) << round << ": " << text;
    n_cut += whole.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(n_cut, 2000);
}

// Tokens of 1, 2, 4 ... 64 letters: where a chunk may end depends on where the text began.
TEST(MergeInChunksTest, RunsOfOneLetterAreCutWhereTheWholeIs) {
  Rules rules;
  for (int32_t id = 0; id < 6; ++id) {
    rules.merges[{id, id}] = {.priority = static_cast<uint32_t>(id), .id = id + 1};
  }
  for (const size_t n : {size_t{1000}, size_t{1023}, size_t{1025}}) {
    const std::string text(n, 'a');
    const Parts whole = Merged(text, rules, {.bytes = n, .margin = 0});
    for (size_t bytes = 60; bytes < 260; bytes += 7) {
      EXPECT_EQ(Merged(text, rules, {.bytes = bytes, .margin = 70}), whole) << n << ", " << bytes;
    }
  }
}

// A word longer than a chunk, through the whole tokenizers.
TEST(MergeInChunksTest, ALongWordIsItsTokens) {
  std::string text;
  for (int i = 0; i < 80000; ++i) text += "hello";
  for (const Vocabulary& vocabulary : {testing::SmallBytePairs(), testing::SmallSentencePiece()}) {
    const auto tokenizer = testing::Make(vocabulary);
    const std::vector<TokenId> tokens = tokenizer->Encode(text, {.add_special = false});
    EXPECT_EQ(tokens.size(), 80000u);
    EXPECT_EQ(tokens.back(), *tokenizer->Find("hello"));
    EXPECT_EQ(tokenizer->Decode(tokens), text);
  }
}

}  // namespace
}  // namespace winnow::tokenizer
