#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bbrgym {

/// A queue in one block of memory, which grows when it must and never shrinks.
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

  /// Adds a slot at the end and returns it; it holds the remains of an older value.
  Value& PushSlot() {
    if (size() > mask_) Grow();
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

  [[gnu::noinline]] void Grow() {  // rare
    std::vector<Value> larger(2 * slots_.size());
    const std::size_t mask = larger.size() - 1;
    for (std::uint64_t i = begin_; i < end_; ++i) larger[i & mask] = std::move(slots_[i & mask_]);
    slots_ = std::move(larger);
    mask_ = mask;
  }

 protected:
  std::vector<Value> slots_;
  std::size_t mask_;
  // How many values were ever removed and added.
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

/// A queue whose values are found by number: the first value ever added is 0, the next one 1, …
template <typename Value>
class Window : private Ring<Value> {
 public:
  explicit Window(std::size_t capacity = 64) : Ring<Value>(capacity) {}

  using Ring<Value>::IsEmpty;
  using Ring<Value>::PushSlot;
  using Ring<Value>::Front;
  using Ring<Value>::Pop;

  std::uint64_t begin() const { return this->begin_; }
  std::uint64_t end() const { return this->end_; }
  Value& operator[](std::uint64_t number) {
    assert(number >= begin() && number < end());
    return this->slots_[number & this->mask_];
  }
  /// Adds and removes a value in one; the window must be empty.
  void Skip() {
    assert(IsEmpty());
    ++this->begin_;
    ++this->end_;
  }
};

}  // namespace bbrgym
