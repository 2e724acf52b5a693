#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bbrgym {

/// Does the same work on many items, on several threads; the caller's is one of them.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Calls `work(i)` for every i below `count`, in any order and on any thread, and returns when all are done.
  void ForEach(std::size_t count, const std::function<void(std::size_t)>& work);

 private:
  void Run();
  void Work();

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::uint64_t generation_ = 0;
  std::size_t busy_ = 0;
  bool is_ending_ = false;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_{0};
};

}  // namespace bbrgym
