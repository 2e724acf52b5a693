#include "envs/native/thread_pool.h"

#include <algorithm>

namespace bbrgym {

ThreadPool::ThreadPool(std::size_t threads) {
  for (std::size_t i = 1; i < std::max<std::size_t>(threads, 1); ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::ForEach(std::size_t count, const std::function<void(std::size_t)>& work) {
  if (threads_.empty() || count < 2) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = 0;
    busy_ = threads_.size();
    ++generation_;
  }
  start_.notify_all();
  Work();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::Run() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return is_ending_ || generation_ != seen; });
    if (is_ending_) return;
    seen = generation_;
    lock.unlock();
    Work();
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

void ThreadPool::Work() {
  for (std::size_t i = next_++; i < count_; i = next_++) (*work_)(i);
}

}  // namespace bbrgym
