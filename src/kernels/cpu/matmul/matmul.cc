#include "kernels/cpu/matmul/matmul.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/matmul/input_kernels.h"
#include "kernels/cpu/matmul/row_kernels.h"
#include "kernels/cpu/matmul/tile_kernels.h"

namespace winnow::kernels::cpu {
namespace {

// From this many input rows on, unpacking weights to tiles pays off; measured on 512 x 2048. Float
// weights break even later: their few-row products stay memory-bound up to more rows.
constexpr int64_t kTilesFromTokens = 4;
constexpr int64_t kFloatTilesFromTokens = 12;

bool IsFloat(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
}

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t multiple) { return DivideUp(n, multiple) * multiple; }

// Bytes of one of several buffers in a row, each aligned to a cache line.
int64_t Aligned(int64_t bytes) { return RoundUp(bytes, 64); }

// 64-byte aligned memory for `bytes` inside `buffer`, which grows if necessary.
std::byte* Reserve(std::vector<std::byte>& buffer, int64_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t wanted = static_cast<size_t>(bytes) + kAlignment;
  if (buffer.size() < wanted) buffer.resize(wanted);
  const auto address = reinterpret_cast<uintptr_t>(buffer.data());
  return buffer.data() + ((kAlignment - address % kAlignment) % kAlignment);
}

// Returns the job that contains `item`, where every job has n_items(job) items. Sets `item` to its
// number within that job.
template <typename Count>
const MatMulJob& FindJob(std::span<const MatMulJob> jobs, int64_t& item, const Count& n_items) {
  for (const MatMulJob& job : jobs) {
    const int64_t n = n_items(job);
    if (item < n) return job;
    item -= n;
  }
  WINNOW_CHECK(false);
  return jobs.front();
}

// The input in the formats that the jobs' types need.
struct Input {
  MatMulInput plain;
  QuantizedInput quantized;
  PackedQuantized packed_quantized;
  PackedFloats packed_floats;
};

// Each thread goes through its own part from front to back, so that it reads weights as streams of
// memory. A thread that is done helps the others.
void MultiplyFewRows(const Input& input, std::span<const MatMulJob> jobs,
                     const Processor& processor, ThreadPool& pool,
                     const std::function<void()>& overlapped) {
  const MatMulInput& x = input.plain;
  // Size of a run that a thread claims: large enough that claims, which wait for outstanding reads,
  // cost little; small enough that all threads finish together.
  constexpr int64_t kMinRunBytes = 8 << 10, kMaxRunBytes = 128 << 10, kRunsPerThread = 8;
  int64_t n_bytes = 0;
  for (const MatMulJob& job : jobs) n_bytes += job.rows * gguf::RowBytes(job.type, x.cols);
  const int64_t run_bytes =
      std::clamp(n_bytes / (kRunsPerThread * pool.n_threads()), kMinRunBytes, kMaxRunBytes);
  const int64_t streams = processor.weights.streams;
  const auto stream_rows = [&](const MatMulJob& job) { return DivideUp(job.rows, streams); };
  const auto run_rows = [&](const MatMulJob& job) {
    return std::max<int64_t>(1, run_bytes / streams / gguf::RowBytes(job.type, x.cols));
  };
  const auto n_runs = [&](const MatMulJob& job) {
    return DivideUp(stream_rows(job), run_rows(job));
  };
  int64_t n_items = 0;
  for (const MatMulJob& job : jobs) n_items += n_runs(job);

  const RowProducts products = RowProductsFor(processor.target);
  pool.ParallelFor(
      n_items,
      [&](int64_t item, int) {
        const MatMulJob& job = FindJob(jobs, item, n_runs);
        const int64_t first = item * run_rows(job);
        const WeightRows rows = {.first = first,
                                 .n = std::min(run_rows(job), stream_rows(job) - first),
                                 .stream_rows = stream_rows(job),
                                 .prefetch = processor.weights};
        if (IsFloat(job.type)) {
          products.floats(job, rows, x);
        } else {
          products.quantized(job, rows, input.quantized);
        }
      },
      1, ThreadPool::Schedule::kStaticStealing, overlapped);
}

void MultiplyManyRows(const Input& input, std::span<const MatMulJob> jobs,
                      const QuantizedTiles& quantized, const FloatTiles& floats,
                      MatMulScratch& scratch, ThreadPool& pool,
                      const std::function<void()>& overlapped) {
  const int64_t n_tokens = input.plain.rows, cols = input.plain.cols;
  // Several tiles per item share a block of tokens while it is in L1, but together they must stay
  // in L2.
  constexpr int64_t kMaxTileBytes = 512 << 10, kMaxTiles = 4;
  const int64_t tile_bytes = quantized.scratch_bytes(quantized.rows_per_tile, cols);
  const int64_t n_tiles = std::clamp<int64_t>(kMaxTileBytes / tile_bytes, 1, kMaxTiles);
  const auto item_rows = [&](const MatMulJob& job) {
    return IsFloat(job.type) ? floats.rows_per_tile : n_tiles * quantized.rows_per_tile;
  };
  int64_t n_row_items = 0;
  for (const MatMulJob& job : jobs) n_row_items += DivideUp(job.rows, item_rows(job));
  // If there are too few items for the threads, split the tokens as well, although every part
  // unpacks the weights again.
  constexpr int64_t kItemsPerThread = 3;
  const int64_t splits =
      pool.n_threads() == 1 ? 1 : DivideUp(pool.n_threads() * kItemsPerThread, n_row_items);
  const auto part_tokens = [&](const MatMulJob& job) {
    const int64_t block = IsFloat(job.type) ? floats.tokens_per_block : quantized.tokens_per_block;
    return RoundUp(DivideUp(n_tokens, splits), block);
  };
  const auto n_job_items = [&](const MatMulJob& job) {
    return DivideUp(job.rows, item_rows(job)) * DivideUp(n_tokens, part_tokens(job));
  };
  int64_t n_items = 0;
  for (const MatMulJob& job : jobs) n_items += n_job_items(job);
  const int64_t thread_bytes = Aligned(std::max(
      quantized.scratch_bytes(n_tiles * quantized.rows_per_tile, cols), floats.scratch_bytes));
  std::byte* memory = Reserve(scratch.threads, thread_bytes * pool.n_threads());
  const auto piece_of = [&](int64_t item) {
    const MatMulJob& job = FindJob(jobs, item, n_job_items);
    const int64_t rows = item_rows(job), part = part_tokens(job);
    const int64_t n_parts = DivideUp(n_tokens, part);
    TileRange range = {.first_row = item / n_parts * rows, .first_token = item % n_parts * part};
    range.n_rows = std::min(rows, job.rows - range.first_row);
    range.n_tokens = std::min(part, n_tokens - range.first_token);
    return std::pair(&job, range);
  };
  // A thread goes through its own part in order, so it can predict its next rows.
  const auto is_next = [&](int64_t item) {
    const int64_t n_parts = pool.n_threads();
    return item + 1 < n_items && ThreadPool::PartIndex(item, n_items, n_parts) ==
                                     ThreadPool::PartIndex(item + 1, n_items, n_parts);
  };
  const auto multiply = [&](int64_t item, int thread) {
    auto [job, range] = piece_of(item);
    if (is_next(item)) {
      const auto& [next_job, next] = piece_of(item + 1);
      if (next_job != job || next.first_row != range.first_row) {
        const int64_t row_bytes = gguf::RowBytes(next_job->type, cols);
        range.next = {next_job->weight + next.first_row * row_bytes,
                      static_cast<size_t>(next.n_rows * row_bytes)};
      }
    }
    std::byte* own = memory + thread * thread_bytes;
    if (IsFloat(job->type)) {
      floats.multiply(*job, range, input.packed_floats, own);
    } else {
      quantized.multiply(*job, range, input.packed_quantized, own);
    }
  };
  pool.ParallelFor(n_items, multiply, 1, ThreadPool::Schedule::kStaticStealing, overlapped);
}

}  // namespace

void MatMul(const MatMulInput& x, std::span<const MatMulJob> jobs, const Processor& processor,
            MatMulScratch& scratch, ThreadPool& pool, const std::function<void()>& overlapped) {
  const int64_t target = processor.target;
  const auto is_float = [](const MatMulJob& job) { return IsFloat(job.type); };
  const bool any_float = std::any_of(jobs.begin(), jobs.end(), is_float);
  const bool any_quantized = !std::all_of(jobs.begin(), jobs.end(), is_float);
  const bool float_weights_are_bf16 = std::all_of(
      jobs.begin(), jobs.end(),
      [](const MatMulJob& job) { return job.type == TensorType::kBF16 || !IsFloat(job.type); });
  // In tiles, a row's sums have the same bits whatever the width of its block of tokens.
  const bool tiles =
      x.batch_invariant || x.rows >= (any_quantized ? kTilesFromTokens : kFloatTilesFromTokens);
  Input input;
  input.plain = x;
  const int64_t quantized_bytes = any_quantized ? Aligned(QuantizedInputBytes(x.rows, x.cols)) : 0;
  const int64_t packed_bytes =
      any_quantized && tiles ? Aligned(PackedQuantizedBytes(x.rows, x.cols)) : 0;
  const int64_t floats_bytes = any_float && tiles ? PackedFloatsBytes(x.rows, x.cols) : 0;
  std::byte* memory = Reserve(scratch.input, quantized_bytes + packed_bytes + floats_bytes);
  if (any_quantized) {
    input.quantized = QuantizeInput(x.x, x.rows, x.cols, x.stride, target, memory, pool);
  }
  if (!tiles) return MultiplyFewRows(input, jobs, processor, pool, overlapped);

  // Items are the full blocks of tokens; the last item packs all short blocks at the end.
  const auto pack_blocks = [&](int tokens_per_block, const auto& pack) {
    const int64_t n_full = x.rows / tokens_per_block;
    pool.ParallelFor(n_full + 1, [&](int64_t block, int) {
      int64_t token = block * tokens_per_block;
      if (block < n_full) return pack(token);
      for (; token < x.rows; token += BlockTokens(token, x.rows, tokens_per_block)) pack(token);
    });
  };
  const QuantizedTiles quantized = QuantizedTilesFor(target);
  const bool bf16 = processor.multiplies_bf16 && float_weights_are_bf16;
  const FloatTiles floats = bf16 ? Bf16TilesFor(target) : FloatTilesFor(target);
  if (any_quantized) {
    input.packed_quantized = PackedQuantizedAt(memory + quantized_bytes, x.rows, x.cols);
    pack_blocks(quantized.tokens_per_block, [&](int64_t token) {
      quantized.pack(input.quantized, token, input.packed_quantized);
    });
  }
  if (any_float) {
    input.packed_floats = {.rows = x.rows,
                           .cols = x.cols,
                           .x = reinterpret_cast<float*>(memory + quantized_bytes + packed_bytes)};
    pack_blocks(floats.tokens_per_block,
                [&](int64_t token) { floats.pack(x, token, input.packed_floats); });
  }
  MultiplyManyRows(input, jobs, quantized, floats, scratch, pool, overlapped);
}

}  // namespace winnow::kernels::cpu
