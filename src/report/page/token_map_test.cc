#include "report/page/token_map.h"

#include <gtest/gtest.h>

#include "report/page/page.h"
#include "report/page/token_map_html.h"

namespace winnow::report {
namespace {

TokenMap Small() {
  return {.name = "map",
          .title = "What stays",
          .caption = "Two layers of one head.",
          .tokens = {"One", " <b>two", "\n", "\xFF"},
          .views = {{.name = "ems", .states = {{"kkme"}, {"kmme"}}}}};
}

TEST(TokenMap, StatesAsRuns) {
  EXPECT_EQ(RunLengths(""), "");
  EXPECT_EQ(RunLengths("kkkee"), "3k2e");
  EXPECT_EQ(RunLengths("kmk"), "1k1m1k");
}

TEST(TokenMap, SharesOverLayersAndHeads) {
  const TokenMap::View view = {.name = "", .states = {{"kke", "kme"}, {"kee", "kee"}}};
  const std::vector<TokenShares> shares = CountTokenShares(view, 3);
  EXPECT_EQ(shares[0].kept, 1);
  EXPECT_EQ(shares[1].kept, 0.25);
  EXPECT_EQ(shares[1].merged, 0.25);
  EXPECT_EQ(shares[2].kept, 0);
}

TEST(TokenMap, TokensAreShownAsTheyAre) {
  const std::string html = TokenMapHtml(Small());
  EXPECT_NE(html.find("<i class=\"k4\">One</i><i class=\"k2\"> &lt;b&gt;two</i>"
                      "<i class=\"m\">↵\n</i><i class=\"k0\">\xEF\xBF\xBD</i>"),
            std::string::npos)
      << html;
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_NE(html.find("only merged into others"), std::string::npos);
  EXPECT_NE(html.find(">ems, all layers, all KV heads</div>"), std::string::npos);
  EXPECT_NE(html.find(R"([{"name":"ems","states":[["2k1m1e"],["1k2m1e"]]}])"), std::string::npos);
}

// Kept takes precedence, so that methods that merge evicted entries can be compared with methods
// that do not.
TEST(TokenMap, KeptIsShownBeforeMerged) {
  TokenMap map = Small();
  map.tokens = {"a", "b"};
  map.views[0].states = {{"ke"}, {"mm"}, {"mm"}, {"mm"}};
  EXPECT_NE(TokenMapHtml(map).find("<i class=\"k1\">a</i><i class=\"m\">b</i>"), std::string::npos)
      << TokenMapHtml(map);
}

TEST(TokenMap, LineEndsOfWindowsAreShown) {
  TokenMap map = Small();
  map.tokens = {"a\r\n", "b", "\r", "\n"};
  const std::string html = TokenMapHtml(map);
  EXPECT_NE(html.find(">a␍↵\n</i>"), std::string::npos) << html;
  EXPECT_NE(html.find(">␍</i>"), std::string::npos) << html;
  const std::string svg = ToSvg(map);
  EXPECT_NE(svg.find(">a␍↵</text>"), std::string::npos) << svg;
  EXPECT_EQ((html + svg).find("\xEF\xBF\xBD"), std::string::npos) << "nothing is unknown here";
}

TEST(TokenMap, PageContainsEvictionSteps) {
  TokenMap map = Small();
  EXPECT_EQ(TokenMapHtml(map).find("data-prompt"), std::string::npos);
  map.views[0].evicted_at = {{{TokenMap::kStays, TokenMap::kStays, 4, 3}}, {{-1, 4, 4, 0}}};
  map.n_prompt = 3;
  const std::string html = TokenMapHtml(map);
  EXPECT_NE(html.find(" data-prompt=\"3\">"), std::string::npos);
  EXPECT_NE(html.find(R"("evicted_at":[[[-1,-1,4,3]],[[-1,4,4,0]]])"), std::string::npos) << html;
}

TEST(TokenMap, LegendOmitsMergedIfNothingWasMerged) {
  TokenMap map = Small();
  map.views[0].states = {{"kkee"}, {"kkee"}};
  EXPECT_EQ(TokenMapHtml(map).find("merged into"), std::string::npos);
  EXPECT_EQ(ToSvg(map).find("merged into"), std::string::npos);
}

TEST(TokenMap, SvgBreaksLinesAtLineFeedsAndMargins) {
  TokenMap map = Small();
  map.tokens = {std::string(60, 'a'), std::string(60, 'b'), "c\nd", "e"};
  const std::string svg = ToSvg(map);
  EXPECT_NE(svg.find("<text x=\"0\" y=\"33\""), std::string::npos) << svg;  // b: below a
  EXPECT_NE(svg.find(">c↵</text>"), std::string::npos);
  EXPECT_NE(svg.find("<text x=\"0\" y=\"52\" textLength=\"7.25\" lengthAdjust=\"spacingAndGlyphs\" "
                     "class=\"m\">d</text>"),
            std::string::npos);
}

TEST(TokenMap, RowsForFiles) {
  const std::vector<Record> rows = DataRecords(Small());
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(ToJson(rows[1]), R"({"position":1,"token":" <b>two","ems kept":0.5,"ems merged":0.5})");
}

}  // namespace
}  // namespace winnow::report
