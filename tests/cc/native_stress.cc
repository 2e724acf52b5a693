// Runs the native engine and its transport under the compiler's sanitizers (`make sanitize`): random scenarios, alone
// and in batches, on one thread and on four, and random calls of a Sender and a Receiver. Results must be equal to the
// last bit. The program prints a digest of them all, so that builds can be compared.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/cc/policy/network.h"
#include "baselines/cc/random.h"
#include "baselines/cc/registry.h"
#include "envs/native/batch.h"
#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

using namespace bbrgym;

namespace {

constexpr std::size_t kScenarios = 96;
constexpr std::size_t kMaxFlows = 50;
constexpr std::size_t kTransports = 3000;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "native_stress: %s\n", what.c_str());
  std::exit(1);
}

/// FNV-1a over all bytes that are added.
class Digest {
 public:
  template <typename Value>
  void Add(const Value* values, std::size_t count) {
    std::vector<unsigned char> bytes(count * sizeof(Value));
    std::memcpy(bytes.data(), values, bytes.size());
    for (const unsigned char byte : bytes) value_ = (value_ ^ byte) * 0x100000001B3U;
  }
  void Add(std::int64_t value) { Add(&value, 1); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

double Uniform(Random& random, double low, double high) {
  return low + (high - low) * random.Uniform();
}

template <typename Value>
Value OneOf(Random& random, const std::vector<Value>& values) {
  return values[random.Below(values.size())];
}

/// Bytes of a policy, as `Agent.to_bytes` makes them.
class PolicyBytes {
 public:
  template <typename Value>
  PolicyBytes& Add(Value value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  PolicyBytes& AddText(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  PolicyBytes& AddWeights(Random& random, std::size_t count) {
    for (; count > 0; --count) Add(static_cast<float>(Uniform(random, -0.5, 0.5)));
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  std::string bytes_;
};

/// All features of two steps, possibly an LSTM layer, two dense layers, and possibly a skip. (Little-endian machines
/// only.)
std::string MakePolicyBytes(Random& random) {
  const std::vector<PolicyFeature>& features = PolicyFeatures();
  const bool has_skip = random.Below(2) == 0;
  PolicyBytes bytes;
  bytes.AddText("bbrgympo").Add<std::uint32_t>(has_skip ? 4 : 3).Add(static_cast<std::uint32_t>(features.size()));
  for (const PolicyFeature& feature : features) {
    const std::string name = feature.name;
    bytes.Add(static_cast<std::uint32_t>(name.size())).AddText(name);
  }
  bytes.Add<std::uint32_t>(2).Add(1.5).Add(4.0).Add(0.75).Add(1.75);
  bytes.Add(static_cast<std::uint8_t>(random.Below(3))).Add(static_cast<std::uint8_t>(random.Below(2)));
  const bool is_fixed = random.Below(2) == 0;
  bytes.Add<std::uint64_t>(is_fixed ? 20'000'000 : 0).Add(is_fixed ? 0.0 : 1.0);
  bytes.Add(static_cast<std::uint8_t>(random.Below(2))).Add(static_cast<std::uint8_t>(random.Below(2)));
  std::size_t width = 2 * features.size();
  const auto lstm_layers = static_cast<std::uint32_t>(random.Below(2));
  bytes.Add(lstm_layers);
  if (lstm_layers == 1) {
    bytes.Add<std::uint32_t>(3).AddWeights(random, 12 * width + 12 * 3 + 12);
    width = 3;
  }
  bytes.Add<std::uint32_t>(2).Add<std::uint32_t>(5).AddWeights(random, 5 * width + 5);
  bytes.Add<std::uint32_t>(2).AddWeights(random, 2 * 5 + 2);
  if (has_skip) bytes.AddWeights(random, 2 * 2 * features.size());
  return bytes.text();
}

std::shared_ptr<const PolicyNetwork> MakePolicy(Random& random) {
  return PolicyNetwork::Parse(MakePolicyBytes(random));
}

Scenario MakeScenario(Random& random) {
  Scenario scenario;
  scenario.rate_mbps = OneOf<double>(random, {0.1, 1, 5, 20, 100});
  scenario.duration_s = Uniform(random, 0.5, scenario.rate_mbps < 50 ? 12 : 3);
  scenario.packet_bytes = OneOf<std::int64_t>(random, {64, 1000, 1448, 9000});
  if (random.Below(2) == 0) {
    scenario.buffer_bdp = OneOf<double>(random, {0.01, 0.5, 1, 8});
  } else {
    scenario.buffer_packets = OneOf<std::int64_t>(random, {1, 3, 100});
  }
  scenario.queue =
      OneOf<const char*>(random, {"droptail", "droptail", "droptail", "codel", "pie", "fq_codel", "dualpi2"});
  if (random.Below(4) == 0) scenario.ce_threshold_ms = OneOf<double>(random, {0, 1, 20});
  scenario.loss = OneOf<double>(random, {0, 0, 0, 0.001, 0.05, 0.5});
  if (random.Below(3) == 0) scenario.loss_burst_packets = OneOf<double>(random, {1, 3, 40});
  if (random.Below(4) == 0) scenario.reordering = OneOf<double>(random, {0.001, 0.1, 0.9});
  if (random.Below(4) == 0) scenario.policer_mbps = scenario.rate_mbps * Uniform(random, 0.2, 1.5);
  double time_s = random.Below(4) == 0 ? 0 : 1e-6;
  for (std::uint64_t changes = random.Below(4); changes > 0; --changes) {
    scenario.rate_schedule.emplace_back(time_s, OneOf<double>(random, {0.01, 0.5, 10, 50}));
    time_s += Uniform(random, 0.001, scenario.duration_s / 2);
  }
  if (scenario.loss > 0 && !scenario.loss_burst_packets && random.Below(2) == 0) {
    scenario.loss_burst_ms = OneOf<double>(random, {0.01, 5, 300});
  }
  std::vector<std::string> paths = {"forward"};
  if (random.Below(4) == 0) {
    scenario.second_rate_mbps = OneOf<double>(random, {0.1, 4, 50});
    scenario.second_buffer_packets = OneOf<std::int64_t>(random, {1, 30});
    paths.insert(paths.end(), {"first", "second"});
  }
  if (random.Below(4) == 0) {
    scenario.reverse_rate_mbps = OneOf<double>(random, {0.01, 1, 50});
    scenario.reverse_buffer_packets = OneOf<std::int64_t>(random, {1, 30});
    paths.emplace_back("reverse");
  }
  const std::uint64_t flows = OneOf<std::uint64_t>(random, {1, 2, 3, 8, kMaxFlows});
  for (std::uint64_t i = 0; i < flows; ++i) {
    Flow flow;
    flow.algorithm = ControllerRegistry()[random.Below(ControllerRegistry().size())].name;
    if (flow.algorithm == "policy") flow.policy = MakePolicy(random);
    flow.path = OneOf(random, paths);
    flow.rtt_ms = OneOf<double>(random, {0.001, 1, 10, 50, 600});
    if (random.Below(4) == 0) flow.jitter_ms = OneOf<double>(random, {0.01, 5, 100});
    if (random.Below(4) == 0) flow.rtt_schedule = {{0.2, 0.001}, {0.5, 80}, {1, 20}};
    if (random.Below(4) == 0) flow.ack_loss = OneOf<double>(random, {0.01, 0.5, 0.99});
    if (random.Below(4) == 0) flow.ack_aggregation_ms = OneOf<double>(random, {0.01, 4, 100});
    if (random.Below(3) == 0) flow.ecn = random.Below(2) == 0 ? "classic" : "l4s";
    if (random.Below(3) == 0) {
      flow.app_rate_mbps = OneOf<double>(random, {0.01, 2, 50});
      if (random.Below(2) == 0) {
        flow.on_s = OneOf<double>(random, {0.001, 0.3});
        flow.off_s = OneOf<double>(random, {0, 0.05, 2});
        flow.on_off = random.Below(2) == 0 ? "fixed" : "exponential";
      }
    }
    if (random.Below(3) > 0) flow.start_s = Uniform(random, 0, 0.9 * scenario.duration_s);
    if (random.Below(4) == 0) flow.stop_s = flow.start_s + Uniform(random, 1e-6, scenario.duration_s);
    if (random.Below(16) == 0) flow.stop_s = 1e300;
    if (random.Below(3) == 0) flow.size_bytes = OneOf<std::int64_t>(random, {1, 999, 1000, 1001, 34567, 1'000'001});
    scenario.flows.push_back(flow);
  }
  return scenario;
}

/// A scenario, the lengths of its steps, and the gains of its agents.
struct Episode {
  Scenario scenario;
  std::uint64_t seed;

  std::int64_t NextStep(Random& random) const {
    const double step_s = OneOf<double>(random, {1e-9, 0.001, 0.1, 1}) * Uniform(random, 0.5, 1.5);
    return static_cast<std::int64_t>(step_s * 1e9) + 1;
  }
};

void Steer(Batch& batch, std::size_t index, const Episode& episode, Random& random) {
  for (std::size_t flow = 0; flow < episode.scenario.flows.size(); ++flow) {
    if (episode.scenario.flows[flow].algorithm != "agent") continue;
    batch.SetGains(index, static_cast<std::int64_t>(flow), Uniform(random, 0.1, 4), Uniform(random, 0.1, 4));
  }
}

void AddRows(Batch& batch, std::size_t index, const Episode& episode, Digest& digest) {
  digest.Add(&batch.flow_rows()[index * batch.max_flows()], episode.scenario.flows.size());
  digest.Add(&batch.link_rows()[index], 1);
  digest.Add(&batch.times_s()[index], 1);
  digest.Add(batch.is_over()[index] * 2 + batch.is_complete()[index]);
}

/// Runs the episodes in one batch; returns a digest of the rows of each. `first` shifts them within the batch.
std::vector<std::uint64_t> Run(Batch& batch, const std::vector<Episode>& episodes, std::size_t first) {
  const std::size_t count = episodes.size();
  const auto place = [&](std::size_t i) { return (i + first) % count; };
  std::vector<Digest> digests(count);
  std::vector<Random> randoms;
  for (std::size_t i = 0; i < count; ++i) {
    randoms.emplace_back(episodes[i].seed);
    batch.Reset(place(i), std::make_shared<const Scenario>(episodes[i].scenario), episodes[i].seed);
    AddRows(batch, place(i), episodes[i], digests[i]);
  }
  std::vector<std::int64_t> durations(count);
  bool is_running = true;
  while (is_running) {
    is_running = false;
    for (std::size_t i = 0; i < count; ++i) {
      durations[place(i)] = 0;
      if (batch.is_over()[place(i)] != 0) continue;
      is_running = true;
      Steer(batch, place(i), episodes[i], randoms[i]);
      durations[place(i)] = episodes[i].NextStep(randoms[i]);
    }
    batch.Step(durations.data());
    for (std::size_t i = 0; i < count; ++i) {
      if (durations[place(i)] > 0) AddRows(batch, place(i), episodes[i], digests[i]);
    }
  }
  std::vector<std::uint64_t> values;
  for (const Digest& digest : digests) values.push_back(digest.value());
  return values;
}

void StressBatch(Digest& digest) {
  Random random(1);
  std::vector<Episode> episodes;
  for (std::size_t i = 0; i < kScenarios; ++i) episodes.push_back({MakeScenario(random), random.Next()});

  std::vector<std::uint64_t> alone;
  for (const Episode& episode : episodes) {
    Batch batch(1, episode.scenario.flows.size(), 1);
    alone.push_back(Run(batch, {episode}, 0).front());
  }
  for (const std::size_t threads : {1, 4}) {
    Batch batch(kScenarios, kMaxFlows, threads, 0.0);
    // The second run puts each scenario in the place of another one, which must leave nothing behind.
    for (const std::size_t first : {0, 1}) {
      const std::vector<std::uint64_t> together = Run(batch, episodes, first);
      for (std::size_t i = 0; i < kScenarios; ++i) {
        if (together[i] != alone[i]) {
          Fail("scenario " + std::to_string(i) + " is not the same on " + std::to_string(threads) + " threads in run " +
               std::to_string(first));
        }
      }
    }
  }
  digest.Add(alone.data(), alone.size());
}

/// Calls a Sender in any order, as a path that loses, delays and reorders in both directions could.
void StressTransport(std::uint64_t seed, Digest& digest) {
  Random random(seed);
  const auto& registry = ControllerRegistry();
  const Connection connection{.packet_bytes = OneOf<Bytes>(random, {64, 1000}),
                              .initial_cwnd = 10'000,
                              .initial_rtt = OneOf<Nanoseconds>(random, {0, 20 * kMillisecond}),
                              .seed = seed,
                              .policy = MakePolicy(random)};
  std::optional<Bytes> size;
  if (random.Below(2) == 0) size = OneOf<Bytes>(random, {1, 1000, 54'321});
  Sender sender(registry[random.Below(registry.size())].make(connection, {}), connection, size);
  Receiver receiver;
  std::vector<DataPacket> packets;
  std::vector<AckPacket> acks;
  Nanoseconds now = 0;
  for (int turn = 0; turn < 300 && now < 1'000'000 * kSecond; ++turn) {  // longer than any scenario
    DataPacket packet;
    while (packets.size() < 500 && sender.NextPacket(now, packet)) packets.push_back(packet);
    switch (random.Below(8)) {
      case 0:
        if (sender.NextTimer() == kNever) break;
        now = std::max(now, sender.NextTimer());
        // After a loss by time a probe may be overdue; nothing else can be due.
        for (int due = 0; sender.NextTimer() <= now; ++due) {
          if (due == 2) Fail("a timer goes off for ever with seed " + std::to_string(seed));
          sender.OnTimer(now);
          while (sender.NextPacket(now, packet)) packets.push_back(packet);
        }
        break;
      case 1:
        now += static_cast<Nanoseconds>(random.Below(50 * kMillisecond));
        break;
      case 2:  // ranges that no receiver made, perhaps of packets that were never sent
        acks.emplace_back();
        for (PacketNumber high = random.Below(600); acks.back().count < AckPacket::kMaxRanges;) {
          const PacketNumber low = high - std::min<PacketNumber>(high, random.Below(20));
          acks.back().ranges[acks.back().count++] = {low, high};
          if (low < 2 || random.Below(2) == 0) break;
          high = low - 2;
        }
        break;
      case 3:
        if (!acks.empty()) {
          std::swap(acks[random.Below(acks.size())], acks.back());
          if (random.Below(3) > 0) sender.OnAck(now, acks.back());
          acks.pop_back();
        }
        break;
      default:
        if (!packets.empty()) {
          std::swap(packets[random.Below(std::min<std::size_t>(packets.size(), 4))], packets.front());
          if (random.Below(4) > 0 && receiver.OnPacket(now, packets.front())) {
            acks.emplace_back();
            receiver.WriteAck(acks.back());
          }
          packets.erase(packets.begin());
        }
    }
    const Sender::Counts& counts = sender.counts();
    if (sender.in_flight() < 0 ||
        counts.sent_bytes != counts.delivered_bytes + counts.lost_bytes + sender.in_flight()) {
      Fail("bytes do not add up with seed " + std::to_string(seed));
    }
  }
  if (random.Below(2) == 0) sender.Stop();
  digest.Add(sender.counts().sent_bytes);
  digest.Add(sender.counts().lost_bytes);
  digest.Add(sender.in_flight());
  digest.Add(receiver.counts().received);
}

}  // namespace

int main() {
  Digest digest;
  StressBatch(digest);
  for (std::uint64_t seed = 0; seed < kTransports; ++seed) StressTransport(seed, digest);
  std::printf("%016llx\n", static_cast<unsigned long long>(digest.value()));
}
