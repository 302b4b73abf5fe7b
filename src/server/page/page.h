#pragma once

#include <string_view>

// The files of the page, embedded in the binary.
namespace winnow::server::page {

struct File {
  std::string_view path;  // "/", "/page/app.js"
  std::string_view content_type;
  std::string_view bytes;
  std::string_view etag;  // quoted; depends on the bytes
};

// Null: no such file.
const File* Find(std::string_view path);

}  // namespace winnow::server::page
