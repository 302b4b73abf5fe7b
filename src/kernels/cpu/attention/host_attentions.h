#pragma once

#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/wide_entries.h"
#include "kernels/cpu/lists.h"

namespace winnow::kernels::cpu {

// Attention calls as host views for the kernels. A backend keeps one object, so that a decode step
// allocates nothing once it has grown.
class HostAttentions {
 public:
  explicit HostAttentions(const ListKernels& lists) : wide_entries_(lists) {}
  // In the order of `attentions`; valid until the next call.
  std::span<const HostAttention> View(std::span<const Attention> attentions);

 private:
  void AddHeads(const Attention& a);

  std::vector<HostHead> heads_;
  WideEntries wide_entries_;
  std::vector<HostAttention> calls_;
};

}  // namespace winnow::kernels::cpu
