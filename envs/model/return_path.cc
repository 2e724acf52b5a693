#include "envs/model/return_path.h"

#include <algorithm>

namespace bbrgym {

namespace {

// The flow's controller uses the flow's seed; different ones here keep the sequences independent.
constexpr std::uint64_t kJitterStream = 0x6A69747465724D73U;  // "jitterMs"
constexpr std::uint64_t kLossStream = 0x61636B5F6C6F7373U;    // "ack_loss"

}  // namespace

ReturnPath::ReturnPath(const Flow& flow, double forward_ms, std::uint64_t flow_seed, Nanoseconds ahead)
    : is_constant_(flow.rtt_schedule.empty() && flow.ack_loss <= 0.0 && flow.ack_aggregation_ms <= 0.0 &&
                   flow.jitter_ms <= 0.0),
      delay_(FromMilliseconds(flow.rtt_ms - forward_ms)),
      ahead_(ahead),
      loss_(flow.ack_loss, flow_seed ^ kLossStream),
      aggregation_(FromMilliseconds(flow.ack_aggregation_ms)),
      longest_jitter_(FromMilliseconds(flow.jitter_ms)),
      jitter_(flow_seed ^ kJitterStream) {
  for (const auto& [time_s, rtt_ms] : flow.rtt_schedule) {
    changes_.emplace_back(FromSeconds(time_s), FromMilliseconds(rtt_ms - forward_ms));
  }
}

void ReturnPath::SetJitter(double ms) {
  longest_jitter_ = FromMilliseconds(ms);
  if (longest_jitter_ > 0) is_constant_ = false;  // for good: packets behind late ones are late, too
}

Nanoseconds ReturnPath::VariedArrival(Nanoseconds now) {
  if (loss_.CanLose() && loss_.IsNextLost()) return kNever;
  Nanoseconds start = now + ahead_;
  if (aggregation_ > 0) start = (start + aggregation_ - 1) / aggregation_ * aggregation_;
  for (; next_change_ < changes_.size() && changes_[next_change_].first <= start; ++next_change_) {
    delay_ = changes_[next_change_].second;
  }
  Nanoseconds arrival = start - ahead_ + delay_;
  if (longest_jitter_ > 0) {
    arrival += static_cast<Nanoseconds>(jitter_.Below(static_cast<std::uint64_t>(longest_jitter_) + 1));
  }
  last_arrival_ = std::max(last_arrival_, arrival);
  return last_arrival_;
}

}  // namespace bbrgym
