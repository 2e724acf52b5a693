// Reads policies from standard input, each after its length (32 bits, little-endian), and runs those that are valid:
// `make fuzz` builds it with sanitizers and feeds it. It answers each with one byte: 'y' for valid, 'n' for refused.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "baselines/cc/policy/network.h"

int main() {
  std::uint32_t length = 0;
  while (std::fread(&length, sizeof(length), 1, stdin) == 1) {
    std::string bytes(length, '\0');
    if (std::fread(bytes.data(), 1, length, stdin) != length) return 2;
    char answer = 'n';
    try {
      const auto policy = bbrgym::PolicyNetwork::Parse(bytes);
      auto memory = policy->MakeMemory();
      for (int step = 0; step < 3; ++step) {
        const bbrgym::Action action = policy->Act(memory);
        // Within the bounds, so that gains are, too. Sums of huge weights may be no number.
        if (std::max(action.cwnd, action.pacing) > 1.0 || std::min(action.cwnd, action.pacing) < -1.0) return 3;
        const bbrgym::Gains gains = policy->gain_map().ToGains(action, 10.0);
        if (gains.cwnd <= 0.0 || gains.pacing <= 0.0) return 5;
        if (policy->Interval(1'000'000) < 1) return 4;
      }
      answer = 'y';
    } catch (const bbrgym::PolicyError&) {
    }
    std::putchar(answer);
    std::fflush(stdout);
  }
  return 0;
}
