#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// How much a head's output changes when entries are left out: measured on one prompt (error
// curves), and averaged over several prompts of a model (error profiles). A profile says how many
// entries each head needs before a prompt is read.
namespace winnow::compression {

// Error of a head's output, summed over the reference rows and the group, when only its first
// sizes[i] entries in some order are kept.
struct ErrorCurve {
  std::vector<int64_t> sizes;  // ascending
  std::vector<double> errors;  // [size]
};

// The mean of the curves of some prompts, as shares of their entries: the share of point i is
// 2^(-i/3).
class ErrorProfile {
 public:
  static constexpr int kPoints = 24;

  ErrorProfile(int n_layers, int n_kv_heads)
      : n_layers_(n_layers),
        n_kv_heads_(n_kv_heads),
        sums_(static_cast<size_t>(n_layers) * static_cast<size_t>(n_kv_heads)) {}

  int n_layers() const { return n_layers_; }
  int n_kv_heads() const { return n_kv_heads_; }
  int64_t n_prompts() const { return n_prompts_; }

  // Adds one prompt's curve of a head, interpolated between its sizes. Requires: at least one size.
  void Add(int layer, int kv_head, const ErrorCurve& curve);
  void EndPrompt() { ++n_prompts_; }
  // The mean error of a head at every point.
  std::array<double, kPoints> Errors(int layer, int kv_head) const;
  // The curve to assume for a head with n entries.
  ErrorCurve CurveFor(int layer, int kv_head, int64_t n) const;

  // Restores saved values: the mean errors of a head at every point, and the number of prompts.
  void Set(int layer, int kv_head, std::span<const double> errors);
  void SetPrompts(int64_t n) { n_prompts_ = n; }

 private:
  size_t At(int layer, int kv_head) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(n_kv_heads_) +
           static_cast<size_t>(kv_head);
  }

  int n_layers_;
  int n_kv_heads_;
  int64_t n_prompts_ = 0;
  std::vector<std::array<double, kPoints>> sums_;  // [layer, kv_head], over the prompts
};

// The attention that orders the entries: that of a replay of the prompt, or that of its last
// tokens.
enum class EntryOrder { kReplay, kWindow };

// One profile for each EntryOrder.
struct ErrorProfiles {
  ErrorProfile replay;
  ErrorProfile window;

  ErrorProfiles(int n_layers, int n_kv_heads)
      : replay(n_layers, n_kv_heads), window(n_layers, n_kv_heads) {}
  ErrorProfile& For(EntryOrder order) { return order == EntryOrder::kReplay ? replay : window; }
};

// The text form, which records `model_hash`.
std::string ToText(const ErrorProfiles& profiles, std::string_view model_hash);
// Errors: the text is malformed (says what was expected in which line), or belongs to another model
// or shape.
Result<ErrorProfiles> ReadErrorProfiles(std::string_view text, std::string_view model_hash,
                                        int n_layers, int n_kv_heads);

// Receives the error curves that a method computes (Traits::reports_error_curves).
using OnErrorCurve =
    std::function<void(EntryOrder order, int layer, int kv_head, const ErrorCurve& curve)>;

}  // namespace winnow::compression
