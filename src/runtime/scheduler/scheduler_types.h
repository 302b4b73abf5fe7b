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

// What goes into the scheduler and what comes out of it.
namespace winnow::runtime {

// Time, so that tests can turn it. Thread-safe.
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
  double max_token_gap_ms =
      250;                // between two tokens of a running sequence, while a prompt is read
  int max_running = 32;   // sequences that decode or are in prefill (-np)
  int max_waiting = 256;  // requests in the queue; more are refused
  int max_overtakes = 4;  // by later requests that fit where an earlier one does not
  int max_unnamed = 32;   // ended sequences kept for their prefixes, besides named sessions
  int64_t default_max_tokens = -1;  // of requests that name none; -1: to the end of their context
  SessionOptions defaults = {};     // of requests that name no options
  std::string session_path = {};    // folder of saved sessions; empty: sessions live in memory only
  std::string model_name = {};      // as shown
  // Called before a file is read, written or removed, in the thread that does it; not for what is
  // written last of all.
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
  // The member of Request that is wrong, or of its options ("memory_bytes", "ratio", "size");
  // empty: none is alone.
  std::string param = {};
};

// How the beginning of a prompt was found in what was there already.
enum class PrefixReuse {
  kNone,
  kExact,       // nothing was evicted: as if it had been read
  kCompressed,  // from the end of a compressed text on
};

struct CacheReport {           // "kv" of an answer
  std::string method = {};     // "snapkv:window=16", "full"
  int64_t n_seen = 0;          // tokens
  double n_kept = 0;           // entries per KV head, the mean over layers and heads
  int64_t bytes = 0;           // with lists
  int64_t bytes_full_f16 = 0;  // of the same tokens
};

// What happens to a request, in this order: kPrefill*, kStarted, kToken*, then kFinished for each
// of its `n` choices; or one kFailed at any time.
struct Event {
  enum class Kind { kPrefill, kStarted, kToken, kFinished, kFailed };
  Kind kind = Kind::kToken;
  int choice = 0;  // 0..n-1
  // kPrefill: tokens of the prompt done, of all
  int64_t n_done = 0, n_all = 0;
  // kStarted; n_reused: kPrefill too
  int64_t n_prompt = 0, n_reused = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
  // kToken
  TokenId token = 0;
  std::string text = {};      // that became final with this token; may be empty
  float log_probability = 0;  // of the token, where n_probs >= 0
  std::vector<TokenProbability> top = {};
  // kFinished
  Finish finish = Finish::kStop;
  std::string stopping_word = {};
  std::string rest = {};  // text that only now became final
  CacheReport cache = {};
  GenerateTimings timings = {};
  double queued_ms = 0;
  // kFailed; kFinished with kError: of this choice alone
  RequestError error = {};
};

struct Request {
  std::vector<TokenId> prompt = {};         // the whole text so far
  std::optional<std::string> session = {};  // continue (and keep) this named session; the prompt
                                            // then follows its text unless it begins with it
  // A new one begins and is this named session afterwards, in place of the one that was. Not with
  // `session`.
  std::optional<std::string> replaces = {};
  std::optional<SessionOptions> options =
      {};                    // method, budget, types; default: those of the scheduler
  bool reuse_prefix = true;  // look for the prompt's beginning in idle sessions
  // Also where the method chose what to keep by the questions asked so far
  // (Method::query_dependent) and the prompt asks another one.
  bool reuse_across_questions = false;
  bool keep = true;  // the sequence stays as an idle session afterwards
  // Of a new session: so many tokens at the beginning of the prompt are a document. Kept with the
  // session, its copies and its files.
  int64_t n_document = 0;
  SamplerConfig sampler = {};
  int64_t max_tokens = -1;
  std::vector<std::string> stop = {};
  bool ignore_eos = false;
  int n = 1;         // choices, by forking after the prompt; choice i has the seed sampler.seed + i
  int n_probs = -1;  // -1: no log-probabilities; k: the token's and the k best
  int priority = 0;  // larger first
  std::unique_ptr<TokenConstraint> constraint = {};
  // True: as Ticket::Cancel, without a ticket. Asked on the scheduler's thread, often.
  std::function<bool()> cancelled = {};
  // On the scheduler's thread; must not block. Called for the last time with kFinished of the last
  // choice, or kFailed.
  std::function<void(const Event& event)> on_event = {};
};

struct SessionInfo {
  std::string id = {};
  int64_t n_tokens = 0;
  CacheReport cache = {};
  bool busy = false;
  bool on_disk = false;  // saved, not in memory: what it keeps, and in how many bytes, is not known
  int64_t file_bytes = 0;  // where it is on disk
  double idle_seconds = 0;
};

// What a session has read, and the last token of its answer: shown, but not read yet.
struct SessionTokens {
  std::vector<TokenId> tokens = {};
  std::vector<TokenId> unread = {};  // without a token that ends generation
  int64_t n_document = 0;            // Request::n_document
};

// For pictures: share of KV heads (all layers) that keep each token, and the same by layer and
// head.
struct KeptTokens {
  std::vector<TokenId> tokens = {};
  std::vector<float> share = {};  // [token] 0..1
  // [layer * n_kv_heads + head] ascending positions; filled where asked for. n_kv_heads is that of
  // the layer with the most; what others lack is empty.
  std::vector<std::vector<int32_t>> by_head = {};
  int n_layers = 0, n_kv_heads = 0;
  int64_t n_document = 0;  // Request::n_document
};

struct SchedulerState {  // for /metrics, /slots, /health
  int n_running = 0, n_waiting = 0, n_idle_sessions = 0, n_saved_sessions = 0;
  int64_t reserved_bytes = 0, live_bytes = 0, limit_bytes = 0, model_bytes = 0;
  int64_t fixed_bytes = 0;         // model and buffers: what no sequence can have
  int64_t max_sequence_bytes = 0;  // the largest reservation of a sequence so far
  int64_t n_prompt_tokens = 0, n_generated_tokens = 0, n_requests = 0, n_failed = 0,
          n_cancelled = 0;
  int64_t n_broken_invariants = 0;                  // by requests that then ended (Invariants)
  int64_t n_prefix_queries = 0, n_prefix_hits = 0;  // tokens asked for, tokens found
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
