#include "eval/run/configuration.h"

#include <gtest/gtest.h>

#include "compression/registry.h"

namespace winnow::eval {
namespace {

TEST(Configuration, NamesWhatWasNotGiven) {
  const std::string all = NormalizeConfiguration("streaming:sinks=2");
  EXPECT_EQ(NormalizeConfiguration(all), all);
  EXPECT_NE(all.find("sinks=2"), std::string::npos);
  EXPECT_EQ(NormalizeConfiguration("full"), "full");
  EXPECT_EQ(NormalizeConfiguration("streaming:sinks=2, then streaming"),
            all + ", then " + NormalizeConfiguration("streaming"));
}

TEST(Configuration, OfEveryMethodHasAllParametersAndIsASpec) {
  for (const compression::MethodEntry& entry : compression::Methods()) {
    const std::string all = NormalizeConfiguration(entry.name);
    EXPECT_TRUE(compression::MakeMethod(all)) << all;
    for (const compression::Parameter& parameter : entry.parameters()) {
      EXPECT_NE(all.find(parameter.name + "=" + parameter.default_value), std::string::npos) << all;
    }
  }
}

}  // namespace
}  // namespace winnow::eval
