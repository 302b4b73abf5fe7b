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

// Sessions beyond their process: a text is read once, and what was kept of it is asked later.
namespace winnow::runtime {

// What a session file says about itself.
struct SessionFileInfo {
  std::string model;        // gguf::ContentHash of the model's file
  cache::CacheShape shape;  // without the layers' own, which follow from the model
  kernels::TensorType key_type = kernels::TensorType::kF16;
  kernels::TensorType value_type = kernels::TensorType::kF16;
  bool hadamard_keys = false;  // stored after a Hadamard transform
  int64_t context = 0;         // tokens the cache could hold
  std::string method;          // as written; empty: nothing is evicted
  int64_t size = 0;            // the budget, as CompressionOptions
  double ratio = 0;
  int64_t memory_bytes = 0;
  double quality = 0;
  int64_t prefill_chunk = 0;
  int64_t n_tokens = 0;
  std::string notes;  // what the program that saved it wanted to know again
};

// A session file that is open for reading.
struct SessionInput {
  struct Close {
    void operator()(FILE* open_file) const { std::fclose(open_file); }
  };
  // Error: cannot be read.
  static Result<SessionInput> Open(const std::string& path);
  // Takes the descriptor. Errors: cannot be read, no regular file.
  static Result<SessionInput> FromDescriptor(int file, std::string name);

  std::string name;  // for messages
  std::unique_ptr<FILE, Close> file;
  uint64_t n_bytes = 0;
};

// Reads the first part of a file. Errors: cannot be read, no session file, damaged, of another
// version.
Result<SessionFileInfo> ReadSessionInfo(const std::string& path);
// The input can be read again.
Result<SessionFileInfo> ReadSessionInfo(SessionInput& input);

// What it says of its text.
struct SessionText {
  SessionFileInfo info = {};
  std::vector<TokenId> tokens = {};
  bool has_logits = false;  // after the last token
};
Result<SessionText> ReadSessionText(SessionInput& input);

// What the session of such a file was made with, but for what files do not say (SessionOptions
// ::row_block and the hooks). Error: it names a method that this winnow does not have.
Result<SessionOptions> SessionOptionsFrom(const SessionFileInfo& info);

// Writes all there is: tokens, the last logits, entries and state. The file appears whole, is on
// the disk when this returns, and takes the place of an older one only then. Error: the disk.
Result<void> SaveSession(const Session& session, const std::string& path,
                         std::string_view notes = {});
// kWritten: it outlives the process at once, and the machine's power a little later; does not wait
// for the disk.
enum class Durability { kOnDisk, kWritten };
Result<void> SaveSession(const Session& session, OutputFile file, std::string_view notes = {},
                         Durability durability = Durability::kOnDisk);

// A session that goes on where the saved one was. `options` are those it was made with, but for the
// context, which must hold its entries. Errors: those of ReadSessionInfo and Session::Make; another
// model (names both); another method, budget or cache type, a context that is too small (kInvalid);
// damaged anywhere.
Result<std::unique_ptr<Session>> RestoreSession(Engine& engine, const SessionOptions& options,
                                                const std::string& path);
Result<std::unique_ptr<Session>> RestoreSession(Engine& engine, const SessionOptions& options,
                                                SessionInput input);

}  // namespace winnow::runtime
