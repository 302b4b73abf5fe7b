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

// Reads the prompts of one or several sessions of an engine, and can be interrupted after every row
// block, so that steps on other sessions run in between. Session::Prefill runs one of these to its
// end. Prompts that are read together share the passes through the model; a prompt that is read in
// parts (CompressionOptions::prefill_chunk) takes one pass per part.
//
// A prompt that fails does not affect the others. Not thread-safe.
class Prefill {
 public:
  // Nothing else may use the step while the prefill is active, except while deciding().
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
  // Sessions and tokens must stay until the end. A prompt that is refused (Session::Prefill says
  // when) has a failure(), and its session is as before.
  // Requires: not active; no session twice.
  void Begin(std::span<const Prompt> prompts);
  // Runs until the quota is used up; a piece of a method's decision at the end counts as a block.
  // True: all prompts are read, have failed or were dropped; sessions whose prompts were read have
  // logits().
  bool Run(const model::Quota& quota = {});
  // Runs until only the methods' decisions at the end are left of the pass, or until all is done.
  // False: stopped by `goes_on`, which is called after every block.
  bool RunToDecision(const std::function<bool(double done)>& goes_on);
  // Whether the last Run ran a piece of a decision, not a block of rows.
  bool decided() const { return decided_; }
  // Whether only pieces of decisions are left of the pass: others may use the step then.
  bool deciding() const { return deciding_; }
  // Drops a prompt, or all. The session is as before Begin, but without logits if the pass is past
  // its layers, and empty if a method evicts. It is not touched any more.
  void Drop(size_t prompt);
  void Abandon();

  bool active() const { return !pass_.empty(); }
  // Set once a prompt was refused or has failed; its session is as Drop leaves it.
  const std::optional<Error>& failure(size_t prompt) const { return works_[prompt].failure; }
  // Share of the tokens of all prompts that are done, 0..1.
  double done() const;

 private:
  struct Work {
    Prompt prompt;
    int64_t n_before = 0;  // tokens of the session
    int64_t n_call = 0;    // read at a time
    int64_t n_read = 0;
    bool appends = false;  // Compressor::appends
    // The passes that replay the part that was read last (compression::ReplaySpec), and how many of
    // them are done; empty: the next part is due.
    std::vector<Session::Data::ReplayPass> replay = {};
    size_t n_replayed = 0;
    std::optional<Error> failure;
    bool dropped = false;
    bool decides = false;  // the part is read, and the method is deciding what to keep
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
    // Shares of the part's work that are done when this pass begins and ends.
    double from = 0;
    double to = 1;
  };

  Result<void> Prepare(Work& work) const;
  void BeginPass();
  void EndPass();
  bool DecideSome();
  void AddPart(size_t i);
  void AddReplay(size_t i);
  // Call when the last pass of a part is done.
  void EndPart(Work& work) const;
  void Rollback(Work& work) const;
  // Drops a prompt in the middle of a pass.
  void DropFromPass(Work& work) const;
  void Fail(const Error& error);

  model::Step& step_;
  std::vector<Work> works_;
  std::vector<Part> pass_;
  std::vector<model::TokenSpan> spans_;  // [part]
  // The model has run the pass, but not all prompts have decided.
  bool deciding_ = false;
  bool decided_ = false;
  int64_t n_all_ = 0;  // tokens
};

}  // namespace winnow::runtime
