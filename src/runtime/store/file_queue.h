#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace winnow::runtime {

// Runs file work on an I/O thread, one task after another in the order they were added, so that
// decoding does not wait for the disk. Thread-safe.
class FileQueue {
 public:
  FileQueue() = default;
  ~FileQueue() { Stop(); }
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  // Starts the thread. Without it, RunAll does the work.
  void Start();
  // Requires: Stop was not called. The task throws nothing.
  void Add(std::function<void()> task);
  // Runs all queued tasks in the caller's thread. False: there were none, or the thread runs them.
  bool RunAll();
  // Returns when all tasks are done.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace winnow::runtime
