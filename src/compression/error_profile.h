#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// What leaving entries out does to a head's output: measured on one prompt (error curves), and on
// the mean of some prompts of a model (error profiles), which says how many entries each head needs
// before a prompt is read.
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

  // Adds a prompt's curve of one head; between two sizes it is interpolated. Requires: a size.
  void Add(int layer, int kv_head, const ErrorCurve& curve);
  void EndPrompt() { ++n_prompts_; }
  // The mean error of a head at every point.
  std::array<double, kPoints> Errors(int layer, int kv_head) const;
  // The curve that a head with n entries is taken to have.
  ErrorCurve CurveFor(int layer, int kv_head, int64_t n) const;

  // As it was saved.
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

// Whose attention says which entries come first: that of a replay of the prompt, or of its last
// tokens.
enum class EntryOrder { kReplay, kWindow };

// A profile for each.
struct ErrorProfiles {
  ErrorProfile replay;
  ErrorProfile window;

  ErrorProfiles(int n_layers, int n_kv_heads)
      : replay(n_layers, n_kv_heads), window(n_layers, n_kv_heads) {}
  ErrorProfile& For(EntryOrder order) { return order == EntryOrder::kReplay ? replay : window; }
};

// A text that names the model by `model_hash`.
std::string ToText(const ErrorProfiles& profiles, std::string_view model_hash);
// Errors: no such text (says what was expected in which line), another model, another shape.
Result<ErrorProfiles> ReadErrorProfiles(std::string_view text, std::string_view model_hash,
                                        int n_layers, int n_kv_heads);

// Told of error curves that a method computes (Traits::tells_error_curves).
using OnErrorCurve =
    std::function<void(EntryOrder order, int layer, int kv_head, const ErrorCurve& curve)>;

}  // namespace winnow::compression
