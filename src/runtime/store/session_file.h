#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "cache/cache.h"
#include "runtime/session/session.h"

// Files of sessions: a text is read once, and later processes ask about what was kept of it.
namespace winnow::runtime {

// What a session file says about itself.
struct SessionFileInfo {
  std::string model;        // gguf::ContentHash of the model's file
  cache::CacheShape shape;  // without by_layer, which follows from the model
  kernels::TensorType key_type = kernels::TensorType::kF16;
  kernels::TensorType value_type = kernels::TensorType::kF16;
  bool hadamard_keys = false;  // stored after a Hadamard transform
  int64_t context = 0;         // tokens the cache could hold
  std::string method;          // its spec; empty: nothing is evicted
  int64_t size = 0;            // the budget, as in CompressionOptions
  double ratio = 0;
  int64_t memory_bytes = 0;
  double quality = 0;
  int64_t prefill_chunk = 0;
  int64_t n_tokens = 0;
  std::string notes;  // free text of the program that saved it
};

// A session file that is open for reading.
struct SessionInput {
  struct Close {
    void operator()(FILE* open_file) const { std::fclose(open_file); }
  };
  // Error: cannot be read.
  static Result<SessionInput> Open(const std::string& path);
  // Takes ownership of the descriptor. Errors: cannot be read, not a regular file.
  static Result<SessionInput> FromDescriptor(int file, std::string name);

  std::string name;  // for messages
  std::unique_ptr<FILE, Close> file;
  uint64_t n_bytes = 0;
};

// Reads the first part of a file. Errors: cannot be read, not a session file, damaged, another
// version.
Result<SessionFileInfo> ReadSessionInfo(const std::string& path);
// The input can be read again.
Result<SessionFileInfo> ReadSessionInfo(SessionInput& input);

// The text of a session file.
struct SessionText {
  SessionFileInfo info = {};
  std::vector<TokenId> tokens = {};
  bool has_logits = false;  // after the last token
};
// Reads the first part of a file up to the logits, of which it reads only the length. Errors: those
// of ReadSessionInfo, for this part.
Result<SessionText> ReadSessionText(SessionInput& input);

// The options that a file's session was made with, except those that files do not store
// (SessionOptions::row_block and the hooks). Error: it names a method that this build does not
// have.
Result<SessionOptions> SessionOptionsFrom(const SessionFileInfo& info);

// Writes the whole session: tokens, the last logits, entries and state. The file appears only when
// it is complete, replaces an older one only then, and is on disk when this returns. Error: the
// disk.
Result<void> SaveSession(const Session& session, const std::string& path,
                         std::string_view notes = {});
// kOnDisk: waits until the file is on disk. kWritten: does not wait; the file survives the end of
// the process at once, a power failure only a little later.
enum class Durability { kOnDisk, kWritten };
Result<void> SaveSession(const Session& session, OutputFile file, std::string_view notes = {},
                         Durability durability = Durability::kOnDisk);

// A session that continues where the saved one was. `options` must be those it was made with,
// except the context, which must hold its entries. Errors: those of ReadSessionInfo and
// Session::Make; another model (names both); another method, budget or cache type, or too small a
// context (kInvalid); damaged anywhere.
Result<std::unique_ptr<Session>> RestoreSession(Engine& engine, const SessionOptions& options,
                                                const std::string& path);
Result<std::unique_ptr<Session>> RestoreSession(Engine& engine, const SessionOptions& options,
                                                SessionInput input);

}  // namespace winnow::runtime
