#include "eval/tasks/builtin_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

namespace winnow::eval {
namespace {

constexpr size_t kBuiltinBytes = size_t{256} << 10;
constexpr uint64_t kBuiltinSeed = 1;

using Words = std::span<const std::string_view>;

// Placeholders: {p} and {q} are two people of the paragraph, {o} is another person, {l} the place;
// {t}, {g}, {w}, {m} and {n} are drawn again each time.
constexpr std::string_view kPeople[] = {
    "the miller",         "Mrs. Fenwick",  "the old sexton",  "Jonas Pell",
    "the schoolmaster",   "Hester Rowe",   "the ferryman",    "young Tobias",
    "the baker's wife",   "Captain Dorne", "the apothecary",  "Miss Alder",
    "the night watchman", "Silas Gorham",  "the postmaster",  "little Nell",
    "the clockmaker",     "Widow Harrow",  "the constable",   "Ambrose Lyle",
    "the carpenter",      "Judith Crane",  "the lamplighter", "Peter Vole",
    "the innkeeper",      "Lydia Marrow",  "the fiddler",     "Old Ferris"};
constexpr std::string_view kPlaces[] = {
    "the mill",       "the lower bridge", "the market square", "the ferry landing", "the inn",
    "the north road", "the orchard",      "the schoolhouse",   "the churchyard",    "the quarry",
    "the long barn",  "the weir",         "the town hall",     "the smithy",        "the heath"};
constexpr std::string_view kThings[] = {
    "a basket of eggs",  "a coil of rope",     "two sacks of flour", "a broken wheel",
    "a lame pony",       "a bundle of reeds",  "an iron kettle",     "a pair of boots",
    "a jar of honey",    "a ladder",           "a load of hay",      "a crate of plums",
    "a length of cloth", "a stone of wool",    "an oak plank",       "a torn sail",
    "a tin of varnish",  "a map of the marsh", "a bag of nails",     "a smoked ham"};
constexpr std::string_view kGoods[] = {"wool",    "salt",  "timber", "barley", "cider",  "cheese",
                                       "leather", "honey", "coal",   "linen",  "apples", "hops"};
constexpr std::string_view kWeather[] = {
    "The rain had stopped in the night", "A thin fog lay over the fields",
    "The wind came from the east",       "It was warm for the time of year",
    "Frost stood on the windows",        "The sky was the colour of slate",
    "The sun came out towards noon",     "Snow had fallen since the morning",
    "There was thunder far away",        "The river stood high"};
constexpr std::string_view kMoments[] = {"that evening",
                                         "the next morning",
                                         "before the bells rang",
                                         "after supper",
                                         "towards the end of the week",
                                         "at first light",
                                         "on market day",
                                         "in the afternoon",
                                         "when the lamps were lit",
                                         "a little later",
                                         "before anybody noticed",
                                         "in the meantime"};
constexpr std::string_view kNumbers[] = {"two",   "three", "four", "five",    "six",
                                         "seven", "eight", "nine", "a dozen", "twenty"};

constexpr std::string_view kOpenings[] = {
    "{w}, and {p} went down to {l} earlier than usual.",
    "{w}. Nobody had expected to see {p} at {l} so soon after the quarrel.",
    "{m} there was some talk about {p}, who had been seen at {l} with {t}.",
    "Of all the people who came to {l}, it was {p} who stayed the longest.",
    "The matter of {l} was not settled yet, and {p} knew it better than anybody.",
    "{w}, so that those who had business at {l} put it off until the next day.",
    "It began, as such things often begin, with {t} that {p} had left at {l}.",
    "For {n} days nothing had happened at {l}, and then everything happened at once.",
    "{p} had promised to bring {t} to {l}, and had forgotten it again.",
    "When {q} opened the gate of {l}, {p} was already waiting on the other side.",
    "There was a custom in the town that whoever came last to {l} had to carry the lantern.",
    "{p} did not like {l}, and made no secret of it."};
constexpr std::string_view kMiddles[] = {
    "{q} looked up from the table and said nothing at all.",
    "\"You may ask whom you please,\" said {p}, \"and you will hear the same from all of them.\"",
    "\"I have carried {t} all the way from {l},\" said {q}, \"and I shall not carry it back.\"",
    "{m} {q} counted the money once more and found {n} shillings too few.",
    "The price of {g} had gone up again, and {q} blamed the new road for it.",
    "{p} laughed, but it was not a merry laugh.",
    "Behind the door somebody was moving {t}, and did it as quietly as one can.",
    "They walked side by side as far as {l} and spoke of nothing but {g}.",
    "{o} had heard of it {m}, and told it to everyone who came in for a loaf of bread.",
    "\"If it were mine,\" said {q}, \"I would sell it before the winter and buy {g}.\"",
    "The dog lay down in front of the fire and did not take its eyes off {p}.",
    "There were {n} carts in the yard, and not one of them was loaded.",
    "{q} had once worked for {p}, and neither of them had forgotten why it came to an end.",
    "A boy ran past with {t} under his arm, and the geese scattered before him.",
    "In the kitchen the water boiled over, and for a moment nobody thought of {g}.",
    "{p} took the letter out of a coat pocket, unfolded it, and read it aloud once more.",
    "It was {q} who remembered that the key hung behind the picture of the old mayor.",
    "{m} the miller's cart came back empty, and that was taken as a bad sign.",
    "\"People forget,\" said {o}, \"that the bridge was built by those who could not swim.\"",
    "Nothing was said about {g}, though everybody was thinking of it.",
    "{q} drew a line with a stick in the dust, and on this side of it put {t}.",
    "The windows of the house stood open, and one could hear a fiddle that was out of tune.",
    "{o} came up the steps out of breath, sat down, and asked for a glass of cider.",
    "It took them the better part of an hour to agree on who should go first.",
    "{p} had a way of listening with closed eyes that made others talk more than they meant to.",
    "One of the shutters had come loose, and it beat against the wall all night long.",
    "{q} was of another opinion, and gave {n} reasons for it, of which the last was the best.",
    "The children had made a boat of bark and sent it down the stream towards {l}.",
    "\"There is no hurry,\" said {p}, who had never been in a hurry in all those years.",
    "{o} swore that the light in the tower had been seen again, and not by one man only.",
    "The cat had found the cream, and {q} pretended not to see it.",
    "On the wall hung a saw, a hammer, and a calendar of the year before.",
    "{p} wanted to know what the {g} would fetch in the city, but there was no one to ask.",
    "It was said that {q} had {n} brothers, and that none of them wrote letters.",
    "{m} they put {t} on the scales, and the scales broke."};
constexpr std::string_view kEndings[] = {
    "After that no more was said about it until the spring.",
    "{p} shook hands with {q}, and they parted as friends, or as something like it.",
    "And so {t} stayed where it was.",
    "In the end it was {o} who paid, and never asked for the money back.",
    "By the time the lamps were lit, {l} was empty again.",
    "{q} went home by the longer way.",
    "Those who were there tell it differently, but they all agree about the weather.",
    "The bell rang, and everybody went in to supper.",
    "{p} blew out the candle and sat for a while in the dark.",
    "Nobody found out who had done it, and nobody looked very hard.",
    "It rained before they reached the bridge."};

std::string_view Draw(Rng& rng, Words words) { return words[rng.Below(words.size())]; }

// Draws a word that is not yet in `in_use`, and adds it there.
std::string_view DrawNew(Rng& rng, Words words, std::vector<std::string_view>& in_use) {
  for (;;) {
    const std::string_view word = Draw(rng, words);
    if (std::find(in_use.begin(), in_use.end(), word) != in_use.end()) continue;
    in_use.push_back(word);
    return word;
  }
}

class Paragraph {
 public:
  explicit Paragraph(Rng& rng) : rng_(rng) {
    std::vector<std::string_view> people;
    for (std::string_view& person : people_) person = DrawNew(rng, kPeople, people);
    place_ = Draw(rng, kPlaces);
  }

  std::string Write() {
    std::vector<std::string_view> used;
    std::string text;
    Add(Draw(rng_, kOpenings), text);
    for (uint64_t left = 3 + rng_.Below(4); left > 0; --left) {
      Add(DrawNew(rng_, kMiddles, used), text);
    }
    Add(Draw(rng_, kEndings), text);
    return text;
  }

 private:
  void Add(std::string_view pattern, std::string& text) {
    if (!text.empty()) text += ' ';
    const size_t begin = text.size();
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '{') {
        text += pattern[i];
        continue;
      }
      text += DrawWord(pattern[i + 1]);
      i += 2;
    }
    // A sentence may begin with a word that was drawn, or with one in quotes.
    for (const size_t at : {begin, begin + 1}) {
      if (at >= text.size() || (at > begin && text[begin] != '"')) break;
      if (text[at] >= 'a' && text[at] <= 'z') text[at] = static_cast<char>(text[at] - 'a' + 'A');
    }
  }

  std::string_view DrawWord(char slot) {
    switch (slot) {
      case 'p':
        return people_[0];
      case 'q':
        return people_[1];
      case 'o':
        return people_[2];
      case 'l':
        return place_;
      case 't':
        return Draw(rng_, kThings);
      case 'g':
        return Draw(rng_, kGoods);
      case 'w':
        return Draw(rng_, kWeather);
      case 'm':
        return Draw(rng_, kMoments);
      default:
        return Draw(rng_, kNumbers);
    }
  }

  Rng& rng_;
  std::array<std::string_view, 3> people_;
  std::string_view place_;
};

}  // namespace

std::string FakeProse(Rng& rng, size_t n_bytes) {
  std::string text;
  while (text.size() < n_bytes) {
    if (!text.empty()) text += "\n\n";
    text += Paragraph(rng).Write();
  }
  return text + "\n";
}

const std::string& BuiltinText() {
  static const std::string text = [] {
    Rng rng(kBuiltinSeed);
    return FakeProse(rng, kBuiltinBytes);
  }();
  return text;
}

}  // namespace winnow::eval
