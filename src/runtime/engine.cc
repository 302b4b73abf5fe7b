#include "runtime/engine.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/with_code.h"
#include "gguf/file_hash.h"
#include "kernels/backends.h"

namespace winnow::runtime {
namespace {

Result<std::unique_ptr<kernels::Backend>> MakeBackend(const EngineOptions& options,
                                                      ThreadPool& pool) {
  if (options.target == "reference") return kernels::MakeReferenceBackend();
  return kernels::MakeCpuBackend(
      {.pool = &pool, .target = options.target, .batch_invariant = options.deterministic});
}

// Profiles of the largest models take some hundred kilobytes.
constexpr std::streamoff kMaxProfileBytes = std::streamoff{64} << 20;

Result<std::string> ReadProfile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return Error{"error profile: cannot open " + path + "; create it with 'winnow calibrate'"};
  }
  const std::streamoff n = file.tellg();
  if (n < 0) return Error{path + ": its size cannot be read"};
  if (n > kMaxProfileBytes) {
    return Error{path + ": " + std::to_string(n) + " bytes, an error profile has at most " +
                 std::to_string(kMaxProfileBytes)};
  }
  std::string text(static_cast<size_t>(n), '\0');
  file.seekg(0);
  file.read(text.data(), n);
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

constexpr int64_t kStepClaimed = -1;

// The order of the members matters: later ones borrow from earlier ones.
struct Engine::Data {
  explicit Data(bool survives) : invariants(survives) {}

  std::shared_ptr<const gguf::File> file;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<model::Step> step;
  double load_ms = 0;
  std::once_flag hashed;
  std::string hash;
  std::atomic<int64_t> n_not_replayed = 0;
  std::atomic<int64_t> n_calls = 0;  // kStepClaimed: a scheduler has the step
  Invariants invariants;
  std::string profile_path;
  std::string profile_text;
  std::once_flag profiled;
  Result<compression::ErrorProfiles> profiles = Error{};
};

Engine::Engine(bool survives) : data_(std::make_unique<Data>(survives)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options, Log& log) {
  const auto start = std::chrono::steady_clock::now();
  const int n_threads = options.n_threads == 0 ? ThreadPool::DefaultThreads() : options.n_threads;
  if (n_threads < 1 || n_threads > ThreadPool::kMaxThreads) {
    return Error{.message = "engine: threads is " + std::to_string(n_threads) + ", expected 1.." +
                            std::to_string(ThreadPool::kMaxThreads),
                 .code = ErrorCode::kInvalid};
  }
  const auto named = [&](const Error& error) {
    return options.model_path.empty() ? error : Prefixed(options.model_path + ": ", error);
  };

  std::unique_ptr<Engine> engine(new Engine(options.survives_broken_invariants));
  Data& data = *engine->data_;
  data.profile_path = ProfilePath(options.model_path);
  data.profile_text = options.error_profiles;
  data.file = options.file;
  if (data.file == nullptr) {
    WINNOW_ASSIGN(data.file, gguf::File::Open(options.model_path));  // errors name the file
  }
  // Before anything is loaded: an unknown architecture is the most likely error, and the message
  // should name it.
  if (auto shape = model::ReadHyperparameters(*data.file); !shape) return named(shape.error());
  auto tokenizer = tokenizer::Tokenizer::Load(data.file);
  if (!tokenizer) return named(tokenizer.error());
  data.tokenizer = std::move(tokenizer).value();

  try {
    data.pool = std::make_unique<ThreadPool>(n_threads);
  } catch (const std::system_error& problem) {
    return Error{.message = "engine: the system refuses " + std::to_string(n_threads) +
                            " threads (" + problem.code().message() + "); try fewer `threads`",
                 .code = ErrorCode::kTooLarge};
  }
  WINNOW_ASSIGN(data.backend, WithCode(MakeBackend(options, *data.pool), ErrorCode::kInvalid));
  auto model = model::Model::Load(data.file, *data.backend,
                                  {.context = options.context,
                                   .spare_context = options.spare_context,
                                   .check_tensors = options.check_tensors},
                                  log);
  if (!model) return named(model.error());
  data.model = std::move(model).value();
  data.step = std::make_unique<model::Step>(*data.model);
  data.load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return engine;
}

const gguf::File& Engine::file() const { return *data_->file; }
const tokenizer::Tokenizer& Engine::tokenizer() const { return *data_->tokenizer; }
const model::Model& Engine::model() const { return *data_->model; }
model::Step& Engine::step() { return *data_->step; }
kernels::Backend& Engine::backend() { return *data_->backend; }
ThreadPool& Engine::pool() { return *data_->pool; }
const std::string& Engine::model_hash() const {
  std::call_once(data_->hashed, [this] { data_->hash = gguf::ContentHash(*data_->file); });
  return data_->hash;
}
Invariants& Engine::invariants() { return data_->invariants; }
double Engine::load_ms() const { return data_->load_ms; }
std::string ProfilePath(const std::string& model_path) { return model_path + ".profile"; }

Result<const compression::ErrorProfiles*> Engine::error_profiles() const {
  Data& data = *data_;
  std::call_once(data.profiled, [&] {
    std::string text = data.profile_text;
    if (text.empty()) {
      Result<std::string> read = ReadProfile(data.profile_path);
      if (!read) {
        data.profiles = read.error();
        return;
      }
      text = *std::move(read);
    }
    const cache::CacheShape shape = data.model->cache_shape();
    data.profiles =
        compression::ReadErrorProfiles(text, model_hash(), shape.n_layers, shape.n_kv_heads);
    if (!data.profiles && data.profile_text.empty()) {
      data.profiles = Prefixed(data.profile_path + ": ", data.profiles.error());
    }
  });
  if (!data.profiles) return data.profiles.error();
  return &*data.profiles;
}

std::string NotReplayedText(int64_t n_tokens) {
  return std::to_string(n_tokens) +
         " tokens of prompts could not be replayed, so the method chooses with less information: "
         "the context is full. It has to hold the prompt, an instruction and at least 32 more "
         "tokens; twice the prompt is best";
}

bool Engine::BeginCall() {
  int64_t n = data_->n_calls;
  while (n != kStepClaimed && !data_->n_calls.compare_exchange_weak(n, n + 1)) continue;
  return n != kStepClaimed;
}
void Engine::EndCall() { --data_->n_calls; }
bool Engine::ClaimStep() {
  int64_t none = 0;
  return data_->n_calls.compare_exchange_strong(none, kStepClaimed);
}
void Engine::ReleaseStep() { data_->n_calls = 0; }
bool Engine::step_claimed() const { return data_->n_calls == kStepClaimed; }
int64_t Engine::n_not_replayed() const { return data_->n_not_replayed; }
void Engine::CountNotReplayed(int64_t n_tokens) { data_->n_not_replayed += n_tokens; }

}  // namespace winnow::runtime
