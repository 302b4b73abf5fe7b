#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/machine.h"
#include "commands.h"
#include "compression/registry.h"
#include "interrupt.h"
#include "load.h"
#include "options.h"
#include "process.h"
#include "result_warnings.h"
#include "runtime/scheduler/scheduler.h"
#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "serve_flags.h"
#include "server/constraints.h"
#include "server/http/http_server.h"
#include "server/openai/service.h"
#include "server/scheduler_backend.h"
#include "template_flags.h"

namespace winnow::apps {
namespace {

// Every connection is an open file, and the soft limit is often 1024.
void RaiseFileLimit() {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Creates the folder of --session-path, accessible to its owner only. Only the last component is
// created, so that a mistyped path creates no tree.
Result<void> MakeSessionFolder(const std::string& path) {
  constexpr mode_t kOwnerOnly = 0700;
  if (mkdir(path.c_str(), kOwnerOnly) == 0) return {};
  const int problem = errno;
  std::error_code unknown;
  if (problem == EEXIST && std::filesystem::is_directory(path, unknown)) return {};
  const std::string found = "--session-path " + path + ": ";
  if (problem == EEXIST) {
    return Error{found + "is not a folder; name a folder, or a path that does not exist"};
  }
  if (problem == ENOENT) {
    return Error{found + "the parent folder does not exist; create it with mkdir -p"};
  }
  return Error{found + "cannot be created: " + std::strerror(problem) +
               "; name a folder that this user can write to"};
}

std::string ModelName(const ServeFlags& flags, const runtime::Engine& engine) {
  if (!flags.alias.empty()) return flags.alias;
  if (flags.model.model != kBundled) {
    return std::filesystem::path(flags.model.model).filename().string();
  }
  const std::string& name = engine.model().hyperparameters().name;
  return name.empty() ? "winnow" : name;
}

// The default limit: nine tenths of the memory that was available before the model was loaded. 0
// (none) if that is unknown or the model alone takes more.
int64_t DefaultMemoryLimit(int64_t available, runtime::Engine& engine,
                           const runtime::SchedulerOptions& scheduling, Log& log) {
  if (available == 0) return 0;
  const int64_t limit = available / 10 * 9;
  const int64_t fixed =
      runtime::ModelBytes(engine) +
      runtime::StepBufferBytes(engine, scheduling.max_running, scheduling.defaults.row_block);
  if (limit <= fixed) {
    log.Warning("the model takes " + HumanBytes(fixed) + ", " + HumanBytes(available) +
                " are available: caches have no limit, and answers may be lost");
    return 0;
  }
  log.Info("memory " + HumanBytes(limit) +
           " for model and caches, nine tenths of available memory (--memory-limit)");
  return limit;
}

void WaitForInterrupt(const std::atomic<bool>& interrupted) {
  constexpr std::chrono::milliseconds kLook{50};
  while (!interrupted) std::this_thread::sleep_for(kLook);
}

// Loads the model and serves until the end. The server is already listening: /health reports that
// the model is loading.
int LoadAndServe(const ServeFlags& flags, runtime::SchedulerOptions scheduling,
                 server::Service& service, std::unique_ptr<server::HttpServer> http,
                 ConsoleLog& log) {
  const std::atomic<bool>& interrupted = CatchInterrupt();
  const int64_t available = AvailableMemoryBytes();
  auto engine_options = EngineOptionsFrom(flags.model);
  if (!engine_options) return Misuse("serve", engine_options.error().message);
  auto file = OpenModelFile(flags.model.model, log);
  if (!file) return Fail(file.error());
  engine_options->file = *file;
  engine_options->survives_broken_invariants = true;
  auto engine = runtime::Engine::Open(*engine_options, log);
  if (!engine) return Fail(engine.error());
  const ResultWarnings warnings(**engine, log);
  const auto sampler = SamplerConfigFrom(flags.sampler, (*engine)->tokenizer());
  if (!sampler) return Misuse("serve", sampler.error().message);
  const auto valid = runtime::Sampler::Make(*sampler, (*engine)->tokenizer().vocabulary_size());
  if (!valid) return Misuse("serve", valid.error().message);
  const auto prompts = MakeWriter(flags.writer, flags.template_file, **engine, log);
  if (!prompts) return Fail(prompts.error());
  if (!flags.memory_limit) {
    scheduling.memory_limit_bytes = DefaultMemoryLimit(available, **engine, scheduling, log);
  }
  auto scheduler = runtime::Scheduler::Make(**engine, scheduling, log);
  if (!scheduler) return Fail(scheduler.error());

  const std::string name = ModelName(flags, **engine);
  server::SchedulerBackend backend(
      **engine, **scheduler, server::MakeModelInfo(**engine, name, scheduling.defaults.context));
  (*scheduler)->Start();
  service.SetReady(backend, *prompts, *sampler, server::MakeConstraints((*engine)->tokenizer()));
  log.Info("model  " + name + ": " + DescribeEngine(**engine) + ", " +
           HumanBytes((*engine)->file().file_bytes()));
  log.Info("ready  " + http->url() + ", OpenAI clients use " + http->url() + "/v1");

  WaitForInterrupt(interrupted);
  log.Info("shutting down: running answers are finished; interrupt again to stop at once");
  service.SetDraining();
  (*scheduler)->Drain();
  constexpr std::chrono::seconds kLastBytes{5};
  http->Drain(kLastBytes);
  (*scheduler)->Stop();
  service.Stop();
  http.reset();  // before the objects that its last clients may still use
  return kDone;
}

}  // namespace

int Serve(Arguments arguments) {
  IgnoreBrokenPipes();
  ServeFlags flags;
  FlagTable table = ServeTable(flags);
  ServeFlags typed_flags;
  FlagTable typed = ServeTable(typed_flags);
  (void)typed.Parse(arguments);  // the second Parse below reports errors
  if (const auto read = ReadEnvironment(
          table, typed, [](const char* n) -> const char* { return std::getenv(n); });
      !read) {
    return Misuse("serve", read.error().message);
  }
  if (const auto over = ParseFlags(table, arguments)) return *over;
  for (const std::string& name : UnknownVariables(environ)) {
    flags.notes.push_back(name + " has no effect: --help lists the variables that set flags");
  }
  // Drop a budget from the environment if the method on the command line takes none.
  const auto typed_method = compression::MakeMethod(typed_flags.model.kv.method);
  if (typed.Given("--kv-method") && typed_method && !(*typed_method)->traits().budget.HasEffect()) {
    flags.model.kv.size = typed_flags.model.kv.size;
    flags.model.kv.ratio = typed_flags.model.kv.ratio;
  }
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("serve", valid.error().message);
  }
  if (const auto valid = CheckTemplateFlags(flags.writer, flags.template_file); !valid) {
    return Misuse("serve", valid.error().message);
  }
  auto service_options = ServiceOptionsFrom(flags);
  if (!service_options) return Misuse("serve", service_options.error().message);
  const auto http_options = HttpOptionsFrom(flags);
  if (!http_options) return Misuse("serve", http_options.error().message);
  const auto scheduling = SchedulerOptionsFrom(flags);
  if (!scheduling) return Misuse("serve", scheduling.error().message);
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  if (!service_options->loopback && service_options->api_keys.empty()) {
    log.Warning("anyone who can reach " + flags.host +
                " can use this server; require a key with --api-key KEY");
  }
  if (!scheduling->session_path.empty()) {
    if (const auto made = MakeSessionFolder(scheduling->session_path); !made) {
      return Fail(made.error());
    }
  }
  RaiseFileLimit();

  server::Service service(*std::move(service_options));
  auto http = server::HttpServer::Listen(
      *http_options,
      {.handle = [&service](
                     const server::HttpRequest& request,
                     const server::ExchangePtr& exchange) { service.Handle(request, exchange); },
       .check_head =
           [&service](const server::HttpRequest& head) { return service.CheckHead(head); },
       .refuse = [&service](
                     const server::HttpRequest& head, const server::ExchangePtr& exchange,
                     const server::ApiError& error) { service.Refuse(head, exchange, error); }},
      log);
  if (!http) return Fail(http.error());
  log.Info("listening on " + (*http)->url());
  return LoadAndServe(flags, *scheduling, service, *std::move(http), log);
}

}  // namespace winnow::apps
