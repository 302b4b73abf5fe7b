#include "eval/tasks/recall_documents.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "base/check.h"
#include "eval/tasks/builtin_text.h"
#include "eval/tasks/haystack.h"

namespace winnow::eval {
namespace {

using tokenizer::Tokenizer;

constexpr std::string_view kAdjectives[] = {"red",    "black",   "white",  "blue",   "green",
                                            "old",    "great",   "small",  "golden", "silver",
                                            "wooden", "empty",   "heavy",  "quiet",  "wild",
                                            "hidden", "ancient", "copper", "narrow", "painted"};
constexpr std::string_view kNouns[] = {"lantern", "table",  "bell",   "clock",  "bottle",  "candle",
                                       "basket",  "mirror", "carpet", "ladder", "hammer",  "wagon",
                                       "saddle",  "kettle", "violin", "drum",   "compass", "anchor",
                                       "box",     "ring",   "sword",  "coat",   "boat",    "chair"};
constexpr std::string_view kFirstNames[] = {"Anna",  "Boris", "Clara", "Daniel", "Edith", "Felix",
                                            "Grace", "Henry", "Ida",   "Jacob",  "Laura", "Martin",
                                            "Nora",  "Oscar", "Paula", "Rosa",   "Simon", "Vera"};
constexpr std::string_view kLastNames[] = {"Adler",  "Brook",  "Carter", "Dawson", "Ellis",
                                           "Foster", "Grant",  "Hardy",  "Jordan", "Keller",
                                           "Mason",  "Norton", "Parker", "Stone",  "Turner",
                                           "Wagner", "Baker",  "Fisher", "Marsh",  "Winter"};
constexpr std::string_view kWords[] = {
    "apple",  "thunder", "marble", "forest",  "copper", "ribbon", "harvest", "shadow", "button",
    "pepper", "silence", "needle", "feather", "lemon",  "tiger",  "planet",  "pocket", "meadow",
    "dragon", "castle",  "velvet", "pillow",  "rocket", "ticket", "walnut",  "magnet", "pencil",
    "orchid", "jacket",  "kettle", "market",  "oyster", "quarry", "salmon",  "timber", "valley"};
constexpr std::string_view kPlaces[] = {
    "London", "Paris",  "Vienna", "Berlin", "Rome",   "Madrid", "Athens", "Cairo",  "Boston",
    "Lisbon", "Dublin", "Prague", "Warsaw", "Geneva", "Naples", "Oxford", "Venice", "Hamburg"};

enum class ValueKind { kNumber, kWord, kPlace };
struct Attribute {
  std::string_view name;
  ValueKind kind;
};
constexpr Attribute kAttributes[] = {
    {"secret code", ValueKind::kNumber},   {"password", ValueKind::kWord},
    {"locker number", ValueKind::kNumber}, {"home town", ValueKind::kPlace},
    {"nickname", ValueKind::kWord},        {"destination", ValueKind::kPlace},
    {"price", ValueKind::kNumber},         {"lucky word", ValueKind::kWord},
    {"room number", ValueKind::kNumber},   {"magic number", ValueKind::kNumber}};

struct Category {
  std::string_view words[10];
};
constexpr Category kCategories[] = {
    {{"dog", "cat", "horse", "cow", "sheep", "pig", "goat", "lion", "wolf", "fox"}},
    {{"bread", "cheese", "butter", "meat", "soup", "cake", "rice", "egg", "honey", "pie"}},
    {{"hand", "foot", "head", "arm", "leg", "eye", "ear", "nose", "mouth", "knee"}},
    {{"hat", "shirt", "dress", "boot", "glove", "shoe", "cap", "cloak", "apron", "belt"}},
    {{"sea", "river", "lake", "ocean", "stream", "pond", "rain", "wave", "flood", "brook"}}};

constexpr std::string_view kAcknowledgements[] = {"Noted.", "All right.", "I will remember that.",
                                                  "Thank you."};
constexpr std::string_view kReading[] = {
    "Read this: ", "Here is a passage: ", "Another part of the story: ", "It goes on like this: "};

template <class T, size_t n>
const T& Draw(Rng& rng, const T (&items)[n]) {
  return items[rng.Below(n)];
}

std::string Thing(Rng& rng) {
  return "the " + std::string(Draw(rng, kAdjectives)) + " " + std::string(Draw(rng, kNouns));
}
std::string Person(Rng& rng) {
  return std::string(Draw(rng, kFirstNames)) + " " + std::string(Draw(rng, kLastNames));
}
std::string Number(Rng& rng) { return std::to_string(1000 + rng.Below(90000)); }

std::string DrawValue(const Attribute& attribute, Rng& rng) {
  switch (attribute.kind) {
    case ValueKind::kNumber:
      return Number(rng);
    case ValueKind::kWord:
      return std::string(Draw(rng, kWords));
    case ValueKind::kPlace:
      return std::string(Draw(rng, kPlaces));
  }
  return "";
}

// Calls `make` until its result is not in `seen`, and adds it there.
template <class Make>
std::string New(std::set<std::string>& seen, const Make& make) {
  for (;;) {
    std::string text = make();
    if (seen.insert(text).second) return text;
  }
}

int64_t CountTokens(const Tokenizer& tokenizer, std::string_view text) {
  return static_cast<int64_t>(
      tokenizer.Encode(text, {.add_special = false, .parse_special = false}).size());
}

double AnyDepth(Rng& rng) { return 100 * rng.Uniform(); }

// Prose with the needles inserted, n_tokens in all.
std::string Hide(std::vector<Needle> needles, int64_t n_tokens, const Tokenizer& tokenizer,
                 Rng& rng) {
  int64_t n_needles = 0;
  for (const Needle& needle : needles) n_needles += CountTokens(tokenizer, needle.text) + 1;
  constexpr size_t kBytesPerToken = 8;  // more than any tokenizer needs
  const int64_t n_hay = std::max<int64_t>(0, n_tokens - n_needles);
  const Haystack hay(tokenizer, FakeProse(rng, static_cast<size_t>(n_hay) * kBytesPerToken + 64));
  return hay.Build(n_hay, 0, needles);
}

RecallDocument NeedleDocument(int64_t n_tokens, double depth, const Tokenizer& tokenizer,
                              Rng& rng) {
  constexpr int kFacts = 4;
  RecallDocument made;
  std::set<std::string> owners;
  std::vector<Needle> needles;
  for (int i = 0; i < kFacts; ++i) {
    const Attribute& attribute = Draw(rng, kAttributes);
    const std::string of =
        New(owners, [&] { return rng.Below(2) == 0 ? Thing(rng) : Person(rng); });
    const std::string key = std::string(attribute.name) + " of " + of;
    const std::string value = DrawValue(attribute, rng);
    needles.push_back({"The " + key + " is " + value + ".", i == 0 ? depth : AnyDepth(rng)});
    if (i > 0) continue;
    made.question = "What is the " + key + "?";
    made.answer = value;
  }
  made.document = Hide(std::move(needles), n_tokens, tokenizer, rng);
  return made;
}

RecallDocument TwoHopDocument(int64_t n_tokens, double depth, const Tokenizer& tokenizer,
                              Rng& rng) {
  constexpr int kChains = 3;
  RecallDocument made;
  std::set<std::string> people, things;
  std::vector<Needle> needles;
  const Attribute& attribute = Draw(rng, kAttributes);
  for (int i = 0; i < kChains; ++i) {
    const std::string person = New(people, [&] { return Person(rng); });
    const std::string thing = New(things, [&] { return Thing(rng); });
    const std::string value = DrawValue(attribute, rng);
    const std::string name(attribute.name);
    needles.push_back({person + " owns " + thing + ".", AnyDepth(rng)});
    needles.push_back(
        {"The " + name + " of " + thing + " is " + value + ".", i == 0 ? depth : AnyDepth(rng)});
    if (i > 0) continue;
    made.question =
        "What is the " + name + " of the thing that " + person + " owns? Name it first.";
    made.answer = value;
  }
  made.document = Hide(std::move(needles), n_tokens, tokenizer, rng);
  return made;
}

// Pairs as lines until the length is reached, at most 60; prose before them fills the rest.
RecallDocument KeyValueDocument(int64_t n_tokens, double depth, const Tokenizer& tokenizer,
                                Rng& rng) {
  constexpr size_t kMaxPairs = 60;
  std::set<std::string> keys;
  std::vector<std::pair<std::string, std::string>> pairs;
  int64_t n_listed = 0;
  while (pairs.size() < kMaxPairs && (n_listed < n_tokens || pairs.size() < 2)) {
    const std::string key = New(keys, [&] {
      return std::string(Draw(rng, kNouns)) + "-" + std::to_string(1 + rng.Below(999));
    });
    const std::string value = rng.Below(2) == 0 ? Number(rng) : std::string(Draw(rng, kWords));
    n_listed += CountTokens(tokenizer, key + ": " + value + "\n");
    pairs.emplace_back(key, value);
  }
  const size_t asked = std::min(
      pairs.size() - 1, static_cast<size_t>(depth / 100 * static_cast<double>(pairs.size())));
  RecallDocument made;
  made.question = "What is the value of " + pairs[asked].first + "?";
  made.answer = pairs[asked].second;
  if (n_listed < n_tokens) made.document = Hide({}, n_tokens - n_listed, tokenizer, rng) + "\n";
  for (const auto& [key, value] : pairs) made.document += key + ": " + value + "\n";
  made.document.pop_back();
  return made;
}

// Words with labels. The word of the last line was not listed, but others of its category were.
RecallDocument FewShotDocument(int64_t n_tokens, double depth, const Tokenizer& tokenizer,
                               Rng& rng) {
  constexpr size_t kKinds = 3;
  std::set<std::string> labels, kinds;
  std::vector<std::pair<std::string, std::string>> lines;  // word, label
  std::vector<std::pair<std::string, std::string>> asked;  // one of each kind
  for (size_t i = 0; i < kKinds; ++i) {
    size_t kind = 0;
    New(kinds, [&] {
      kind = rng.Below(std::size(kCategories));
      return std::to_string(kind);
    });
    const std::string label = New(labels, [&] { return std::string(Draw(rng, kWords)); });
    const size_t last = rng.Below(std::size(kCategories[kind].words));
    for (size_t k = 0; k < std::size(kCategories[kind].words); ++k) {
      (k == last ? asked : lines).emplace_back(std::string(kCategories[kind].words[k]), label);
    }
  }
  for (size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[rng.Below(i)]);
  // Ask for the category whose first example is nearest to `depth`.
  const auto first_of = [&](const std::string& label) {
    return static_cast<double>(
        std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.second == label; }) -
        lines.begin());
  };
  const double wanted = depth / 100 * static_cast<double>(lines.size());
  const auto& question = *std::min_element(asked.begin(), asked.end(), [&](auto& a, auto& b) {
    return std::abs(first_of(a.second) - wanted) < std::abs(first_of(b.second) - wanted);
  });
  RecallDocument made;
  made.answer = question.second;
  std::string text;
  for (const auto& [word, label] : lines) text += word + " -> " + label + "\n";
  text += question.first + " ->";
  const int64_t n_list = CountTokens(tokenizer, text);
  if (n_list < n_tokens) made.continued = Hide({}, n_tokens - n_list, tokenizer, rng) + "\n\n";
  made.continued += text;
  return made;
}

// A user states facts between passages of a story, and asks for one of them.
RecallDocument DialogueDocument(int64_t n_tokens, double depth, const Tokenizer& tokenizer,
                                Rng& rng) {
  constexpr int kFacts = 3;
  constexpr int64_t kPassage = 150, kRest = 100;  // tokens of a passage; of all other messages
  const int64_t n_passages = std::max<int64_t>(1, (n_tokens - kRest) / (kPassage + 16));
  RecallDocument made;
  std::set<std::string> used;
  // Each fact with the passage that it precedes; the first fact is asked for.
  std::vector<std::pair<int64_t, std::string>> facts;
  for (int i = 0; i < kFacts; ++i) {
    std::string name;
    const Attribute* attribute = nullptr;
    name = New(used, [&] {
      attribute = &Draw(rng, kAttributes);
      return std::string(attribute->name);
    });
    const std::string value = DrawValue(*attribute, rng);
    const double place = (i == 0 ? depth : AnyDepth(rng)) / 100;
    facts.emplace_back(
        std::min(n_passages, static_cast<int64_t>(place * static_cast<double>(n_passages + 1))),
        "My " + name + " is " + value + ".");
    if (i > 0) continue;
    made.question = "What is my " + name + "?";
    made.answer = value;
  }
  const auto say = [&](std::string text) {
    made.messages.push_back({"user", std::move(text)});
    made.messages.push_back({"assistant", std::string(Draw(rng, kAcknowledgements))});
  };
  const Haystack hay(tokenizer, FakeProse(rng, static_cast<size_t>(n_passages + 1) * 1600));
  for (int64_t i = 0; i <= n_passages; ++i) {
    for (const auto& [before, fact] : facts) {
      if (before == i) say(fact);
    }
    if (i == n_passages) break;
    const size_t start = rng.Below(hay.n_sentences());
    say(std::string(Draw(rng, kReading)) + hay.Build(kPassage, start, {}));
  }
  made.messages.push_back({"user", made.question});
  return made;
}

}  // namespace

RecallDocument MakeRecallDocument(RecallKind kind, int64_t n_tokens, double depth,
                                  const Tokenizer& tokenizer, Rng& rng) {
  if (depth < 0) depth = AnyDepth(rng);
  switch (kind) {
    case RecallKind::kNeedle:
      return NeedleDocument(n_tokens, depth, tokenizer, rng);
    case RecallKind::kKeyValue:
      return KeyValueDocument(n_tokens, depth, tokenizer, rng);
    case RecallKind::kTwoHop:
      return TwoHopDocument(n_tokens, depth, tokenizer, rng);
    case RecallKind::kFewShot:
      return FewShotDocument(n_tokens, depth, tokenizer, rng);
    case RecallKind::kDialogue:
      return DialogueDocument(n_tokens, depth, tokenizer, rng);
  }
  WINNOW_CHECK(false);
  return {};
}

}  // namespace winnow::eval
