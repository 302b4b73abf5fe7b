// How fast is attention? One line per case.
//
//   winnow_attention_bench decode|prefill|taps|entries|similar [SHAPE TYPE DEPTH [THREADS
//                          [TARGET]]]
//
//   decode   one query over DEPTH slots: cache bytes read per second, and as a share of plain reads
//            of as much memory with the same threads, measured alternately
//   prefill  512 queries after DEPTH slots: floating-point operations per second
//   taps     DEPTH queries, and one query: time with taps relative to plain attention
//   entries  one query over DEPTH slots: time with rotation inside attention, shared rows (four
//            entries per row) and top-p, relative to plain attention
//   similar  search for the most similar of DEPTH rows, for 7 * DEPTH rows and for one row, of one
//            KV head
//
// SHAPE is 135M (9 query heads, 3 KV heads), 0.5B (14, 2) or 1B (32, 8), all with 64 dimensions per
// head; `all` means every shape or type, depth 0 the usual depths. Decode cycles through enough
// layers to exceed the caches, as a model does.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/backends.h"
#include "kernels/ops.h"
#include "read_memory.h"

namespace winnow {
namespace {

using kernels::Backend;
using kernels::HeadStore;
using kernels::Matrix;
using kernels::Storage;
using kernels::TapSpec;
using kernels::TensorType;

constexpr int kHeadDim = 64;
constexpr int64_t kBeyondCaches = int64_t{512} << 20;
constexpr int kRepeats = 5;

// With one thread, CPU time, which other programs on the machine disturb less; otherwise wall-clock
// time.
double Now(const ThreadPool& pool) {
  if (pool.n_threads() == 1) {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename F>
double Seconds(const ThreadPool& pool, const F& call) {
  const double before = Now(pool);
  call();
  return Now(pool) - before;
}

template <typename T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Shape {
  std::string name;
  int q_heads;
  int kv_heads;
};

struct Case {
  Shape shape;
  TensorType type;
  int64_t depth;
};

// The cache of some layers: keys of all heads, then values, in one storage.
class Cache {
 public:
  Cache(Backend& backend, const Case& c, int64_t n_slots, int64_t min_bytes) {
    const int64_t head_bytes = gguf::RowBytes(c.type, kHeadDim) * n_slots;
    layer_bytes_ = head_bytes * 2 * c.shape.kv_heads;
    n_layers_ = std::max<int64_t>(1, (min_bytes + layer_bytes_ - 1) / layer_bytes_);
    storage_ = std::move(backend.AllocateGrowing(n_layers_ * layer_bytes_)).value();
    constexpr int64_t kRows = 256;
    const std::unique_ptr<Storage> memory =
        std::move(backend.Allocate(kRows * kHeadDim * c.shape.kv_heads * 4)).value();
    const int64_t cols = int64_t{kHeadDim} * c.shape.kv_heads;
    Rng rng(1);
    std::vector<float> values(static_cast<size_t>(kRows * cols));
    for (float& value : values) value = static_cast<float>(rng.Uniform()) - 0.5f;
    const Matrix rows = {memory.get(), 0, kRows, cols, cols};
    backend.Write(rows, values);
    for (int64_t layer = 0; layer < n_layers_; ++layer) {
      for (int64_t head = 0; head < c.shape.kv_heads; ++head) {
        const int64_t offset = layer * layer_bytes_ + head * 2 * head_bytes;
        heads_.push_back({storage_.get(), storage_.get(), offset, offset + head_bytes, n_slots});
      }
      for (int64_t slot = 0; slot < n_slots; slot += kRows) {
        const std::vector<int64_t> first(static_cast<size_t>(c.shape.kv_heads), slot);
        for (const bool keys : {true, false}) {
          backend.StoreRows(rows.Rows(0, std::min(kRows, n_slots - slot)),
                            {Layer(layer, c), first, c.type, keys});
        }
      }
    }
    const kernels::ByteRange all = {0, bytes()};
    backend.UseHugePages(*storage_, {&all, 1});
  }

  std::span<const HeadStore> Layer(int64_t layer, const Case& c) const {
    return std::span(heads_).subspan(static_cast<size_t>(layer * c.shape.kv_heads),
                                     static_cast<size_t>(c.shape.kv_heads));
  }
  int64_t n_layers() const { return n_layers_; }
  int64_t bytes() const { return n_layers_ * layer_bytes_; }

 private:
  int64_t layer_bytes_ = 0;
  int64_t n_layers_ = 0;
  std::unique_ptr<Storage> storage_;
  std::vector<HeadStore> heads_;
};

struct Queries {
  std::unique_ptr<Storage> storage;
  Matrix q, out;

  Queries(Backend& backend, const Shape& shape, int64_t n) {
    const int64_t cols = int64_t{kHeadDim} * shape.q_heads;
    storage = std::move(backend.Allocate(2 * n * cols * 4)).value();
    q = {storage.get(), 0, n, cols, cols};
    out = {storage.get(), n * cols, n, cols, cols};
    Rng rng(2);
    std::vector<float> values(static_cast<size_t>(n * cols));
    for (float& value : values) value = 2 * static_cast<float>(rng.Uniform()) - 1;
    backend.Write(q, values);
  }
};

kernels::Attention MakeAttention(const Case& c, const Queries& queries,
                                 std::span<const HeadStore> heads, const TapSpec& taps = {},
                                 kernels::Taps* found = nullptr) {
  return {.q = queries.q,
          .out = queries.out,
          .n_q_heads = c.shape.q_heads,
          .key_dim = kHeadDim,
          .value_dim = kHeadDim,
          .key_type = c.type,
          .value_type = c.type,
          .scale = 1 / std::sqrt(static_cast<float>(kHeadDim)),
          .heads = heads,
          .taps = taps,
          .found = found};
}

void Attend(Backend& backend, const Case& c, const Queries& queries,
            std::span<const HeadStore> heads, const TapSpec& taps = {},
            kernels::Taps* found = nullptr) {
  backend.Attend(MakeAttention(c, queries, heads, taps, found));
}

// Seconds to read all of `memory` with plain loads.
double SecondsToRead(ThreadPool& pool, const std::vector<std::byte>& memory) {
  constexpr int64_t kRun = 1 << 18;
  const auto n_runs = static_cast<int64_t>(memory.size()) / kRun;
  std::vector<uint64_t> sums(static_cast<size_t>(n_runs));
  return Seconds(pool, [&] {
    pool.ParallelFor(n_runs, [&](int64_t run, int) {
      sums[static_cast<size_t>(run)] = bench::ReadMemory(memory.data() + run * kRun, kRun);
    });
  });
}

std::string Name(const Case& c) {
  return c.shape.name + " " + std::string(gguf::GetTypeInfo(c.type).name);
}

void Decode(Backend& backend, ThreadPool& pool, const Case& c) {
  const Cache cache(backend, c, c.depth, kBeyondCaches);
  const std::vector<std::byte> memory(static_cast<size_t>(cache.bytes()), std::byte{1});
  const Queries queries(backend, c.shape, 1);
  std::vector<double> seconds, shares;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double read = SecondsToRead(pool, memory);
    const double attend = Seconds(pool, [&] {
      for (int64_t layer = 0; layer < cache.n_layers(); ++layer) {
        Attend(backend, c, queries, cache.Layer(layer, c));
      }
    });
    seconds.push_back(attend);
    shares.push_back(read / attend);
  }
  const double median = Median(seconds);
  std::printf("decode  %-10s depth %6lld  %9.1f us/layer  %6.1f GB/s  %5.0f %% of reading\n",
              Name(c).c_str(), static_cast<long long>(c.depth),
              1e6 * median / static_cast<double>(cache.n_layers()),
              1e-9 * static_cast<double>(cache.bytes()) / median, 100 * Median(shares));
  std::fflush(stdout);
}

void Prefill(Backend& backend, const ThreadPool& pool, const Case& c) {
  constexpr int64_t kQueries = 512;
  const Cache cache(backend, c, c.depth + kQueries, 0);
  const Queries queries(backend, c.shape, kQueries);
  std::vector<double> seconds;
  seconds.reserve(kRepeats);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    seconds.push_back(Seconds(pool, [&] { Attend(backend, c, queries, cache.Layer(0, c)); }));
  }
  const double pairs = kQueries * (static_cast<double>(c.depth) + (kQueries + 1) / 2.0);
  const double operations = 4.0 * kHeadDim * c.shape.q_heads * pairs;
  const double median = Median(seconds);
  std::printf("prefill %-10s depth %6lld  %9.2f ms/layer  %6.1f GFLOP/s\n", Name(c).c_str(),
              static_cast<long long>(c.depth), 1e3 * median, 1e-9 * operations / median);
  std::fflush(stdout);
}

void TapCosts(Backend& backend, const ThreadPool& pool, const Case& c) {
  struct Kind {
    const char* name;
    TapSpec taps;
    int64_t n_queries;
  };
  const Kind kinds[] = {{"window of 32", {.last_rows = 32}, c.depth},
                        {"column sums", {.column_sums = true}, c.depth},
                        {"last row, decode", {.last_rows = 1}, 1}};
  const Cache cache(backend, c, c.depth, 0);
  for (const Kind& kind : kinds) {
    const Queries queries(backend, c.shape, kind.n_queries);
    kernels::Taps found;
    std::vector<double> ratios;
    for (int repeat = 0; repeat < (kind.n_queries == 1 ? 301 : kRepeats); ++repeat) {
      const double plain = Seconds(pool, [&] { Attend(backend, c, queries, cache.Layer(0, c)); });
      const double tapped =
          Seconds(pool, [&] { Attend(backend, c, queries, cache.Layer(0, c), kind.taps, &found); });
      ratios.push_back(tapped / plain);
    }
    std::printf("taps    %-10s depth %6lld  %-18s %5.2f x plain\n", Name(c).c_str(),
                static_cast<long long>(c.depth), kind.name, Median(ratios));
    std::fflush(stdout);
  }
}

void EntryCosts(Backend& backend, const ThreadPool& pool, const Case& c) {
  constexpr int64_t kEntriesPerRow = 4;
  const int64_t n_shared = kEntriesPerRow * c.depth;
  const Cache cache(backend, c, c.depth, 0);
  const Queries queries(backend, c.shape, 1);
  const std::span<const HeadStore> heads = cache.Layer(0, c);
  std::vector<float> angles(static_cast<size_t>(n_shared * kHeadDim), 0.7f);
  const std::unique_ptr<Storage> memory =
      std::move(backend.Allocate(n_shared * kHeadDim * 4)).value();
  const kernels::RopeTable rope = {
      {memory.get(), 0, n_shared, kHeadDim, kHeadDim}, kHeadDim, false};
  backend.Write(rope.table, angles);
  std::vector<int32_t> rows, positions;
  std::vector<Half> factors;
  Rng rng(3);
  for (int64_t i = 0; i < n_shared; ++i) {
    const auto any = static_cast<int64_t>(rng.Uniform() * static_cast<double>(c.depth));
    rows.push_back(static_cast<int32_t>(i < c.depth ? i : any));
    positions.push_back(static_cast<int32_t>(i));
    factors.emplace_back(1 + static_cast<float>(rng.Uniform()));
  }
  const auto last = static_cast<int32_t>(n_shared - 1);
  const std::span<const int32_t> own(positions.data(), static_cast<size_t>(c.depth));
  const auto same = [&](const kernels::HeadEntries& entries) {
    return std::vector<kernels::HeadEntries>(heads.size(), entries);
  };
  int64_t n_attended = 0;
  struct Kind {
    const char* name;
    const kernels::RopeTable* rope;
    std::vector<kernels::HeadEntries> entries;
    float top_p;
  };
  const Kind kinds[] = {
      {"rotated", &rope, same({.positions = own, .query_position = last}), 1},
      {"shared rows", nullptr, same({.rows = rows, .factors = factors}), 1},
      {"shared, rotated", &rope,
       same({.rows = rows, .factors = factors, .positions = positions, .query_position = last}), 1},
      {"top-p 0.9", nullptr, {}, 0.9f}};
  for (const Kind& kind : kinds) {
    kernels::Attention attention = MakeAttention(c, queries, heads);
    attention.rope = kind.rope;
    attention.entries = kind.entries;
    attention.top_p = kind.top_p;
    attention.n_attended = &n_attended;
    std::vector<double> ratios;
    for (int repeat = 0; repeat < 301; ++repeat) {
      const double plain = Seconds(pool, [&] { Attend(backend, c, queries, heads); });
      const double other = Seconds(pool, [&] { backend.Attend(attention); });
      ratios.push_back(other / plain);
    }
    std::printf("entries %-10s depth %6lld  %-18s %5.2f x plain\n", Name(c).c_str(),
                static_cast<long long>(c.depth), kind.name, Median(ratios));
    std::fflush(stdout);
  }
}

void Similar(Backend& backend, const ThreadPool& pool, const Case& c) {
  const int64_t n_rows = 8 * c.depth;
  const Cache cache(backend, c, n_rows, 0);
  const HeadStore& store = cache.Layer(0, c)[0];
  std::vector<int32_t> rows(static_cast<size_t>(n_rows));
  std::iota(rows.begin(), rows.end(), 0);
  const std::span<const int32_t> to = std::span(rows).first(static_cast<size_t>(c.depth));
  for (const int64_t n_from : {7 * c.depth, int64_t{1}}) {
    const std::span<const int32_t> from = std::span(rows).last(static_cast<size_t>(n_from));
    std::vector<float> best(from.size());
    std::vector<int32_t> best_to(from.size());
    const kernels::Similarity search = {
        .keys = {store.keys, store.keys_offset_bytes, kHeadDim, c.type},
        .values = {},
        .measure = kernels::Similarity::Measure::kKeys,
        .from = from,
        .to = to,
        .best = best,
        .best_to = best_to};
    const int n_repeats = n_from == 1 ? 301 : kRepeats;
    std::vector<double> seconds;
    seconds.reserve(static_cast<size_t>(n_repeats));
    for (int repeat = 0; repeat < n_repeats; ++repeat) {
      seconds.push_back(Seconds(pool, [&] { backend.MostSimilar({&search, 1}); }));
    }
    const double operations = 2.0 * kHeadDim * static_cast<double>(n_from * c.depth);
    const double median = Median(seconds);
    std::printf("similar %-10s %6lld of %6lld  %9.1f us/head  %6.1f GFLOP/s\n", Name(c).c_str(),
                static_cast<long long>(n_from), static_cast<long long>(c.depth), 1e6 * median,
                1e-9 * operations / median);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "decode" && mode != "prefill" && mode != "taps" && mode != "entries" &&
      mode != "similar") {
    std::fprintf(stderr,
                 "usage: winnow_attention_bench decode|prefill|taps|entries|similar [SHAPE TYPE "
                 "DEPTH [THREADS [TARGET]]]\n");
    return 2;
  }
  const std::string shape_name = argc > 2 ? argv[2] : "all";
  const std::string type_name = argc > 3 ? argv[3] : "all";
  const int64_t only_depth = argc > 4 ? std::atoll(argv[4]) : 0;
  ThreadPool pool(argc > 5 ? std::atoi(argv[5]) : 1);
  auto made = kernels::MakeCpuBackend({.pool = &pool, .target = argc > 6 ? argv[6] : ""});
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 1;
  }
  Backend& backend = **made;
  std::printf("target %s, %d threads\n", std::string(backend.target()).c_str(), pool.n_threads());

  std::vector<int64_t> depths = {only_depth};
  if (only_depth == 0 && mode == "decode") depths = {1024, 4096, 8192, 32768};
  if (only_depth == 0 && mode == "prefill") depths = {0, 4096, 16384};
  if (only_depth == 0 && mode == "taps") depths = {4096};
  if (only_depth == 0 && (mode == "entries" || mode == "similar")) depths = {1024};
  for (const Shape& shape : {Shape{"135M", 9, 3}, {"0.5B", 14, 2}, {"1B", 32, 8}}) {
    if (shape_name != "all" && shape_name != shape.name) continue;
    for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                  TensorType::kQ8_0, TensorType::kQ4_0}) {
      if (type_name != "all" && gguf::TensorTypeFromName(type_name) != type) continue;
      for (const int64_t depth : depths) {
        const Case c = {shape, type, depth};
        if (mode == "decode") Decode(backend, pool, c);
        if (mode == "prefill") Prefill(backend, pool, c);
        if (mode == "taps") TapCosts(backend, pool, c);
        if (mode == "entries") EntryCosts(backend, pool, c);
        if (mode == "similar") Similar(backend, pool, c);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) { return winnow::Main(argc, argv); }
