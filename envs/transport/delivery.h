#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "baselines/cc/units.h"
#include "envs/transport/app_source.h"

namespace bbrgym {

/// What the applications of a flow see, over any transport: when everything has been received, and how long messages
/// take from the sending application's write to the receiving one.
class Delivery {
 public:
  /// The messages that were received in a step.
  struct Delays {
    std::uint64_t count = 0;
    Nanoseconds sum = 0;
  };

  /// For an endless flow without `app_rate_mbps`, which needs none of this.
  Delivery() = default;
  /// `size` is that of a finite flow, which begins at `start`.
  Delivery(std::optional<Bytes> size, Nanoseconds start)
      : size_(size.value_or(INT64_MAX)), start_(start), due_(size_) {}

  /// The connection is open: the application writes messages of `message_bytes`, the last one of what is left.
  void Expect(const AppSource& source, Bytes message_bytes) {
    source_ = source;
    message_bytes_ = message_bytes;
    due_ = std::min(message_bytes_, size_);
  }

  /// How much must be received in order before `OnReceived` has something to do.
  Bytes due() const { return due_; }
  /// At `now` the receiving application has got `received` bytes in order, all in all.
  void OnReceived(Nanoseconds now, Bytes received) {
    while (due_ <= received) Take(now);
  }

  bool IsComplete() const { return completion_.has_value(); }
  /// Time from the start to the last byte of a finite flow; nothing before that.
  const std::optional<Nanoseconds>& completion() const { return completion_; }
  const Delays& delays() const { return delays_; }
  void StartStep() { delays_ = {}; }

 private:
  void Take(Nanoseconds now) {
    if (source_) {
      ++delays_.count;
      delays_.sum += now - source_->next();
      source_->Advance();
    }
    if (due_ == size_) {
      completion_ = now - start_;
      due_ = INT64_MAX;
    } else {
      due_ = std::min(due_ + message_bytes_, size_);
    }
  }

  Bytes size_ = INT64_MAX;
  Nanoseconds start_ = 0;
  Bytes due_ = INT64_MAX;
  Bytes message_bytes_ = 0;
  std::optional<AppSource> source_;  // of the next message to be received
  std::optional<Nanoseconds> completion_;
  Delays delays_;
};

}  // namespace bbrgym
