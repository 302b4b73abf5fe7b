// Session files: changes bytes in files of every method and corrects the hashes. A session that is
// accepted must continue: generated tokens, another prompt, saving.
//
// The first byte chooses a method; then every five bytes are a change: section, offset (two bytes
// each), value.
#include <cstddef>
#include <cstdint>
#include <string>

#include "session_seeds.h"

namespace {

constexpr size_t kMaxChanges = 16;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static winnow::fuzz::Seeds seeds;
  static const winnow::fuzz::TemporaryFolder folder;
  if (size == 0) return 0;
  const winnow::fuzz::Seed& seed = seeds.at(data[0]);
  std::string bytes = seed.bytes;
  for (size_t i = 0; i < kMaxChanges && 5 * i + 5 < size; ++i) {
    const uint8_t* change = data + 1 + 5 * i;
    const size_t section = seed.sections[(change[0] | change[1] << 8) % seed.sections.size()];
    const size_t length = winnow::fuzz::LengthAt(bytes, section);
    if (length == 0) continue;
    bytes[section + winnow::fuzz::kSectionHead + (change[2] | change[3] << 8) % length] =
        static_cast<char>(change[4]);
    winnow::fuzz::SetHash(bytes, section);
  }
  const std::string path = folder.Write("a.session", bytes);
  winnow::fuzz::RestoreAndContinue(seeds.engine(), seed, path);
  return 0;
}
