#include "models/bundled.h"

// An array of numbers in C++ would take the compiler minutes; the assembler reads the file itself.
asm(R"(
  .section .rodata
  .balign 64
  .hidden winnow_bundled_begin
  .globl winnow_bundled_begin
winnow_bundled_begin:
  .incbin ")" WINNOW_BUNDLED_MODEL R"("
  .hidden winnow_bundled_end
  .globl winnow_bundled_end
winnow_bundled_end:
  .byte 0
  .hidden winnow_profile_begin
  .globl winnow_profile_begin
winnow_profile_begin:
  .incbin ")" WINNOW_BUNDLED_PROFILE R"("
  .hidden winnow_profile_end
  .globl winnow_profile_end
winnow_profile_end:
  .byte 0
  .previous
)");

extern "C" {
extern const std::byte winnow_bundled_begin[];
extern const std::byte winnow_bundled_end[];
extern const char winnow_profile_begin[];
extern const char winnow_profile_end[];
}

namespace winnow::models {

std::span<const std::byte> Bundled() { return {winnow_bundled_begin, winnow_bundled_end}; }
std::string_view BundledProfile() { return {winnow_profile_begin, winnow_profile_end}; }

}  // namespace winnow::models
