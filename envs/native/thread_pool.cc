#include "envs/native/thread_pool.h"

#include <unistd.h>

#include <algorithm>

namespace bbrgym {

ThreadPool::ThreadPool(std::size_t threads) : process_(getpid()) {
  for (std::size_t i = 1; i < std::max<std::size_t>(threads, 1); ++i) {
    shared_->threads.emplace_back([shared = shared_.get()] { shared->Run(); });
  }
}

ThreadPool::~ThreadPool() {
  if (IsForked()) {
    static_cast<void>(shared_.release());  // a fork has no threads to join
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_ending = true;
  }
  shared_->start.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::ForEach(std::size_t count, const std::function<void(std::size_t)>& work) {
  if (shared_->threads.empty() || count < 2 || IsForked()) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->work = &work;
    shared_->count = count;
    shared_->next = 0;
    shared_->busy = shared_->threads.size();
    ++shared_->generation;
  }
  shared_->start.notify_all();
  shared_->Work();
  std::unique_lock lock(shared_->mutex);
  shared_->done.wait(lock, [this] { return shared_->busy == 0; });
}

void ThreadPool::Shared::Run() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex);
  while (true) {
    start.wait(lock, [&] { return is_ending || generation != seen; });
    if (is_ending) return;
    seen = generation;
    lock.unlock();
    Work();
    lock.lock();
    if (--busy == 0) done.notify_one();
  }
}

void ThreadPool::Shared::Work() {
  for (std::size_t i = next++; i < count; i = next++) (*work)(i);
}

bool ThreadPool::IsForked() const {
  return process_ != getpid();
}

}  // namespace bbrgym
