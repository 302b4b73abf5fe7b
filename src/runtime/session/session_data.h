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
  // Entries that query heads attended to, and could have attended to, in decode steps with a method
  // that selects.
  int64_t n_attended = 0;
  int64_t n_attendable = 0;

  // Passes the model's error profiles to the compressor if the method needs them. Error: there are
  // none.
  Result<void> FindProfiles();

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  bool evicts() const { return compressor.active(); }
  // Whether decode steps attend to selected entries only.
  bool selects() const {
    return evicts() && options.compression.method->traits().attention.Selects();
  }
  // Maximum number of entries over all heads.
  int64_t MaxHeld() const;
  // Tokens that are read at once of a prompt of n.
  int64_t CallSize(int64_t n) const;

  // A call of the model. BeginCall returns its span, which refers to this session and to `added`.
  // EndCall follows, or Rollback if the step failed or was stopped: the session is then as it was
  // before, or empty if a method evicts. Error of EndCall: a broken invariant; the logits are gone,
  // and the caller must call Rollback.
  model::TokenSpan BeginCall(std::span<const TokenId> added, compression::Phase phase);
  Result<void> EndCall(std::span<const TokenId> added, compression::Phase phase);
  void Rollback();

  // The passes of the replay of a call's tokens, which are in the cache. None if the method asks
  // for none, or if there is no room (compression::ReplaySpec, session_replay.cc).
  struct ReplayPass {
    compression::ReplayChunk chunk;
    std::vector<TokenId> tokens;   // the text before the chunk, and the chunk
    cache::Position first = 0;     // of tokens[0]
    attention::RowSpec rows = {};  // of this pass: its part of ReplaySpec::rows
  };
  std::vector<ReplayPass> PlanReplay(std::span<const TokenId> added) const;
  // The span of a pass; it refers to the pass and to this session. The pass's entries are removed
  // from each layer as soon as the method has seen them.
  model::TokenSpan BeginReplay(const ReplayPass& pass);

  // Appends the tokens of a call to the text; their entries are in the cache already.
  void Advance(std::span<const TokenId> added);
  // Counts the entries that a step could have attended to.
  void CountAttendable();
  void Clear();
};

// The error of a session that holds n_taken of n_all tokens and has no room for n more.
Error ContextFull(int64_t n, int64_t n_taken, int64_t n_all);

}  // namespace winnow::runtime
