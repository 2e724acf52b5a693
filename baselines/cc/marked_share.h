#pragma once

#include "baselines/cc/units.h"

namespace bbrgym {

/// The share of the delivered bytes that the path marks (ECN): of each round, and its moving average, which is DCTCP's
/// alpha (RFC 8257, section 3.3).
class MarkedShare {
 public:
  /// `gain` is the weight of a round in the average, which begins at 1: a flow that starts on a congested path answers
  /// in full.
  explicit MarkedShare(double gain) : gain_(gain) {}

  void OnAck(Bytes acked, Bytes marked) {
    acked_ += acked;
    marked_ += marked;
  }

  /// Ends a round and returns its share; 0 if nothing was delivered.
  double EndRound() {
    if (acked_ == 0) return 0.0;
    const double share = static_cast<double>(marked_) / static_cast<double>(acked_);
    average_ += gain_ * (share - average_);
    acked_ = marked_ = 0;
    return share;
  }

  double average() const { return average_; }

 private:
  double gain_;
  double average_ = 1.0;
  Bytes acked_ = 0;
  Bytes marked_ = 0;
};

}  // namespace bbrgym
