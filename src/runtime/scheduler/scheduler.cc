#include "runtime/scheduler/scheduler.h"

#include <exception>
#include <future>
#include <utility>

#include "base/check.h"
#include "compression/parameters.h"
#include "runtime/scheduler/scheduler_data.h"
#include "runtime/session/batch_memory.h"

namespace winnow::runtime {
namespace {

constexpr auto kDrainInterval = std::chrono::milliseconds(5);
constexpr auto kRetryInterval = std::chrono::milliseconds(10);
// Share of the gap between tokens for session calls in one round: what Pace leaves (kMargin).
constexpr double kCommandShare = 0.1;

Error TooSmall(const char* name, const std::string& found, int64_t min) {
  return Error{std::string("scheduler: `") + name + "` is " + found + ", expected at least " +
               std::to_string(min)};
}

Result<void> CheckOptions(const SchedulerOptions& options) {
  const auto check = [](const char* name, int64_t found, int64_t min) -> Result<void> {
    if (found >= min) return {};
    return TooSmall(name, std::to_string(found), min);
  };
  WINNOW_TRY(check("memory_limit_bytes", options.memory_limit_bytes, 0));
  WINNOW_TRY(check("max_running", options.max_running, 1));
  WINNOW_TRY(check("max_waiting", options.max_waiting, 1));
  WINNOW_TRY(check("max_overtakes", options.max_overtakes, 0));
  WINNOW_TRY(check("max_unnamed", options.max_unnamed, 0));
  WINNOW_TRY(check("default_max_tokens", options.default_max_tokens, -1));
  if (options.max_token_gap_ms >= 1) return {};  // NaN is not
  return TooSmall("max_token_gap_ms", compression::ShortestText(options.max_token_gap_ms), 1);
}

}  // namespace

void Ticket::Cancel() {
  data_->cancelled.store(true, std::memory_order_relaxed);
  if (data_->signal) data_->signal->Wake();
}
uint64_t Ticket::id() const { return data_->id; }

Scheduler::Data::Data(Engine& engine_, const SchedulerOptions& options_,
                      std::unique_ptr<SessionFolder> folder_, Log& log_, const Clock* clock_)
    : engine(engine_),
      options(options_),
      folder(std::move(folder_)),
      log(log_),
      clock(clock_ == nullptr ? static_cast<const Clock&>(system_clock) : *clock_),
      loop(engine,
           {.options = options,
            .names = names,
            .log = log,
            .clock = clock,
            .queue_file_task =
                [this](auto task, auto then) { AddFileWork(std::move(task), std::move(then)); }},
           folder.get()) {
  if (folder == nullptr) return;
  for (const std::string& name : folder->List()) {
    if (names.ClaimNew(name) == SessionNames::Outcome::kClaimed) names.Release(name, true);
  }
}

Scheduler::Scheduler(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Scheduler::~Scheduler() { Stop(); }

Result<std::unique_ptr<Scheduler>> Scheduler::Make(Engine& engine, const SchedulerOptions& options,
                                                   Log& log, const Clock* clock) {
  WINNOW_TRY(CheckOptions(options));
  WINNOW_TRY(Session::Make(engine, options.defaults));
  std::unique_ptr<SessionFolder> folder;
  if (!options.session_path.empty()) {
    WINNOW_ASSIGN(folder, SessionFolder::Open(options.session_path));
  }
  auto data = std::make_unique<Data>(engine, options, std::move(folder), log, clock);
  const int64_t fixed = data->loop.fixed_bytes();
  if (options.memory_limit_bytes != 0 && options.memory_limit_bytes <= fixed) {
    return Error{"memory limit: model and buffers for " + std::to_string(options.max_running) +
                 " sequences take " + std::to_string(fixed) + " bytes, the limit is " +
                 std::to_string(options.memory_limit_bytes) +
                 "; raise `memory_limit_bytes`, or lower `max_running`"};
  }
  data->PublishState();
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(data)));
}

void Scheduler::Data::Post(Command command) {
  {
    const std::lock_guard lock(mutex);
    if (!stopped) {
      commands.push_back(std::move(command));
      signal->woken = true;
      signal->changed.notify_all();
      return;
    }
  }
  Guard([&] { command.stopped(); });
}

void Scheduler::Data::PostCall(std::function<void()> call,
                               const std::function<void(const RequestError& error)>& fail) {
  Post({.run = std::move(call), .stopped = [fail] { fail(ShuttingDown()); }, .failed = fail});
}

// An exception ends the call, not the process.
void Scheduler::Data::RunCommand(const Command& command) {
  const auto error = Guard(command.run);
  if (error && command.failed) Guard([&] { command.failed(*error); });
}

void Scheduler::Data::AddFileWork(SessionStore::FileTask task, Then then) {
  const auto ends = [this] {
    const std::lock_guard lock(mutex);
    return stopping || stopped;
  };
  if (ends()) {
    // Posted: while the loop runs, the caller may still use a session that `then` evicts.
    const auto refuse = [this, then = std::move(then)] {
      const RequestError error = ShuttingDown();
      then(&error);
      loop.RetryWaiters();
    };
    return Post({.run = refuse, .stopped = refuse});
  }
  files.Add([this, task = std::move(task), then = std::move(then)] {
    std::optional<RequestError> error;
    const auto failed = Guard([&] {
      if (options.on_file_work) options.on_file_work();
      error = task();
    });
    if (failed) error = failed;
    // `stopped` may use the loop too: Scheduler::Stop joins the loop's thread and finishes the file
    // queue before it runs `stopped` functions.
    const auto finish = [this, &then, &error] {
      return [this, then, error] {
        Guard([&] { then(error ? &*error : nullptr); });
        loop.RetryWaiters();
      };
    };
    // Retry until there is memory for the command: a caller waits for it, and the file counts as in
    // use until `then` runs.
    while (Guard([&] { Post({.run = finish(), .stopped = finish()}); })) {
      std::this_thread::sleep_for(kRetryInterval);
    }
  });
}

bool Scheduler::Data::TakeIncoming() {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex);
    jobs.swap(incoming);
    to_run.splice(to_run.end(), commands);
  }
  for (auto& job : jobs) loop.Add(std::move(job));
  const bool came = !jobs.empty() || !to_run.empty();
  RunCommands();
  return came;
}

void Scheduler::Data::RunCommands() {
  if (to_run.empty()) return;
  const Clock::TimePoint start = clock.now();
  const double max_ms = kCommandShare * options.max_token_gap_ms;
  // At least one, however long it takes.
  do {
    const Command command = std::move(to_run.front());
    to_run.pop_front();
    RunCommand(command);
  } while (!to_run.empty() && Milliseconds(start, clock.now()) < max_ms);
}

void Scheduler::Data::PublishState() {
  SchedulerState now;
  {
    const std::lock_guard lock(mutex);
    n_queued = static_cast<int>(loop.n_waiting() + incoming.size());
  }
  now = loop.state();
  const std::lock_guard lock(mutex);
  now.n_waiting = n_queued;
  now.draining = draining;
  const std::lock_guard state_lock(state_mutex);
  state = std::move(now);
}

bool Scheduler::Data::Round() {
  bool came = true;
  bool worked = true;
  // An exception may have left any request half way: all fail, and the next ones find the loop
  // empty.
  const auto error = Guard([&] {
    came = TakeIncoming();
    worked = loop.Round();
  });
  if (error) FailAll(*error);
  const bool wrote = files.RunAll();
  if (came || worked || wrote) Guard([&] { PublishState(); });
  return came || worked || wrote;
}

void Scheduler::Data::FailAll(const RequestError& error) {
  // Until memory is free: each attempt fails requests that are then gone.
  while (Guard([&] { loop.FailAll(error); })) std::this_thread::sleep_for(kRetryInterval);
}

void Scheduler::Data::Run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
      signal->woken = false;
    }
    if (Round()) continue;
    std::unique_lock lock(mutex);
    signal->changed.wait(lock, [this] { return signal->woken || stopping; });
  }
}

void Scheduler::Data::Close() {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex);
    if (stopped) return;
    stopped = true;
    jobs.swap(incoming);
    to_run.splice(to_run.end(), commands);
  }
  Guard([&] {
    for (auto& job : jobs) loop.Add(std::move(job));
  });
  FailAll(ShuttingDown());
  for (const Command& command : to_run) Guard(command.stopped);
  to_run.clear();
  Guard([&] { PublishState(); });
}

void Scheduler::Start() {
  WINNOW_CHECK(!data_->thread.joinable());
  data_->files.Start();
  data_->thread = std::thread([data = data_.get()] { data->Run(); });
}

bool Scheduler::Round() { return data_->Round(); }

void Scheduler::Drain() {
  Data& data = *data_;
  {
    const std::lock_guard lock(data.mutex);
    data.draining = true;
  }
  // Save idle sessions at once: other processes can use them while the last responses are finished
  // here.
  data.Post({.run = [&data] { data.loop.sessions().BeginSaves(); }, .stopped = [] {}});
  if (!data.thread.joinable()) {
    while (data.Round()) {
    }
    data.loop.sessions().SaveAll();
    return data.PublishState();
  }
  // Poll with commands, which run after everything that came in before, until nothing is left.
  for (bool done = false; !done;) {
    const auto answer = std::make_shared<std::promise<bool>>();
    data.Post({.run =
                   [&data, answer] {
                     const bool idle = data.idle();
                     if (idle) data.loop.sessions().SaveAll();
                     answer->set_value(idle);
                   },
               .stopped = [answer] { answer->set_value(true); },
               .failed = [answer](const RequestError&) { answer->set_value(true); }});
    done = answer->get_future().get();
    if (!done) std::this_thread::sleep_for(kDrainInterval);
  }
}

void Scheduler::Stop() {
  Data& data = *data_;
  {
    const std::lock_guard lock(data.mutex);
    data.stopping = true;
    data.draining = true;
    data.signal->changed.notify_all();
  }
  if (data.thread.joinable()) data.thread.join();
  data.files.Stop();
  data.Close();
}

SchedulerState Scheduler::state() const {
  const std::lock_guard lock(data_->state_mutex);
  return data_->state;
}

}  // namespace winnow::runtime
