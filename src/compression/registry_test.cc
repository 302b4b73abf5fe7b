#include "compression/registry.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace winnow::compression {
namespace {

TEST(RegistryTest, EveryMethodIsMadeFromItsDefaultsWrittenOut) {
  ASSERT_FALSE(Methods().empty());
  std::set<std::string_view> names;
  for (const MethodEntry& entry : Methods()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is listed twice";
    EXPECT_FALSE(entry.summary.empty()) << entry.name;
    EXPECT_FALSE(entry.source.empty()) << entry.name;
    std::string spec(entry.name);
    char separator = ':';
    for (const Parameter& parameter : entry.parameters()) {
      EXPECT_FALSE(parameter.help.empty()) << entry.name << " " << parameter.name;
      spec += separator + parameter.name + "=" + parameter.default_value;
      separator = ',';
    }
    const auto method = MakeMethod(spec);
    ASSERT_TRUE(method) << spec << ": " << method.error().message;
    EXPECT_EQ((*method)->traits().spec, spec);
    // The name alone gives the same method.
    const auto plain = MakeMethod(entry.name);
    ASSERT_TRUE(plain) << plain.error().message;
    EXPECT_EQ((*plain)->needs(), (*method)->needs());
    EXPECT_EQ((*plain)->traits().spec, entry.name);
  }
}

TEST(RegistryTest, UnknownNamesGetTheNearest) {
  const auto method = MakeMethod("snapvk:window=3");
  ASSERT_FALSE(method);
  EXPECT_TRUE(method.error().message.starts_with(
      "no method 'snapvk'; did you mean snapkv?; known methods: "))
      << method.error().message;
  EXPECT_NE(method.error().message.find("streaming"), std::string::npos);
  const auto other = MakeMethod("zzzzzzzz");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message.find("did you mean"), std::string::npos);
}

TEST(RegistryTest, ParametersAreChecked) {
  EXPECT_EQ(MakeMethod("snapkv:window=0").error().message,
            "snapkv: window: found '0', expected an integer from 1 to 1048576");
  EXPECT_FALSE(MakeMethod("snapkv:widow=1"));
  EXPECT_FALSE(MakeMethod("snapkv:"));
}

// A cache compressed for one question serves others badly. This holds for methods that decide by
// the last rows of the prompt itself, not for those that decide by a replay.
TEST(RegistryTest, QueryDependentMethodsSaySo) {
  const auto chooses = [](const char* spec) {
    const MethodPtr method = MakeMethod(spec).value();
    return std::pair(method->needs_question(), method->query_dependent());
  };
  EXPECT_EQ(chooses("winnow:queries=window"), std::pair(true, true));
  EXPECT_EQ(chooses("winnow"), std::pair(false, false));
  EXPECT_EQ(chooses("snapkv"), std::pair(true, true));
  EXPECT_EQ(chooses("streaming"), std::pair(false, false));
}

}  // namespace
}  // namespace winnow::compression
