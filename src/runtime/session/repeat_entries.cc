#include "runtime/session/repeat_entries.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {

Result<void> RepeatEntries(Session& session, int64_t n) {
  Session::Data& data = *session.data_;
  WINNOW_CHECK(!data.evicts() && n <= data.n_tokens());
  WINNOW_TRY(session.CheckCapacity(n));
  const cache::CacheShape& shape = data.cache->config().shape;
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<cache::Position> positions(rows.size());
  std::iota(positions.begin(), positions.end(), static_cast<cache::Position>(data.n_tokens()));
  kernels::Backend& backend = data.engine->backend();
  // Rows of keys or values of all heads side by side.
  struct Copy {
    std::unique_ptr<kernels::Storage> storage;
    kernels::Matrix all;
    std::vector<float> of_head;
  };
  // Allocated for the widest layer.
  const auto make = [&](int dim) -> Result<Copy> {
    const int64_t cols = int64_t{dim} * shape.n_kv_heads;
    Copy copy;
    WINNOW_ASSIGN(copy.storage, backend.Allocate(n * cols * int64_t{sizeof(float)}));
    copy.all = {copy.storage.get(), 0, n, cols, cols};
    return copy;
  };
  WINNOW_ASSIGN(Copy keys, make(shape.key_dim));
  WINNOW_ASSIGN(Copy values, make(shape.value_dim));
  const auto take = [&](const kernels::HeadRows& from, int head, Copy& to) {
    to.of_head.resize(static_cast<size_t>(n * from.dim));
    backend.ReadRows(from, rows, to.of_head);
    backend.Write(to.all.Cols(int64_t{head} * from.dim, from.dim), to.of_head);
  };
  data.cache->BeginCall(compression::Phase::kPrefill, n);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    const cache::LayerShape heads = shape.layer(layer);
    for (int head = 0; head < heads.n_kv_heads; ++head) {
      take(data.cache->keys(layer, head), head, keys);
      take(data.cache->values(layer, head), head, values);
    }
    WINNOW_TRY(data.cache->Append(
        layer, keys.all.Cols(0, int64_t{heads.n_kv_heads} * heads.key_dim),
        values.all.Cols(0, int64_t{heads.n_kv_heads} * heads.value_dim), positions));
  }
  const std::vector<TokenId> repeated(data.tokens.begin(), data.tokens.begin() + n);
  data.Advance(repeated);
  data.has_logits = false;
  return {};
}

}  // namespace winnow::runtime
