#include "server/page/page.h"

#include "server/page/files.h"

namespace winnow::server::page {

const File* Find(std::string_view path) {
  for (const File& file : Files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace winnow::server::page
