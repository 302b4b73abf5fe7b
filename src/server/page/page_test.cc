#include "server/page/page.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "server/page/files.h"

namespace winnow::server::page {
namespace {

TEST(PageTest, FindsWhatIsThereAndNothingElse) {
  ASSERT_NE(Find("/"), nullptr);
  EXPECT_TRUE(Find("/")->content_type.starts_with("text/html"));
  EXPECT_TRUE(Find("/")->bytes.starts_with("<!doctype html>"));
  for (const char* path : {"", "/page", "/page/", "/page/../index.html", "/page/files.h", "//"}) {
    EXPECT_EQ(Find(path), nullptr) << path;
  }
}

TEST(PageTest, FilesAreWholeAndTold) {
  std::set<std::string_view> paths, etags;
  for (const File& file : Files()) {
    EXPECT_FALSE(file.bytes.empty()) << file.path;
    EXPECT_EQ(file.bytes.back(), '\n') << file.path << " was cut off";
    EXPECT_TRUE(file.etag.size() == 18 && file.etag.front() == '"' && file.etag.back() == '"')
        << file.etag;
    EXPECT_TRUE(paths.insert(file.path).second) << file.path;
    EXPECT_TRUE(etags.insert(file.etag).second) << file.path;
  }
}

// Every referenced file exists: a line missing in CMakeLists.txt would leave the page blank.
TEST(PageTest, ReferencesLeadSomewhere) {
  const std::regex in_html(R"re((?:src|href)="(page/[^"]+)")re");
  const std::regex in_js(R"re(from '\./([^']+)')re");
  int n_references = 0;
  for (const File& file : Files()) {
    const bool is_html = file.path == "/";
    const std::string text(file.bytes);
    const std::regex& pattern = is_html ? in_html : in_js;
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
      const std::string path = (is_html ? "/" : "/page/") + (*at)[1].str();
      EXPECT_NE(Find(path), nullptr) << file.path << " names " << path;
      ++n_references;
    }
  }
  EXPECT_GT(n_references, 5);
}

// The page has no inline script or style, which its Content-Security-Policy forbids, and loads
// nothing from other hosts.
TEST(PageTest, NothingInlineAndNoOtherHost) {
  const std::string_view html = Find("/")->bytes;
  for (const char* wrong : {"<style", "style=", "onclick", "onload", "javascript:", "<script>"}) {
    EXPECT_EQ(html.find(wrong), std::string_view::npos) << wrong;
  }
  for (const File& file : Files()) {
    if (file.content_type == "image/svg+xml") continue;  // its namespace is a URL
    EXPECT_EQ(file.bytes.find("https://"), std::string_view::npos) << file.path;
    EXPECT_EQ(file.bytes.find("innerHTML"), std::string_view::npos) << file.path;
  }
}

}  // namespace
}  // namespace winnow::server::page
