#include "flags.h"

#include <gtest/gtest.h>

#include <cmath>

namespace winnow::apps {
namespace {

struct Options {
  std::string name = "none";
  std::optional<std::string> text;
  int count = 3;
  int64_t large = 0;
  double share = 0.5;
  std::vector<std::string> stops;
  bool colour = true;
  bool fast = false;
};

FlagTable Table(Options& o) {
  FlagTable table("paint", "[flags]", "Paints.");
  table.Add({"-n", "--name"}, "NAME", "a name", &o.name);
  table.Add({"-ctk"}, "TYPE", "a text", &o.text);
  table.Add({"-c", "--count"}, "N", "a count", &o.count);
  table.Add({"--large"}, "N", "a large count", &o.large);
  table.Group("Shares");
  table.Add({"--share"}, "X", "a share", &o.share);
  table.Add({"-r"}, "TEXT", "stops", &o.stops);
  table.Switch({"--no-colour"}, "no colour", &o.colour, false);
  Flag fast{{"-fa", "--fast"}, "", "fast", "", {"on", "off"}, false, {}};
  fast.set = [&o](std::string_view value) {
    o.fast = value != "off";
    return Result<void>();
  };
  table.Add(fast);
  return table;
}

std::string ErrorText(const std::vector<std::string>& arguments) {
  Options o;
  const auto parsed = Table(o).Parse(arguments);
  return parsed ? "" : parsed.error().message;
}

TEST(FlagTable, SetsWhatIsGiven) {
  Options o;
  const std::vector<std::string> arguments = {
      "--name", "-x", "-ctk", "f16", "--count=-7", "--large",     "5000000000", "--share",
      "1e-3",   "-r", "a",    "-r",  "b",          "--no-colour", "file",       "-"};
  const auto rest = Table(o).Parse(arguments);
  ASSERT_TRUE(rest.has_value()) << rest.error().message;
  EXPECT_EQ(o.name, "-x");
  EXPECT_EQ(o.text, "f16");
  EXPECT_EQ(o.count, -7);
  EXPECT_EQ(o.large, 5000000000);
  EXPECT_EQ(o.share, 1e-3);
  EXPECT_EQ(o.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(o.colour);
  EXPECT_EQ(*rest, (std::vector<std::string>{"file", "-"}));
}

TEST(FlagTable, OptionalValuesAreTakenOnlyIfTheyAreOne) {
  Options o;
  EXPECT_EQ(Table(o).Parse(std::vector<std::string>{"-fa", "off"})->size(), 0u);
  EXPECT_FALSE(o.fast);
  EXPECT_EQ(Table(o).Parse(std::vector<std::string>{"-fa", "file"})->size(), 1u);
  EXPECT_TRUE(o.fast);
}

TEST(FlagTable, OptionalValuesBehindAnEqualsSign) {
  Options o;
  EXPECT_TRUE(Table(o).Parse(std::vector<std::string>{"--fast=on"}));
  EXPECT_TRUE(o.fast);
  EXPECT_TRUE(Table(o).Parse(std::vector<std::string>{"--fast=off"}));
  EXPECT_FALSE(o.fast);
  EXPECT_EQ(ErrorText({"--fast=file"}), "flag --fast: found 'file', expected on, off");
}

TEST(FlagTable, KnowsWhatWasGiven) {
  Options o;
  FlagTable table = Table(o);
  EXPECT_TRUE(table.Parse(std::vector<std::string>{"--count", "0", "-fa"}));
  EXPECT_TRUE(table.Given("-c"));  // under another name, and although it was set to the default
  EXPECT_TRUE(table.Given("--fast"));
  EXPECT_FALSE(table.Given("-n"));
}

TEST(FlagTable, AfterTwoDashesNothingIsAFlag) {
  Options o;
  EXPECT_EQ(*Table(o).Parse(std::vector<std::string>{"--", "-n", "--"}),
            (std::vector<std::string>{"-n", "--"}));
}

TEST(FlagTable, ErrorsSayWhatAndWhere) {
  EXPECT_EQ(ErrorText({"--nmae", "x"}), "unknown flag --nmae; did you mean --name?");
  EXPECT_EQ(ErrorText({"--completely-else"}), "unknown flag --completely-else");
  EXPECT_EQ(ErrorText({"-n"}), "flag -n needs a value: NAME");
  EXPECT_EQ(ErrorText({"-c", "1.5"}), "flag -c: expected a whole number, got '1.5'");
  EXPECT_EQ(ErrorText({"-c", "5000000000"}), "flag -c: '5000000000' is out of range");
  EXPECT_EQ(ErrorText({"--share", "half"}), "flag --share: expected a number, got 'half'");
  EXPECT_EQ(ErrorText({"--no-colour=1"}), "flag --no-colour takes no value");
}

TEST(FlagTable, HelpShowsGroupsAndDefaults) {
  Options o;
  o.count = 8;
  EXPECT_EQ(Table(o).Help(),
            "winnow paint [flags]\n\n"
            "Paints.\n\n"
            "Flags:\n"
            "  -n, --name NAME                 a name [none]\n"
            "  -ctk TYPE                       a text\n"
            "  -c, --count N                   a count [8]\n"
            "  --large N                       a large count [0]\n\n"
            "Shares:\n"
            "  --share X                       a share [0.5]\n"
            "  -r TEXT                         stops\n"
            "  --no-colour                     no colour\n"
            "  -fa, --fast                     fast\n");
  FlagTable table = Table(o);
  ASSERT_TRUE(table.Parse(std::vector<std::string>{"--help", "--nonsense"}).has_value());
  EXPECT_TRUE(table.help_wanted());
}

TEST(ParseDecimal, NothingBeforeOrAfter) {
  EXPECT_EQ(*ParseDecimal("-inf"), -HUGE_VAL);
  for (const char* text : {"", "nan", "1,5", "1.0f"}) {
    EXPECT_FALSE(ParseDecimal(text).has_value()) << text;
  }
}

TEST(Help, ListsAGroupOnce) {
  bool a = false, b = false, c = false;
  FlagTable table("test", "", "");
  table.Group("KV cache");
  table.Switch({"--first"}, "one", &a);
  table.Group("Output");
  table.Switch({"--second"}, "two", &b);
  table.Group("KV cache");
  table.Switch({"--third"}, "three", &c);
  const std::string help = table.Help();
  const size_t at = help.find("KV cache");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(help.find("KV cache", at + 1), std::string::npos);
  EXPECT_LT(help.find("--third"), help.find("--second"));
}

}  // namespace
}  // namespace winnow::apps
