#include "server/page/page.h"

#include <array>

namespace winnow::server::page {
namespace {

constexpr std::string_view kIndex = R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>winnow</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }
</style>
<h1>winnow is running</h1>
<p>OpenAI clients use <code>/v1</code> of this address as their base URL; llama-server's paths are
here too. What is there: <a href="/v1/models">/v1/models</a>, <a href="/health">/health</a>,
<a href="/props">/props</a>, <a href="/slots">/slots</a>, <a href="/v1/sessions">/v1/sessions</a>.
</html>
)";

constexpr std::array<File, 1> kFiles = {{{"/", "text/html; charset=utf-8", kIndex}}};

}  // namespace

const File* Find(std::string_view path) {
  for (const File& file : kFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace winnow::server::page
