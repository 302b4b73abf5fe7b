#include "server/openai/metrics.h"

#include <algorithm>
#include <cstdio>

namespace winnow::server {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

class Page {
 public:
  void Line(std::string_view name, std::string_view labels, double value) {
    out_.append(name).append(labels).append(" ").append(Number(value)).append("\n");
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Add(name, "gauge", help, value);
  }
  void Counter(std::string_view name, std::string_view help, double value) {
    Add(name, "counter", help, value);
  }
  void Head(std::string_view name, std::string_view type, std::string_view help) {
    out_.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
    out_.append(name).append(" ").append(type).append("\n");
  }
  std::string& out() { return out_; }

 private:
  void Add(std::string_view name, std::string_view type, std::string_view help, double value) {
    Head(name, type, help);
    Line(name, "", value);
  }
  std::string out_;
};

double PerSecond(int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

void WriteOwn(Page& page, const runtime::SchedulerState& s) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  page.Gauge("winnow_requests_running", "Requests in prefill or decode.", s.n_running);
  page.Gauge("winnow_requests_waiting", "Requests in the queue.", s.n_waiting);
  page.Gauge("winnow_sessions_idle", "Sessions in memory that no request uses.", s.n_idle_sessions);
  page.Gauge("winnow_sessions_saved", "Sessions on disk.", s.n_saved_sessions);
  page.Gauge("winnow_reserved_bytes", "Bytes reserved for all sequences.", d(s.reserved_bytes));
  page.Gauge("winnow_live_bytes", "Bytes of all caches now.", d(s.live_bytes));
  page.Gauge("winnow_memory_limit_bytes",
             "Memory limit for model, buffers and caches; 0: unlimited.", d(s.limit_bytes));
  page.Gauge("winnow_model_bytes", "Bytes of the model and its buffers.", d(s.model_bytes));
  page.Gauge("winnow_fixed_bytes", "Bytes of model and buffers, not available to sequences.",
             d(s.fixed_bytes));
  page.Gauge("winnow_max_sequence_bytes", "The largest reservation of a sequence so far.",
             d(s.max_sequence_bytes));
  page.Gauge("winnow_draining", "1 while the server shuts down.", s.draining ? 1 : 0);
  page.Counter("winnow_prompt_tokens_total", "Prompt tokens processed.", d(s.n_prompt_tokens));
  page.Counter("winnow_generated_tokens_total", "Tokens generated.", d(s.n_generated_tokens));
  page.Counter("winnow_requests_total", "Requests completed.", d(s.n_requests));
  page.Counter("winnow_requests_failed_total", "Requests that failed.", d(s.n_failed));
  page.Counter("winnow_requests_cancelled_total", "Requests whose client disconnected.",
               d(s.n_cancelled));
  page.Counter("winnow_broken_invariants_total", "Bugs found; the current request failed.",
               d(s.n_broken_invariants));
  page.Counter("winnow_prefix_tokens_queried_total", "Prompt tokens looked for in idle sessions.",
               d(s.n_prefix_queries));
  page.Counter("winnow_prefix_tokens_hit_total", "Prompt tokens found in idle sessions.",
               d(s.n_prefix_hits));
  page.Counter("winnow_prefill_seconds_total", "Time spent on prompts.", s.prefill_seconds);
  page.Counter("winnow_decode_seconds_total", "Time spent on generated tokens.", s.decode_seconds);
}

void WriteLlamaCpp(Page& page, const runtime::SchedulerState& s) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  page.Counter("llamacpp:prompt_tokens_total", "Number of prompt tokens processed.",
               d(s.n_prompt_tokens));
  page.Counter("llamacpp:prompt_seconds_total", "Prompt process time.", s.prefill_seconds);
  page.Counter("llamacpp:tokens_predicted_total", "Number of generation tokens processed.",
               d(s.n_generated_tokens));
  page.Counter("llamacpp:tokens_predicted_seconds_total", "Predict process time.",
               s.decode_seconds);
  page.Gauge("llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s.",
             PerSecond(s.n_prompt_tokens, s.prefill_seconds));
  page.Gauge("llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s.",
             PerSecond(s.n_generated_tokens, s.decode_seconds));
  page.Gauge("llamacpp:requests_processing", "Number of requests processing.", s.n_running);
  page.Gauge("llamacpp:requests_deferred", "Number of requests deferred.", s.n_waiting);
}

}  // namespace

void Histogram::Add(double seconds) {
  const auto* bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  ++n_;
  sum_ += seconds;
}

void Histogram::Write(std::string& out, std::string_view name, std::string_view help,
                      std::string_view label) const {
  Page page;
  page.Head(name, "histogram", help);
  const std::string bucket = std::string(name) + "_bucket";
  const std::string before = "{" + std::string(label) + (label.empty() ? "" : ",") + "le=\"";
  const std::string labels = label.empty() ? "" : "{" + std::string(label) + "}";
  uint64_t n = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    n += counts_[i];
    page.Line(bucket, before + Number(kBounds[i]) + "\"}", static_cast<double>(n));
  }
  page.Line(bucket, before + "+Inf\"}", static_cast<double>(n_));
  page.Line(std::string(name) + "_sum", labels, sum_);
  page.Line(std::string(name) + "_count", labels, static_cast<double>(n_));
  out += page.out();
}

void Metrics::OnResponse(int status) {
  const std::lock_guard lock(mutex_);
  ++replies_[status];
}
void Metrics::OnFirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.Add(seconds);
}
void Metrics::OnNextToken(double seconds) {
  const std::lock_guard lock(mutex_);
  next_token_.Add(seconds);
}
void Metrics::OnFinished(double seconds) {
  const std::lock_guard lock(mutex_);
  finished_.Add(seconds);
}
void Metrics::OnQueued(double seconds) {
  const std::lock_guard lock(mutex_);
  queued_.Add(seconds);
}
void Metrics::OnCache(const runtime::CacheReport& cache) {
  const std::lock_guard lock(mutex_);
  max_tokens_ = std::max<int64_t>(max_tokens_, cache.n_seen);
  if (cache.bytes_full_f16 > 0) {
    kept_share_ = static_cast<double>(cache.bytes) / static_cast<double>(cache.bytes_full_f16);
  }
}

std::string Metrics::Text(const runtime::SchedulerState& s, const ModelInfo& model) const {
  const std::lock_guard lock(mutex_);
  Page page;
  WriteOwn(page, s);
  page.Gauge("winnow_kept_share",
             "Bytes of the last answer's cache, of those of a full one in f16.", kept_share_);
  page.Head("winnow_http_replies_total", "counter", "HTTP responses by status.");
  for (const auto& [status, n] : replies_) {
    page.Line("winnow_http_replies_total", "{status=\"" + std::to_string(status) + "\"}",
              static_cast<double>(n));
  }
  first_token_.Write(page.out(), "winnow_time_to_first_token_seconds",
                     "From a request's arrival to its first token.");
  next_token_.Write(page.out(), "winnow_time_between_tokens_seconds",
                    "Between two tokens of an answer.");
  finished_.Write(page.out(), "winnow_request_seconds", "From a request's arrival to its end.");
  queued_.Write(page.out(), "winnow_queue_seconds", "A request's time in the queue.");
  WriteLlamaCpp(page, s);
  page.Gauge("llamacpp:n_tokens_max", "Largest observed n_tokens.",
             static_cast<double>(max_tokens_));

  std::string name = model.name;  // backslash, quote and newline would end the label
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '"' || c == '\\' || c == '\n'; }, '_');
  const std::string label = "model_name=\"" + name + "\"";
  const auto vllm = [&](std::string_view metric, std::string_view type, std::string_view help,
                        double value) {
    page.Head(metric, type, help);
    page.Line(metric, "{" + label + "}", value);
  };
  const int64_t room = s.limit_bytes - s.fixed_bytes;
  const double usage = s.limit_bytes > 0 && room > 0
                           ? static_cast<double>(s.reserved_bytes) / static_cast<double>(room)
                           : 0;
  vllm("vllm:num_requests_running", "gauge", "Requests in execution.", s.n_running);
  vllm("vllm:num_requests_waiting", "gauge", "Requests waiting.", s.n_waiting);
  vllm("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage, 1 is all.", usage);
  vllm("vllm:prompt_tokens_total", "counter", "Prefill tokens processed.",
       static_cast<double>(s.n_prompt_tokens));
  vllm("vllm:generation_tokens_total", "counter", "Generation tokens processed.",
       static_cast<double>(s.n_generated_tokens));
  vllm("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in tokens.",
       static_cast<double>(s.n_prefix_queries));
  vllm("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in tokens.",
       static_cast<double>(s.n_prefix_hits));
  first_token_.Write(page.out(), "vllm:time_to_first_token_seconds", "Time to first token.", label);
  next_token_.Write(page.out(), "vllm:time_per_output_token_seconds", "Time per output token.",
                    label);
  return std::move(page.out());
}

}  // namespace winnow::server
