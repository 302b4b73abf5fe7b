// File format: kMagic, kVersion, then sections in a fixed order, each
//   tag (4 bytes), 0 (4 bytes), length of its content (8), XXH3 of its content (8), content.
// INFO: what ReadSessionInfo returns, and the state of the compressor. TOKS: all tokens. LOGI: the
// last logits, or nothing. LAYR, for every layer: what cache::Cache::WriteLayer writes. END:
// nothing.
#include "runtime/store/session_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/with_code.h"
#include "compression/parameters.h"
#include "gguf/printable.h"
#include "gguf/tensor_type.h"

namespace winnow::runtime {
namespace {

constexpr std::array<char, 16> kMagic = {'w', 'i', 'n', 'n', 'o', 'w', ' ',  's',
                                         'e', 's', 's', 'i', 'o', 'n', '\n', '\0'};
constexpr uint64_t kVersion = 3;

enum class Tag : uint32_t {  // as four letters
  kInfo = std::bit_cast<uint32_t>(std::array<char, 4>{'I', 'N', 'F', 'O'}),
  kTokens = std::bit_cast<uint32_t>(std::array<char, 4>{'T', 'O', 'K', 'S'}),
  kLogits = std::bit_cast<uint32_t>(std::array<char, 4>{'L', 'O', 'G', 'I'}),
  kLayer = std::bit_cast<uint32_t>(std::array<char, 4>{'L', 'A', 'Y', 'R'}),
  kEnd = std::bit_cast<uint32_t>(std::array<char, 4>{'E', 'N', 'D', ' '}),
};

struct SectionHead {
  uint32_t tag = 0;
  uint32_t zero = 0;
  uint64_t n_bytes = 0;
  uint64_t hash = 0;
};

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<void> WriteSection(OutputFile& file, Tag tag, std::span<const std::byte> content) {
  const SectionHead head = {.tag = static_cast<uint32_t>(tag),
                            .n_bytes = content.size(),
                            .hash = XXH3_64bits(content.data(), content.size())};
  WINNOW_TRY(file.Write(AsText(std::as_bytes(std::span(&head, 1)))));
  return file.Write(AsText(content));
}

void WriteInfo(const SessionFileInfo& info, const CompressionProgress& progress,
               std::string& bytes) {
  ByteWriter out(bytes);
  out.PutText(info.model);
  for (const int number :
       {info.shape.n_layers, info.shape.n_kv_heads, info.shape.key_dim, info.shape.value_dim,
        static_cast<int>(info.key_type), static_cast<int>(info.value_type),
        static_cast<int>(info.hadamard_keys)}) {
    out.Put(static_cast<int32_t>(number));
  }
  out.Put(info.context);
  out.PutText(info.method);
  out.Put(info.size);
  out.Put(info.ratio);
  out.Put(info.memory_bytes);
  out.Put(info.quality);
  out.Put(info.prefill_chunk);
  out.Put(info.n_tokens);
  out.PutText(info.notes);
  for (const int64_t number :
       {progress.budget, progress.n_seen, progress.n_prompt, progress.n_next}) {
    out.Put(number);
  }
}

bool ReadInfo(std::span<const std::byte> bytes, SessionFileInfo& info,
              CompressionProgress& progress) {
  ByteReader in(bytes);
  std::array<int32_t, 7> numbers = {};
  const bool read = in.GetText(info.model) && in.GetInto(std::span<int32_t>(numbers)) &&
                    in.Get(info.context) && in.GetText(info.method) && in.Get(info.size) &&
                    in.Get(info.ratio) && in.Get(info.memory_bytes) && in.Get(info.quality) &&
                    in.Get(info.prefill_chunk) && in.Get(info.n_tokens) && in.GetText(info.notes) &&
                    in.Get(progress.budget) && in.Get(progress.n_seen) &&
                    in.Get(progress.n_prompt) && in.Get(progress.n_next) && in.at_end();
  if (!read) return false;
  info.shape = {.n_layers = numbers[0],
                .n_kv_heads = numbers[1],
                .key_dim = numbers[2],
                .value_dim = numbers[3]};
  info.key_type = static_cast<kernels::TensorType>(numbers[4]);
  info.value_type = static_cast<kernels::TensorType>(numbers[5]);
  info.hadamard_keys = numbers[6] != 0;
  constexpr int64_t kMax = std::numeric_limits<cache::Position>::max();
  const auto within = [&](int64_t number) { return number >= 0 && number <= kMax; };
  // Error messages show them.
  const bool printable = gguf::IsPrintableAscii(info.model) && gguf::IsPrintableAscii(info.method);
  return printable && kernels::IsCacheType(info.key_type) &&
         kernels::IsCacheType(info.value_type) && within(info.n_tokens) &&
         progress.n_seen == info.n_tokens && within(progress.n_prompt) &&
         progress.n_prompt <= progress.n_seen && within(progress.budget) && within(progress.n_next);
}

class SessionReader {
 public:
  // Starts at the beginning of the input, which must outlive the reader.
  static Result<SessionReader> Start(SessionInput& input) {
    std::rewind(input.file.get());
    SessionReader reader(input);
    const std::string& path = reader.path_;
    std::array<char, kMagic.size()> magic = {};
    uint64_t version = 0;
    if (!reader.Get(std::as_writable_bytes(std::span(magic))) || magic != kMagic) {
      return Error{path + ": is not a session file"};
    }
    if (!reader.Get(std::as_writable_bytes(std::span(&version, 1)))) return reader.Damaged("INFO");
    if (version != kVersion) {
      return Error{path + ": session file of version " + std::to_string(version) + ", expected " +
                   std::to_string(kVersion) + "; read the text again with this winnow"};
    }
    return reader;
  }

  // The content of the next section. Valid until the next call.
  Result<std::span<const std::byte>> Next(Tag tag) {
    WINNOW_ASSIGN(const SectionHead head, NextHead(tag));
    content_.resize(static_cast<size_t>(head.n_bytes));
    if (!Get(content_) || XXH3_64bits(content_.data(), content_.size()) != head.hash) {
      return Damaged(Name(tag));
    }
    return std::span<const std::byte>(content_);
  }

  // Passes over the next section, whose content is not checked, and returns its length in bytes.
  Result<uint64_t> Skip(Tag tag) {
    WINNOW_ASSIGN(const SectionHead head, NextHead(tag));
    if (fseeko(file_, static_cast<off_t>(head.n_bytes), SEEK_CUR) != 0) return Damaged(Name(tag));
    n_left_ -= head.n_bytes;
    return head.n_bytes;
  }

  Error Damaged(const std::string& section) const {
    return Error{path_ + ": damaged: section " + section +
                 " is truncated or corrupt; the text must be read again"};
  }
  Error At(const Error& error) const { return Prefixed(path_ + ": ", error); }
  bool at_end() const { return n_left_ == 0; }

 private:
  explicit SessionReader(const SessionInput& input)
      : path_(input.name), file_(input.file.get()), n_left_(input.n_bytes) {}

  static std::string Name(Tag tag) {
    const auto letters = std::bit_cast<std::array<char, 4>>(tag);
    return {letters.begin(), letters.end()};
  }

  Result<SectionHead> NextHead(Tag tag) {
    SectionHead head;
    if (!Get(std::as_writable_bytes(std::span(&head, 1))) ||
        head.tag != static_cast<uint32_t>(tag) || head.zero != 0 || head.n_bytes > n_left_) {
      return Damaged(Name(tag));
    }
    return head;
  }

  bool Get(std::span<std::byte> bytes) {
    if (bytes.size() > n_left_) return false;
    n_left_ -= bytes.size();
    return std::fread(bytes.data(), 1, bytes.size(), file_) == bytes.size();
  }

  std::string path_;
  FILE* file_;
  uint64_t n_left_ = 0;
  std::vector<std::byte> content_;
};

struct Head {
  SessionFileInfo info;
  CompressionProgress progress;
};

Result<Head> ReadHead(SessionReader& reader) {
  WINNOW_ASSIGN(const auto bytes, reader.Next(Tag::kInfo));
  Head head;
  if (!ReadInfo(bytes, head.info, head.progress)) return reader.Damaged("INFO");
  return head;
}

Result<std::vector<TokenId>> ReadTokens(SessionReader& reader, int64_t n_tokens) {
  WINNOW_ASSIGN(const auto bytes, reader.Next(Tag::kTokens));
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (bytes.size() % sizeof(TokenId) != 0 || std::ssize(tokens) != n_tokens ||
      !ByteReader(bytes).GetInto(std::span<TokenId>(tokens))) {
    return reader.Damaged("TOKS");
  }
  return tokens;
}

SessionFileInfo Describe(const Session& session) {
  const cache::CacheConfig& config = session.cache().config();
  const CompressionOptions& compression = session.compression();
  cache::CacheShape shape = config.shape;
  shape.by_layer.clear();
  return {.model = session.engine().model_hash(),
          .shape = shape,
          .key_type = config.key_type,
          .value_type = config.value_type,
          .hadamard_keys = config.hadamard_keys,
          .context = config.capacity,
          .method = compression.method ? compression.method->traits().spec : "",
          .size = compression.size,
          .ratio = compression.ratio,
          .memory_bytes = compression.memory_bytes,
          .quality = compression.quality,
          .prefill_chunk = compression.prefill_chunk,
          .n_tokens = session.n_tokens(),
          .notes = {}};
}

std::string TypesText(const SessionFileInfo& info) {
  return std::string(gguf::GetTypeInfo(info.key_type).name) + " keys" +
         (info.hadamard_keys ? " after a Hadamard transform" : "") + " and " +
         std::string(gguf::GetTypeInfo(info.value_type).name) + " values";
}
std::string MethodText(const SessionFileInfo& info) {
  return info.method.empty() ? "no method" : "method " + info.method;
}
std::string BudgetText(const SessionFileInfo& info) {
  if (info.size > 0) return "a budget of " + std::to_string(info.size) + " slots";
  if (info.ratio > 0) return "a budget of " + std::to_string(info.ratio) + " of the prompt";
  if (info.memory_bytes > 0) return "a budget of " + std::to_string(info.memory_bytes) + " bytes";
  if (info.quality > 0) {
    return "a KL divergence of " + compression::ShortestText(info.quality) + " nats";
  }
  return "no budget";
}

constexpr std::string_view kLarger = "; `context` gives it a larger one";

// Checks that a saved session can continue under the current model and options; properties are
// compared as the texts that errors show. Errors of options have the code kInvalid, those of the
// model have none.
Result<void> CheckSame(const SessionFileInfo& saved, const SessionFileInfo& now) {
  const auto differ = [](const std::string& found, const std::string& expected) {
    return Error{.message = "was saved with " + found + ", but the session here has " + expected,
                 .code = ErrorCode::kInvalid};
  };
  const auto differs_in_model = [&] {
    return Error{differ("another model (" + saved.model + ")", now.model).message};
  };
  if (saved.model != now.model) return differs_in_model();
  if (TypesText(saved) != TypesText(now)) return differ(TypesText(saved), TypesText(now));
  if (saved.method != now.method) return differ(MethodText(saved), MethodText(now));
  if (saved.shape != now.shape) return differs_in_model();  // follows from model and method
  if (BudgetText(saved) != BudgetText(now)) return differ(BudgetText(saved), BudgetText(now));
  // With a method it holds fewer entries than tokens: ReadLayer checks their number.
  if (saved.method.empty() && saved.n_tokens > now.context) {
    return Error{.message = "its " + std::to_string(saved.n_tokens) +
                            " tokens do not fit the context of " + std::to_string(now.context) +
                            " tokens" + std::string(kLarger),
                 .code = ErrorCode::kInvalid};
  }
  return {};
}

}  // namespace

Result<SessionFileInfo> ReadSessionInfo(const std::string& path) {
  WINNOW_ASSIGN(SessionInput input, SessionInput::Open(path));
  return ReadSessionInfo(input);
}

Result<SessionFileInfo> ReadSessionInfo(SessionInput& input) {
  WINNOW_ASSIGN(SessionReader reader, SessionReader::Start(input));
  WINNOW_ASSIGN(Head head, ReadHead(reader));
  return std::move(head.info);
}

Result<SessionText> ReadSessionText(SessionInput& input) {
  WINNOW_ASSIGN(SessionReader reader, SessionReader::Start(input));
  WINNOW_ASSIGN(Head head, ReadHead(reader));
  SessionText text = {.info = std::move(head.info)};
  WINNOW_ASSIGN(text.tokens, ReadTokens(reader, text.info.n_tokens));
  // A server reads the text of every file when it starts, so leave the logits, which are longer
  // than most texts, unread. RestoreSession checks them.
  WINNOW_ASSIGN(const uint64_t logits_bytes, reader.Skip(Tag::kLogits));
  text.has_logits = logits_bytes > 0;
  return text;
}

Result<void> SaveSession(const Session& session, const std::string& path, std::string_view notes) {
  WINNOW_ASSIGN(OutputFile file, OutputFile::Create(path));
  return SaveSession(session, std::move(file), notes);
}

Result<void> SaveSession(const Session& session, OutputFile file, std::string_view notes,
                         Durability durability) {
  SessionFileInfo info = Describe(session);
  info.notes = notes;
  WINNOW_TRY(file.Write({kMagic.data(), kMagic.size()}));
  WINNOW_TRY(file.Write(AsText(std::as_bytes(std::span(&kVersion, 1)))));
  std::string bytes;
  WriteInfo(info, session.progress(), bytes);
  WINNOW_TRY(WriteSection(file, Tag::kInfo, std::as_bytes(std::span(bytes))));
  WINNOW_TRY(WriteSection(file, Tag::kTokens, std::as_bytes(session.tokens())));
  WINNOW_TRY(WriteSection(file, Tag::kLogits, std::as_bytes(session.logits())));
  for (int layer = 0; layer < info.shape.n_layers; ++layer) {
    bytes.clear();
    session.cache().WriteLayer(layer, bytes);
    WINNOW_TRY(WriteSection(file, Tag::kLayer, std::as_bytes(std::span(bytes))));
  }
  WINNOW_TRY(WriteSection(file, Tag::kEnd, {}));
  return durability == Durability::kOnDisk ? file.CommitToDisk() : file.Commit();
}

Result<std::unique_ptr<Session>> RestoreSession(Engine& engine, const SessionOptions& options,
                                                const std::string& path) {
  WINNOW_ASSIGN(SessionInput input, SessionInput::Open(path));
  return RestoreSession(engine, options, std::move(input));
}

Result<std::unique_ptr<Session>> RestoreSession(Engine& engine, const SessionOptions& options,
                                                SessionInput input) {
  WINNOW_ASSIGN(SessionReader reader, SessionReader::Start(input));
  WINNOW_ASSIGN(const Head head, ReadHead(reader));
  // An error here is in the caller's options, not in the file.
  WINNOW_ASSIGN(std::unique_ptr<Session> session,
                WithCode(Session::Make(engine, options), ErrorCode::kInvalid));
  const SessionFileInfo now = Describe(*session);
  if (const auto same = CheckSame(head.info, now); !same) {
    return reader.At(same.error());
  }
  WINNOW_ASSIGN(const std::vector<TokenId> tokens, ReadTokens(reader, head.info.n_tokens));
  WINNOW_ASSIGN(const auto bytes, reader.Next(Tag::kLogits));
  const auto vocabulary = static_cast<size_t>(engine.model().hyperparameters().vocabulary);
  std::vector<float> logits(bytes.empty() ? 0 : vocabulary);
  if (bytes.size() != logits.size() * sizeof(float) ||
      !ByteReader(bytes).GetInto(std::span<float>(logits))) {
    return reader.Damaged("LOGI");
  }
  const auto fill = [&](cache::Cache& cache) -> Result<void> {
    for (int layer = 0; layer < head.info.shape.n_layers; ++layer) {
      WINNOW_ASSIGN(const auto content, reader.Next(Tag::kLayer));
      const auto read =
          cache.ReadLayer(layer, content, static_cast<cache::Position>(head.info.n_tokens));
      if (read) continue;
      // If the layer has more entries than its own context allows, the file is damaged.
      if (read.error().code != ErrorCode::kInvalid || head.info.context <= now.context) {
        return Error{read.error().message};
      }
      return Error{.message = read.error().message + std::string(kLarger),
                   .code = ErrorCode::kInvalid};
    }
    // All layers have their first eviction in the same step (model::Step relies on it).
    for (int layer = 1; layer < head.info.shape.n_layers; ++layer) {
      if (cache.keys_rotated(layer) != cache.keys_rotated(0)) {
        return Error{"the keys of layer " + std::to_string(layer) + " are stored " +
                     (cache.keys_rotated(layer) ? "after" : "before") +
                     " RoPE, those of layer 0 are not"};
      }
    }
    WINNOW_TRY(reader.Next(Tag::kEnd));
    if (!reader.at_end()) return Error{"data after the END section"};
    return {};
  };
  if (const auto filled = session->Restore(tokens, logits, head.progress, fill); !filled) {
    return reader.At(filled.error());
  }
  return session;
}

}  // namespace winnow::runtime
