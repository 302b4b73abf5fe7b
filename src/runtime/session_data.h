#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/step.h"
#include "runtime/model_projections.h"
#include "runtime/session.h"

namespace winnow::runtime {

struct Session::Data {
  Data(Engine& e, const SessionOptions& o)
      : engine(&e),
        options(o),
        output_projections(e.model()),
        compressor(o.compression, e.model().hyperparameters().n_heads, e.backend(),
                   &output_projections) {}

  Engine* engine = nullptr;
  SessionOptions options;
  ModelProjections output_projections;
  Compressor compressor;
  std::unique_ptr<cache::Cache> cache;
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [vocabulary]
  bool has_logits = false;    // of the last token
  int64_t n_attended = 0;     // by query heads while decoding with a selecting method
  int64_t n_attendable = 0;

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  bool evicts() const { return compressor.active(); }
  // Whether single tokens attend to some entries only.
  bool selects() const { return evicts() && options.compression.method->traits().top_p < 1; }
  // Entries of the longest head.
  int64_t MaxHeld() const;
  // Tokens of a prompt of n that are taken in at once.
  int64_t CallSize(int64_t n) const;

  // A call of the model. BeginCall gives its span, which refers to this session and to `added`;
  // then EndCall, or Rollback where the step failed or was stopped: the session is as it was
  // before, or empty where a method evicts.
  model::TokenSpan BeginCall(std::span<const TokenId> added, compression::Phase phase);
  void EndCall(std::span<const TokenId> added, compression::Phase phase);
  void Rollback();

  // A part of a prompt, or all of it.
  struct Part {
    int64_t first = 0;  // token
    int64_t n = 0;
    int64_t n_prompt = 0;
    const PrefillOptions& wanted;
    // Shares of the part's work: what Run does of it, from where to where.
    double from = 0;
    double to = 1;

    // Tells how far the whole prompt is when `done` of Run's share is; false: stop.
    bool KeepsGoing(double done) const {
      if (!wanted.progress) return true;
      const double of_part = from + done * (to - from);
      const double n_done = static_cast<double>(first) + of_part * static_cast<double>(n);
      return wanted.progress(n_done / static_cast<double>(n_prompt));
    }
  };
  // False: stopped by progress.
  Result<bool> Prefill(std::span<const TokenId> added, const Part& part);
  Result<bool> Run(const model::TokenSpan& span, const Part& part);
  // The same for methods that decide at the end: the prompt, its replay if there is one, and the
  // decision (session_replay.cc).
  Result<bool> RunAndDecide(const model::TokenSpan& span, std::span<const TokenId> added,
                            const Part& part);

  // After a prefill call, where the method asks for it (compression::ReplaySpec). False: as above.
  Result<bool> Replay(std::span<const TokenId> added, const Part& part);
  Result<bool> ReplayChunk(std::span<const TokenId> added, const compression::ReplayChunk& chunk,
                           std::span<const TokenId> text, const Part& part);

  // After a call of the model: its tokens are in the cache.
  void Advance(std::span<const TokenId> added);
  // A step was taken: counts the entries it could have attended to.
  void CountAttendable();
  void Clear();
};

// What a session says that has no room for n tokens.
Error ContextFull(int64_t n, int64_t n_taken, int64_t n_all);

}  // namespace winnow::runtime
