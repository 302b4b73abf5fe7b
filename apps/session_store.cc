#include "session_store.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "report/parse_json.h"

namespace winnow::apps {
namespace {

// The part of the notes that stores the flags; the rest belongs to the program.
report::Record FlagRecord(const ModelFlags& flags) {
  return {{"method", flags.kv.method},
          {"size", flags.kv.size},
          {"ratio", flags.kv.ratio},
          {"memory", flags.kv.memory_bytes},
          {"quality", flags.kv.quality},
          {"decode", flags.kv.decode},
          {"prefill_chunk", flags.kv.prefill_chunk},
          {"key_type", flags.key_type},
          {"value_type", flags.value_type},
          {"no_kv_rotation", flags.no_kv_rotation},
          {"context", flags.context}};
}

template <class T>
bool Take(const report::Record& record, std::string_view name, T& out) {
  const report::Value* value = record.Find(name);
  const T* found = value == nullptr ? nullptr : std::get_if<T>(&value->data);
  if (found != nullptr) out = *found;
  return found != nullptr;
}

bool TakeNumber(const report::Record& record, std::string_view name, double& out) {
  const report::Value* value = record.Find(name);
  const std::optional<double> number = value == nullptr ? std::nullopt : report::NumberIn(*value);
  out = number.value_or(0);
  return number.has_value();
}

// False: not winnow's notes.
bool TakeFlags(const report::Record& saved, const FlagTable& given, ModelFlags& flags) {
  ModelFlags then;
  const bool whole =
      Take(saved, "method", then.kv.method) && Take(saved, "size", then.kv.size) &&
      TakeNumber(saved, "ratio", then.kv.ratio) && Take(saved, "memory", then.kv.memory_bytes) &&
      TakeNumber(saved, "quality", then.kv.quality) && Take(saved, "decode", then.kv.decode) &&
      Take(saved, "prefill_chunk", then.kv.prefill_chunk) &&
      Take(saved, "key_type", then.key_type) && Take(saved, "value_type", then.value_type) &&
      Take(saved, "no_kv_rotation", then.no_kv_rotation) && Take(saved, "context", then.context);
  if (!whole) return false;
  constexpr const char* kOfTheBudget[] = {"--kv-method",    "--kv-size",    "--kv-ratio",
                                          "--kv-memory",    "--kv-quality", "--kv-decode",
                                          "--prefill-chunk"};
  KvFlags& kv = flags.kv;
  if (std::ranges::none_of(kOfTheBudget, [&](const char* name) { return given.Given(name); })) {
    then.kv.trace = kv.trace;
    then.kv.strict = kv.strict;
    kv = then.kv;
  }
  if (!given.Given("-ctk")) flags.key_type = then.key_type;
  if (!given.Given("-ctv")) flags.value_type = then.value_type;
  flags.no_kv_rotation = flags.no_kv_rotation || then.no_kv_rotation;
  if (flags.context == 0) flags.context = then.context;
  return true;
}

}  // namespace

void AddSessionFlags(FlagTable& table, SessionFlags& flags, const char* help) {
  table.Group("Session");
  table.Add({"--session", "--prompt-cache"}, "FILE", help, &flags.file);
  table.Switch({"--session-read-only", "--prompt-cache-ro"},
               "go on from the session in FILE and leave the file as it is", &flags.read_only);
}

Result<void> SessionStore::Check(const SessionFlags& flags) {
  if (!flags.file && (flags.read_only || flags.all)) {
    return Error{std::string(flags.all ? "--session-all" : "--session-read-only") +
                 " goes with --session FILE"};
  }
  if (flags.read_only && flags.all) {
    return Error{"give only one of --session-all and --session-read-only"};
  }
  return {};
}

Result<SessionStore> SessionStore::Open(const SessionFlags& flags, const FlagTable& given,
                                        ModelFlags& model) {
  SessionStore store;
  store.flags_ = flags;
  if (!flags.file) return store;
  std::error_code problem;
  if (!std::filesystem::exists(*flags.file, problem)) {
    if (flags.read_only) return Error{*flags.file + ": there is no session to go on from"};
    return store;
  }
  WINNOW_ASSIGN(const std::string text, ReadSessionNotes(*flags.file));
  const auto notes = report::ParseJson(text);
  const report::Record* record = notes ? std::get_if<report::Record>(&notes->data) : nullptr;
  if (record == nullptr || !TakeFlags(*record, given, model)) {
    return Error{*flags.file +
                 ": was not saved by this command line (its notes say nothing of "
                 "flags)"};
  }
  model.restored_session = flags.file;
  store.notes_ = *record;
  return store;
}

Result<void> SessionStore::Save(const Session& session, const ModelFlags& model,
                                report::Record notes) const {
  report::Record all = FlagRecord(model);
  for (report::Field& field : notes.fields) all.fields.push_back(std::move(field));
  return session.Save(path(), report::ToJson(all));
}

}  // namespace winnow::apps
