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

/// Does the same work on many items, on several threads; the caller's is one of them. A process that was forked from
/// the pool's has only the caller's.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Calls `work(i)` for every i below `count`, in any order and on any thread, and returns when all are done.
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
