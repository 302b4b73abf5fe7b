#include "report/page/svg.h"

#include <gtest/gtest.h>

namespace winnow::report {
namespace {

TEST(Svg, MarkupBecomesText) {
  EXPECT_EQ(Escaped("<script>alert('x')</script>"),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
  EXPECT_EQ(Escaped("\" onload=\"x & y"), "&quot; onload=&quot;x &amp; y");
  EXPECT_EQ(Escaped("größer → 文"), "größer → 文");
  EXPECT_EQ(Escaped("a\n\tb"), "a\n\tb");
}

TEST(Svg, BytesThatAreNoTextBecomeTheReplacementCharacter) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(Escaped("a\x80z"), "a" + r + "z");            // a lone continuation byte
  EXPECT_EQ(Escaped("\xC3"), r);                          // truncated
  EXPECT_EQ(Escaped("\xC3<"), r + "&lt;");                // the next character survives
  EXPECT_EQ(Escaped("\xC0\xBC"), r + r);                  // an overlong '<'
  EXPECT_EQ(Escaped("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(Escaped("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(Escaped("\xEF\xBF\xBF"), r + r + r);          // not allowed in XML
  EXPECT_EQ(Escaped(std::string("\0\x1B\x7F", 3)), r + r + r);
}

TEST(Svg, NothingInDataEndsItsElement) {
  const std::string element = JsonElement("points", Record{{"name", "</script><!--<script>"}});
  EXPECT_EQ(element,
            "<script type=\"application/json\" class=\"points\">"
            "{\"name\":\"\\u003c/script>\\u003c!--\\u003cscript>\"}</script>\n");
}

TEST(Svg, Coordinates) {
  EXPECT_EQ(Px(1), "1");
  EXPECT_EQ(Px(0.125), "0.12");
  EXPECT_EQ(Px(-0.001), "0");
  EXPECT_EQ(Px(10.5), "10.5");
  EXPECT_EQ(Px(1e300), "1000000");
}

TEST(Svg, TextIsShortenedAtCharacters) {
  EXPECT_EQ(Shortened("short", 100), "short");
  EXPECT_EQ(Shortened("größer als alles", 42), "größe…");
}

TEST(Svg, TitlesAndLabelsAreEscaped) {
  Drawing drawing;
  drawing.AddRect(0, 0, 1, 1, "class=\"bar\"", "<b>");
  drawing.Add({.x = 0, .y = 0, .text = "</text>"});
  EXPECT_NE(drawing.body.find("<title>&lt;b&gt;</title>"), std::string::npos);
  EXPECT_NE(drawing.body.find(">&lt;/text&gt;</text>"), std::string::npos);
  const std::string file = SvgFile(drawing, "\"<&>");
  EXPECT_NE(file.find("<title>&quot;&lt;&amp;&gt;</title>"), std::string::npos);
}

}  // namespace
}  // namespace winnow::report
