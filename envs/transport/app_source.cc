#include "envs/transport/app_source.h"

#include <limits>

namespace bbrgym {

AppSource::AppSource(const Flow& flow, Bytes packet_bytes, std::uint64_t seed, Nanoseconds begin)
    : interval_(static_cast<double>(packet_bytes) * 8e3 / flow.app_rate_mbps.value()),
      mean_on_(flow.on_s ? *flow.on_s * 1e9 : std::numeric_limits<double>::infinity()),
      mean_off_(flow.off_s.value_or(0.0) * 1e9),
      is_exponential_(flow.on_off == "exponential"),
      random_(seed ^ kStream),
      begin_(begin),
      on_(Length(mean_on_)) {}

void AppSource::Advance() {
  offset_ += interval_;
  while (offset_ >= on_) {
    offset_ -= on_;
    period_begin_ += on_ + Length(mean_off_);
    on_ = Length(mean_on_);
  }
}

double AppSource::Length(double mean) {
  return is_exponential_ ? random_.Exponential(mean) : mean;
}

}  // namespace bbrgym
