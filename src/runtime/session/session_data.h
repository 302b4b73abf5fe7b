#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/step.h"
#include "runtime/model_projections.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

struct Session::Data {
  Data(Engine& e, const SessionOptions& o)
      : engine(&e),
        options(o),
        output_projections(e.model()),
        compressor(o.compression, e.model().hyperparameters().layer(0).n_heads, e.backend(),
                   e.invariants(), &output_projections) {}

  Engine* engine = nullptr;
  SessionOptions options;
  ModelProjections output_projections;
  Compressor compressor;
  std::unique_ptr<cache::Cache> cache;
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [vocabulary]
  bool has_logits = false;    // of the last token
  std::optional<QualityFound> quality;
  int64_t n_attended = 0;  // by query heads while decoding with a selecting method
  int64_t n_attendable = 0;

  // Those of the model, where the method needs them. Error: there are none.
  Result<void> FindProfiles();

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  bool evicts() const { return compressor.active(); }
  // Whether single tokens attend to some entries only.
  bool selects() const {
    return evicts() && options.compression.method->traits().attention.Selects();
  }
  // Entries of the longest head.
  int64_t MaxHeld() const;
  // Tokens of a prompt of n that are taken in at once.
  int64_t CallSize(int64_t n) const;

  // A call of the model. BeginCall gives its span, which refers to this session and to `added`;
  // then EndCall, or Rollback where the step failed or was stopped: the session is as it was
  // before, or empty where a method evicts. Error of EndCall: an invariant is broken, and Rollback
  // is to follow; the logits are gone.
  model::TokenSpan BeginCall(std::span<const TokenId> added, compression::Phase phase);
  Result<void> EndCall(std::span<const TokenId> added, compression::Phase phase);
  void Rollback();

  // The passes of the replay of a call's tokens, which are in the cache; none where the method asks
  // for none, or where there is no room (compression::ReplaySpec, session_replay.cc).
  struct ReplayPass {
    compression::ReplayChunk chunk;
    std::vector<TokenId> tokens;   // the text before the chunk, and the chunk
    cache::Position first = 0;     // of the tokens
    attention::RowSpec rows = {};  // of this pass: its part of ReplaySpec::rows
  };
  std::vector<ReplayPass> PlanReplay(std::span<const TokenId> added) const;
  // The span of a pass, which refers to it and to this session. Its entries leave every layer as
  // soon as the method has seen them.
  model::TokenSpan BeginReplay(const ReplayPass& pass);

  // After a call of the model: its tokens are in the cache.
  void Advance(std::span<const TokenId> added);
  // A step was taken: counts the entries it could have attended to.
  void CountAttendable();
  void Clear();
};

// What a session says that has no room for n tokens.
Error ContextFull(int64_t n, int64_t n_taken, int64_t n_all);

}  // namespace winnow::runtime
