#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace bbrgym {

/// Does the same work on many items with several threads, the caller's included. After a fork, the child works with the
/// caller's thread alone.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Calls `work(i)` for every i < `count`, in any order and on any thread; returns when all calls have returned.
  void ForEach(std::size_t count, const std::function<void(std::size_t)>& work);

 private:
  /// What the threads share.
  struct Shared {
    void Run();
    void Work();

    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable start;
    std::condition_variable done;
    std::uint64_t generation = 0;
    std::size_t busy = 0;
    bool is_ending = false;
    const std::function<void(std::size_t)>* work = nullptr;
    std::size_t count = 0;
    std::atomic<std::size_t> next{0};
  };

  bool IsForked() const;

  int process_;
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace bbrgym
