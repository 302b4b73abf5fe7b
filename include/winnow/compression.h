#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow {

// How the cache is compressed. A method that needs a budget takes exactly one of size, ratio,
// memory_bytes and quality. Model::Open, NewSession, RestoreSession, NewScheduler and Submit check
// these values and return kInvalid.
struct Compression {
  // NAME or NAME:PARAMETER=VALUE,... (ListMethods); empty or "full": nothing is evicted.
  std::string method = {};
  std::string decode = {};   // a second method, which holds the budget during decode
  int64_t size = 0;          // entries per KV head
  double ratio = 0;          // entries as a share of the prompt, in (0, 1]
  int64_t memory_bytes = 0;  // limit of the whole cache at any moment
  // Largest mean KL divergence from the full cache, in nats per token, that compressing a prompt
  // may cause. The session searches the smallest share of the prompt whose estimate is below it
  // (SessionInfo::quality) and reads the prompt several times to do so. Not with a Scheduler.
  double quality = 0;
  int64_t prefill_chunk = 0;  // tokens of a prompt that are read and compressed at a time; 0: all

  bool operator==(const Compression&) const = default;
};

struct MethodParameter {
  std::string name;
  std::string default_value;         // as written in Compression::method
  std::string description;           // one line
  std::vector<std::string> choices;  // the values allowed; empty: not an enumeration
};

struct MethodInfo {
  std::string name;
  std::string description;   // which entries it keeps, one line
  std::string source;        // paper and reference code
  bool needs_budget = true;  // false: it chooses the size itself
  bool holds_budget = true;  // false: the layers together may keep more than the budget
  int64_t min_size = 0;      // the smallest budget, or limit
  // As in SessionInfo.
  bool needs_question = false;
  bool reassigns_positions = false;
  std::vector<MethodParameter> parameters;
};

// All methods, in the order of the documentation. Thread-safe.
std::vector<MethodInfo> ListMethods();

}  // namespace winnow
