#include "stream.h"

#include "base/fixed.h"
#include "base/machine.h"
#include "compression/registry.h"
#include "eval/run/stream.h"
#include "interrupt.h"
#include "report/record.h"

namespace winnow::apps {
namespace {

// A row of the table, which is also an element of the JSON list "points".
report::Record PointRecord(const eval::StreamPoint& point, const Session& session,
                           int64_t n_recent) {
  const double per_second =
      point.recent_seconds > 0 ? static_cast<double>(n_recent) / point.recent_seconds : 0;
  return {{"tokens", point.n_tokens},
          {"nll", point.nll.mean()},
          {"recent_nll", point.recent_nll},
          {"tokens_per_second", per_second},
          {"cache_bytes", session.cache_bytes()},
          {"cache_bytes_with_lists", session.cache_bytes_with_lists()},
          {"resident_bytes", ResidentBytes()}};
}

void PrintLine(const report::Record& point) {
  const auto number = [&](const char* name) { return std::get<double>(point.Find(name)->data); };
  const auto bytes = [&](const char* name) {
    return PadLeft(HumanBytes(std::get<int64_t>(point.Find(name)->data)), 13);
  };
  Print(PadLeft(std::to_string(std::get<int64_t>(point.Find("tokens")->data)), 10) +
        PadLeft(Fixed(number("nll"), 4), 10) + PadLeft(Fixed(number("recent_nll"), 4), 10) +
        PadLeft(Fixed(number("tokens_per_second"), 1), 10) + bytes("cache_bytes") +
        bytes("cache_bytes_with_lists") + bytes("resident_bytes") + "\n");
  Flush();
}

}  // namespace

std::optional<std::string> NothingEvictedWarning(const runtime::CompressionOptions& options) {
  if (!options.method || options.prefill_chunk > 1) return std::nullopt;
  const compression::Traits& traits = options.method->traits();
  if (!traits.decisions.Evicts(compression::Phase::kPrefill) || traits.decisions.evicts_in_decode)
    return std::nullopt;
  return traits.spec +
         " compresses only prompts, and token by token there is none: nothing is evicted. Add "
         "--kv-decode METHOD or --prefill-chunk N";
}

std::optional<std::string> PerplexityWarning(double perplexity, int64_t vocabulary) {
  if (!(perplexity > static_cast<double>(vocabulary))) return std::nullopt;
  return "a perplexity of " + Fixed(perplexity, 0) + " is worse than guessing: there are " +
         std::to_string(vocabulary) +
         " tokens. Model and text do not fit: another language, line ends, no text at all?";
}

void AddStreamFlags(FlagTable& table, StreamFlags& flags) {
  table.Group("A text of any length");
  table.Switch({"--stream"},
               "score every token in one pass through the whole text, each from what the method "
               "kept of all before it; token by token, or in chunks of --prefill-chunk",
               &flags.enabled);
  table.Add({"--every"}, "N", "with --stream: tokens between two lines of output", &flags.every);
}

int StreamPerplexity(const StreamTask& task, ConsoleLog& log) {
  if (task.flags.every < 1) return Misuse("perplexity", "flag --every: expected 1 or more");
  Session& session = task.loaded.session;
  const auto n_tokens = static_cast<int64_t>(task.tokens.size());
  if (n_tokens > session.capacity()) {
    if (const int64_t max = session.largest_streaming_budget(); max > 0) {
      return Fail(Error{"the text is " + std::to_string(n_tokens) + " tokens, more than " +
                        std::to_string(session.capacity()) + "; " + session.info().method +
                        " has no limit with a --kv-size of " + std::to_string(max) + " or less"});
    }
    return Fail(Error{"the text is " + std::to_string(n_tokens) + " tokens, more than " +
                      std::to_string(session.capacity()) + "; these methods have no limit: " +
                      compression::ListNames([](const compression::Method& method) {
                        const compression::Traits& traits = method.traits();
                        return traits.storage.ReassignsPositions() &&
                               traits.decisions.evicts_in_decode;
                      }) +
                      "; others need -c " + std::to_string(n_tokens)});
  }
  if (const auto fits = CheckTrainedContext(task.kv, task.loaded.model, session, n_tokens); !fits) {
    return Fail(fits.error());
  }
  log.Info("text   " + std::to_string(n_tokens) + " tokens, one stream");
  const auto compression = CompressionOptionsFrom(task.kv);
  if (!compression) return Fail(compression.error());
  if (const auto warning = NothingEvictedWarning(*compression)) log.Warning(*warning);
  const std::atomic<bool>& interrupted = CatchInterrupt();
  if (!task.json)
    Print("    tokens   mean NLL    recent  tokens/s        cache   with lists     resident\n");
  ProgressLine progress("scoring");
  report::List points;
  int64_t told = 0;
  eval::StreamOptions options;
  options.every = task.flags.every;
  options.on_point = [&](const eval::StreamPoint& point) {
    report::Record record = PointRecord(point, session, point.n_tokens - told);
    told = point.n_tokens;
    if (!task.json) {
      progress.Erase();
      PrintLine(record);
    }
    points.emplace_back(std::move(record));
  };
  options.progress = [&](double done) {
    progress.Update(done);
    return !interrupted.load();
  };
  const int64_t chunk = compression->prefill_chunk;
  eval::StreamReader reader;
  reader.n_at_once = eval::StreamChunk(compression->method != nullptr, chunk, task.flags.every);
  reader.logits = [&] { return session.logits(); };
  reader.score = [&, n_prompt = chunk > 0 ? -1 : 0](std::span<const Token> tokens) {
    return session.Score(tokens, {.first = 1, .n_prompt = n_prompt});
  };
  const auto end = eval::ScoreStream(reader, task.tokens, options);
  progress.Erase();
  if (!end) return Fail(end.error());
  if (const auto finished = FinishTrace(task.loaded); !finished) return Fail(finished.error());
  const double perplexity = Perplexity(end->nll);
  const double error = PerplexityError(end->nll);
  if (task.json) {
    Print(
        report::ToJson(report::Record{{"perplexity", perplexity},
                                      {"standard_error", error},
                                      {"nll", end->nll.mean()},
                                      {"tokens", end->n_tokens},
                                      {"tokens_scored", end->nll.count()},
                                      {"cache_bytes", session.cache_bytes()},
                                      {"cache_bytes_with_lists", session.cache_bytes_with_lists()},
                                      {"kv", KvRecord(session)},
                                      {"points", std::move(points)}}) +
        "\n");
  } else {
    Print("Final estimate: PPL = " + Fixed(perplexity, 4) + " +/- " + Fixed(error, 5) + "\n");
  }
  if (const auto warning = PerplexityWarning(perplexity, task.loaded.model.vocabulary_size()))
    log.Warning(*warning);
  const int printed = FinishOutput();
  if (printed != kDone) return printed;
  return end->n_tokens < n_tokens ? InterruptedCode() : kDone;
}

}  // namespace winnow::apps
