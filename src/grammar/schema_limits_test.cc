#include "grammar/schema_limits.h"

#include <gtest/gtest.h>

#include <string>

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;

std::string Problem(const Json& schema, SchemaSize& size) {
  const auto parsed = ParseSchema("the schema", schema.dump(), size);
  return parsed ? "none" : parsed.error().message;
}
std::string Problem(const Json& schema) {
  SchemaSize size;
  return Problem(schema, size);
}

Json Pattern(size_t n_bytes) {
  return {{"type", "string"}, {"pattern", std::string(n_bytes, 'a')}};
}

TEST(SchemaLimitsTest, ErrorsNameWhatIsTooLarge) {
  Json deep = {{"type", "null"}}, wide = Json::object(), counted = {{"maxProperties", 400}};
  for (int i = 0; i < 33; ++i) deep = {{"properties", {{"p", deep}}}};
  for (int i = 0; i < 1000; ++i) wide["enum"].push_back(i);
  counted["properties"] = {{"a", Json::object()}, {"b", Json::object()}};
  EXPECT_EQ(Problem(deep), "the schema has 65 levels, expected at most 64");
  EXPECT_EQ(Problem(wide), "the schema has 1001 or more values, expected at most 1000");
  EXPECT_EQ(Problem(Pattern(257)),
            "the schema has 257 or more bytes in patterns, expected at most 256");
  EXPECT_EQ(Problem({{"title", std::string(32768, 'x')}}),
            "the schema has 32780 bytes, expected at most 32768");
  EXPECT_EQ(
      Problem(counted),
      "the schema counts up to 400 properties among 5 values, expected a product of at most 1000");
  EXPECT_EQ(
      Problem({{"pattern", "(ab)*"}}),
      "the schema: pattern '(ab)*' repeats a group; only characters and classes can be repeated");
  EXPECT_EQ(
      Problem({{"patternProperties", {{"(a)+", Json::object()}}}}),
      "the schema: pattern '(a)+' repeats a group; only characters and classes can be repeated");
  EXPECT_EQ(Problem(Json::array()), "the schema is not a JSON object");
  EXPECT_EQ(Problem(Pattern(256)), "none");
}

// Sizes that each schema may have alone are too large together.
TEST(SchemaLimitsTest, SchemasCountTogether) {
  SchemaSize patterns;
  EXPECT_EQ(Problem(Pattern(200), patterns), "none");
  EXPECT_EQ(
      Problem(Pattern(57), patterns),
      "the schema, with the 1 before, has 257 or more bytes in patterns, expected at most 256");
  SchemaSize bytes;
  const Json long_one = {{"title", std::string(12000, 'x')}};
  EXPECT_EQ(Problem(long_one, bytes), "none");
  EXPECT_EQ(Problem(long_one, bytes), "none");
  EXPECT_EQ(Problem(long_one, bytes),
            "the schema, with the 2 before, has 36036 bytes, expected at most 32768");
  Json wide = Json::object();
  for (int i = 0; i < 600; ++i) wide["enum"].push_back(i);
  SchemaSize values;
  EXPECT_EQ(Problem(wide, values), "none");
  EXPECT_EQ(Problem(wide, values),
            "the schema, with the 1 before, has 1001 or more values, expected at most 1000");
  // A count in one schema and values in another, in either order.
  SchemaSize counted, count_last;
  EXPECT_EQ(Problem({{"minProperties", 2}}, counted), "none");
  EXPECT_NE(Problem(wide, counted).find("counts up to 2 properties among 604 values"),
            std::string::npos);
  EXPECT_EQ(Problem(wide, count_last), "none");
  EXPECT_NE(Problem({{"minProperties", 2}}, count_last).find("among 604 values"),
            std::string::npos);
}

}  // namespace
}  // namespace winnow::grammar
