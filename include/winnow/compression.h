#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow {

// How the cache is compressed. Methods that need a budget take exactly one of size, ratio,
// memory_bytes and quality. What is wrong with it is an error of what makes a session with it
// (kInvalid).
struct Compression {
  std::string method = {};   // NAME or NAME:PARAMETER=VALUE,... (ListMethods); empty, as "full":
                             // nothing is evicted
  std::string decode = {};   // a second method that holds the budget while generating
  int64_t size = 0;          // entries per KV head
  double ratio = 0;          // entries as a share of the prompt, 0..1
  int64_t memory_bytes = 0;  // of the whole cache, at any moment
  // The mean KL divergence from the full cache, in nats a token, that compressing a prompt may
  // cause: the smallest share of the prompt is searched whose estimate is below it
  // (SessionInfo::quality), which reads the prompt several times. Not with a Scheduler.
  double quality = 0;
  int64_t prefill_chunk = 0;  // tokens of a prompt taken at a time; 0: all of it

  bool operator==(const Compression&) const = default;
};

struct MethodParameter {
  std::string name;
  std::string default_value;         // as written in Compression::method
  std::string description;           // a line
  std::vector<std::string> choices;  // where it is one of a few
};

struct MethodInfo {
  std::string name;
  std::string description;   // what stays, a line
  std::string source;        // paper and code
  bool needs_budget = true;  // false: it finds its own size
  int64_t min_size = 0;      // the smallest budget
  std::vector<MethodParameter> parameters;
};

// All methods, in the order of the documentation. Thread-safe.
std::vector<MethodInfo> ListMethods();

}  // namespace winnow
