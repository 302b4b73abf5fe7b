#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "runtime/session/session.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {

// Reads the prompts of one or several sessions of an engine, and can be left after every row block:
// other steps may run in between, on other sessions. Session::Prefill is one of these run to its
// end. Prompts that are read together share the passes through the model; a prompt that is taken in
// parts (CompressionOptions::prefill_chunk) takes one pass a part.
//
// What goes wrong with a prompt is its own matter: the others go on. Not thread-safe.
class Prefill {
 public:
  // Nobody else uses the step while the prefill is active.
  explicit Prefill(model::Step& step) : step_(step) {}
  ~Prefill() { Abandon(); }
  Prefill(const Prefill&) = delete;
  Prefill& operator=(const Prefill&) = delete;

  struct Prompt {
    Session* session = nullptr;
    std::span<const TokenId> tokens;
    // As Session::PrefillOptions.
    std::function<void(int64_t first_row, std::span<const float> logits)> on_logits = {};
    int64_t logits_from = -1;
  };
  // Sessions and tokens stay until the end. A prompt that is refused (Session::Prefill says when)
  // has a failure(), and its session is as before.
  // Requires: not active; no session twice.
  void Begin(std::span<const Prompt> prompts);
  // Works until the quota is used up, for which a piece of what a method decides at the end counts
  // as a block. True: all prompts are read, have failed or were dropped; with logits() of their
  // sessions.
  bool Run(const model::Quota& quota = {});
  // Works until all that is left of the pass is what methods decide at the end, or all is done.
  // False: stopped by `goes_on`, which is asked after every block.
  bool RunToDecision(const std::function<bool(double done)>& goes_on);
  // Whether the last Run was no block of rows but such a piece.
  bool decided() const { return decided_; }
  // Whether all that is left of the pass is such pieces: others may use the step.
  bool deciding() const { return deciding_; }
  // Leaves a prompt out, or all: the session is as before Begin, without logits where the pass is
  // past its layers, or empty where a method evicts, and is not touched any more.
  void Drop(size_t prompt);
  void Abandon();

  bool active() const { return !pass_.empty(); }
  // Of a prompt, once it was refused or failed: its session is as Drop leaves it.
  const std::optional<Error>& failure(size_t prompt) const { return works_[prompt].failure; }
  // Share of the tokens of all prompts that are done, 0..1.
  double done() const;

 private:
  struct Work {
    Prompt prompt;
    int64_t n_before = 0;  // tokens of the session
    int64_t n_call = 0;    // taken at a time
    int64_t n_read = 0;
    bool appends = false;  // Compressor::appends
    // Passes of the replay of the part that was read last (compression::ReplaySpec), and how many
    // of them are done; empty: the next part comes.
    std::vector<Session::Data::ReplayPass> replay = {};
    size_t n_replayed = 0;
    std::optional<Error> failure;
    bool dropped = false;
    bool decides = false;  // the part is read, what stays of it is being decided
    int64_t n_left() const { return static_cast<int64_t>(prompt.tokens.size()) - n_read; }
    std::span<const TokenId> part() const {
      return prompt.tokens.subspan(static_cast<size_t>(n_read),
                                   static_cast<size_t>(std::min(n_call, n_left())));
    }
    bool replays() const { return n_replayed < replay.size(); }
    compression::Phase phase() const {
      return appends ? compression::Phase::kDecode : compression::Phase::kPrefill;
    }
  };
  // A part of a prompt, or a pass of its replay, in the current pass of the model.
  struct Part {
    size_t work = 0;
    // Of the part's tokens: where this pass begins and ends, counted as work.
    double from = 0;
    double to = 1;
  };

  Result<void> Prepare(Work& work) const;
  void BeginPass();
  void EndPass();
  bool DecideSome();
  void AddPart(size_t i);
  void AddReplay(size_t i);
  // The last pass of a part is done.
  void EndPart(Work& work) const;
  void Rollback(Work& work) const;
  // In the middle of a pass.
  void Leave(Work& work) const;
  void Fail(const Error& error);

  model::Step& step_;
  std::vector<Work> works_;
  std::vector<Part> pass_;
  std::vector<model::TokenSpan> spans_;  // [part]
  bool deciding_ = false;  // the pass is through the model, and not all of its works have decided
  bool decided_ = false;
  int64_t n_all_ = 0;  // tokens
};

}  // namespace winnow::runtime
