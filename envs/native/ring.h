#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bbrgym {

/// A queue over one block of memory that grows when it must and is never given back: what a pipe of constant delay is.
template <typename Value>
class Ring {
 public:
  explicit Ring(std::size_t capacity = 64) : slots_(RoundUp(capacity)), mask_(slots_.size() - 1) {}

  bool IsEmpty() const { return begin_ == end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  Value& Front() {
    assert(!IsEmpty());
    return slots_[begin_ & mask_];
  }
  const Value& Front() const {
    assert(!IsEmpty());
    return slots_[begin_ & mask_];
  }
  Value& operator[](std::size_t index) {
    assert(index < size());
    return slots_[(begin_ + index) & mask_];
  }

  /// A place at the end, with what an older value left in it.
  Value& PushSlot() {
    if (size() == slots_.size()) Grow();
    return slots_[end_++ & mask_];
  }
  void Push(const Value& value) { PushSlot() = value; }
  void Pop() {
    assert(!IsEmpty());
    ++begin_;
  }
  void Clear() { begin_ = end_ = 0; }

 private:
  static std::size_t RoundUp(std::size_t capacity) {
    std::size_t size = 16;
    while (size < capacity) size *= 2;
    return size;
  }

  void Grow() {
    std::vector<Value> larger(2 * slots_.size());
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) larger[i] = std::move(slots_[(begin_ + i) & mask_]);
    slots_ = std::move(larger);
    mask_ = slots_.size() - 1;
    begin_ = 0;
    end_ = count;
  }

  std::vector<Value> slots_;
  std::size_t mask_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

/// Values by a running number, for the numbers from some first one on: a ring whose index never wraps.
template <typename Value>
class Window {
 public:
  explicit Window(std::size_t capacity = 64) : ring_(capacity) {}

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + ring_.size(); }
  bool Contains(std::uint64_t number) const { return number >= begin_ && number < end(); }
  Value& operator[](std::uint64_t number) { return ring_[number - begin_]; }
  Value& PushSlot() { return ring_.PushSlot(); }
  void PopFront() {
    ring_.Pop();
    ++begin_;
  }
  void Clear() {
    ring_.Clear();
    begin_ = 0;
  }

 private:
  Ring<Value> ring_;
  std::uint64_t begin_ = 0;
};

}  // namespace bbrgym
