#include "runtime/store/file_queue.h"

#include <utility>

#include "base/check.h"

namespace winnow::runtime {

void FileQueue::Start() {
  WINNOW_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

void FileQueue::Add(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  WINNOW_CHECK(!stopping_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

bool FileQueue::RunAll() {
  if (thread_.joinable()) return false;
  bool ran = false;
  for (;; ran = true) {
    std::function<void()> task;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) return ran;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void FileQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void FileQueue::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  RunAll();
}

}  // namespace winnow::runtime
