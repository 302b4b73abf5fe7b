#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace winnow::runtime {

// Work on files, one after another in the order it came, on an I/O thread: nobody's tokens wait for
// the disk. Thread-safe.
class FileQueue {
 public:
  FileQueue() = default;
  ~FileQueue() { Stop(); }
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  // Without it RunAll does the work.
  void Start();
  // Requires: Stop was not called. The task throws nothing.
  void Add(std::function<void()> task);
  // Does what there is in the caller's thread. False: nothing, or there is a thread for it.
  bool RunAll();
  // Returns when all is done.
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
