#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/generate/constraint.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/logits.h"
#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"
#include "runtime/store/text_outline.h"

// The scheduler's interface: options, requests, events, session information and state.
namespace winnow::runtime {

// A clock that tests can control. Thread-safe.
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

inline double Milliseconds(Clock::TimePoint from, Clock::TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

struct SchedulerOptions {
  int64_t memory_limit_bytes = 0;  // model, buffers and caches together; 0: none
  // Target for the longest time between two tokens of a running sequence while a prompt is read.
  double max_token_gap_ms = 250;
  int max_running = 32;   // sequences that decode or are in prefill (-np)
  int max_waiting = 256;  // requests in the queue; more are refused
  // How often later requests that fit may start before a waiting one that does not.
  int max_overtakes = 4;
  int max_unnamed = 32;  // ended sequences kept for their prefixes, besides named sessions
  // For requests that set none; -1: to the end of their context.
  int64_t default_max_tokens = -1;
  SessionOptions defaults = {};   // for requests without options
  std::string session_path = {};  // folder of saved sessions; empty: sessions live in memory only
  // Called before a file is read, written or removed, in the thread that does it; not for the files
  // that Drain writes last (NamedSessions::SaveAll).
  std::function<void()> on_file_work = {};
};

enum class Finish { kStop, kStopString, kLength, kContext, kCancelled, kError };

enum class ErrorKind {
  kInvalid,      // the request can never be served (400): the message says why
  kNotFound,     // no such session (404)
  kBusy,         // the session is in use by another request (409)
  kQueueFull,    // try again later (429)
  kTooLarge,     // can never fit into the memory limit; the message has both numbers of bytes (400)
  kUnavailable,  // draining (503)
  kInternal,     // a broken invariant, logged (500)
};
struct RequestError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message = {};
  // The member of Request, or of its options ("memory_bytes", "ratio", "size"), that is wrong;
  // empty: no single one.
  std::string param = {};
};

// How a request reuses an existing session for the beginning of its prompt.
enum class PrefixReuse {
  kNone,
  kExact,       // nothing was evicted: same as reading the prefix again
  kCompressed,  // continues a compressed session at the end of its text
};

struct CacheReport {           // "kv" in a response
  std::string method = {};     // "snapkv:window=16", "full"
  int64_t n_seen = 0;          // tokens
  double n_kept = 0;           // entries per KV head, the mean over layers and heads
  int64_t bytes = 0;           // with lists
  int64_t bytes_full_f16 = 0;  // the same tokens, uncompressed, in f16
};

// What happens to a request, in this order: kPrefill*, kStarted, kToken*, then kFinished for each
// of its `n` choices; or one kFailed at any time.
struct Event {
  enum class Kind { kPrefill, kStarted, kToken, kFinished, kFailed };
  Kind kind = Kind::kToken;
  int choice = 0;  // 0..n-1
  // kPrefill: prompt tokens read so far, and in total
  int64_t n_done = 0, n_all = 0;
  // kStarted; n_reused also with kPrefill
  int64_t n_prompt = 0, n_reused = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
  // kToken
  TokenId token = 0;
  std::string text = {};      // final text added by this token; may be empty
  float log_probability = 0;  // of the token, if n_probs >= 0
  std::vector<TokenProbability> top = {};
  // kFinished
  Finish finish = Finish::kStop;
  std::string stopping_word = {};
  std::string rest = {};  // text that became final only at the end
  CacheReport cache = {};
  GenerateTimings timings = {};
  double queued_ms = 0;
  // kFailed; with kFinished and kError: of this choice only
  RequestError error = {};
};

struct Request {
  std::vector<TokenId> prompt = {};  // the whole text so far
  // Continue (and keep) this named session. The prompt is appended to its text, unless the prompt
  // begins with that text.
  std::optional<std::string> session = {};
  // The prompt begins with the text of `session`. Should another request have changed that text
  // since it was read, this one fails with kBusy instead of appending its whole prompt.
  bool begins_with_session = false;
  // Start a new sequence and keep it under this name, in place of the session that had the name.
  // Excludes `session`.
  std::optional<std::string> replaces = {};
  // Method, budget, types; default: SchedulerOptions::defaults.
  std::optional<SessionOptions> options = {};
  bool reuse_prefix = true;  // look for the prompt's beginning in idle sessions
  // Reuse a prefix even if the method chose what to keep by the questions asked so far
  // (Method::query_dependent) and the prompt asks another one.
  bool reuse_across_questions = false;
  bool keep = true;  // keep the sequence as an idle session afterwards
  // Of the text that the session has then. Without a value a continued session keeps its document,
  // and its messages are no longer known.
  std::optional<TextOutline> outline = {};
  SamplerConfig sampler = {};
  int64_t max_tokens = -1;
  std::vector<std::string> stop = {};
  bool ignore_eos = false;
  int n = 1;         // choices, by forking after the prompt; choice i has the seed sampler.seed + i
  int n_probs = -1;  // -1: no log-probabilities; k: the token's and the k best
  int priority = 0;  // larger first
  std::unique_ptr<TokenConstraint> constraint = {};
  // Returns true to cancel the request, as Ticket::Cancel does. Polled often, on the scheduler's
  // thread.
  std::function<bool()> cancelled = {};
  // Called on the scheduler's thread; must not block. The last call is kFinished of the last
  // choice, or kFailed.
  std::function<void(const Event& event)> on_event = {};
};

struct SessionInfo {
  std::string id = {};
  int64_t n_tokens = 0;
  CacheReport cache = {};
  bool busy = false;
  // Saved and not in memory: the kept entries and their bytes are unknown.
  bool on_disk = false;
  int64_t file_bytes = 0;  // if it is on disk
  double idle_seconds = 0;
};

// The tokens a session has read, and the last token of its response, which the client has seen but
// the session has not read.
struct SessionTokens {
  std::vector<TokenId> tokens = {};
  std::vector<TokenId> unread = {};  // without a token that ends generation
  bool ended = false;                // the model ended the response with such a token
  TextOutline outline = {};
};

// For visualization: the share of KV heads (over all layers) that keep each token, and optionally
// the positions kept by each head.
struct KeptTokens {
  std::vector<TokenId> tokens = {};
  std::vector<float> share = {};  // [token] 0..1
  // [layer * n_kv_heads + head] ascending positions, if requested. n_kv_heads is the maximum over
  // all layers; missing heads are empty.
  std::vector<std::vector<int32_t>> by_head = {};
  int n_layers = 0, n_kv_heads = 0;
  int64_t n_document = 0;  // TextOutline::n_document
};

struct SchedulerState {  // for /metrics, /slots, /health
  int n_running = 0, n_waiting = 0, n_idle_sessions = 0, n_saved_sessions = 0;
  int64_t reserved_bytes = 0, live_bytes = 0, limit_bytes = 0, model_bytes = 0;
  int64_t fixed_bytes = 0;         // model and buffers, not available to sequences
  int64_t max_sequence_bytes = 0;  // the largest reservation of a sequence so far
  int64_t n_prompt_tokens = 0, n_generated_tokens = 0, n_requests = 0, n_failed = 0,
          n_cancelled = 0;
  int64_t n_broken_invariants = 0;                  // since the start (Invariants)
  int64_t n_prefix_queries = 0, n_prefix_hits = 0;  // prompt tokens looked up and found
  double prefill_seconds = 0, decode_seconds = 0;
  bool draining = false;
  struct Running {
    uint64_t id = 0;
    std::string session = {};
    bool prefilling = false;
    int64_t n_prompt = 0, n_done = 0, n_generated = 0;
    int64_t reserved_bytes = 0;
  };
  std::vector<Running> running = {};
};

}  // namespace winnow::runtime
