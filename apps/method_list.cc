#include "method_list.h"

#include "compression/registry.h"

namespace winnow::apps {

void AddMethodListFlag(FlagTable& table, std::vector<std::string>* methods) {
  table.Add({{"--kv-method"},
             "LIST",
             "methods, separated by commas; a comma before PARAMETER=VALUE goes on with the same "
             "method: snapkv,ems:tau=0.6,gamma=4,streaming. Can be repeated",
             "",
             {},
             false,
             [methods](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(const std::vector<std::string> words, SplitMethods(text));
               methods->insert(methods->end(), words.begin(), words.end());
               return {};
             }});
}

Result<runtime::CompressionOptions> OptionsOfMethod(const KvFlags& flags,
                                                    const std::string& method) {
  KvFlags kv = flags;
  kv.method = method;
  const auto made = compression::MakeMethod(method);
  if (!made) return Error{"--kv-method: " + made.error().message};
  if (!(*made)->traits().needs_budget && kv.decode.empty()) {
    kv.size = 0;
    kv.ratio = 0;
    // A budget that is not needed is a limit at best.
    if (!(*made)->traits().holds_budget) kv.memory_bytes = 0;
  }
  return CompressionOptionsFrom(kv);
}

}  // namespace winnow::apps
