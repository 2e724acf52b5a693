#include "baselines/cc/controller_file.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace bbrgym {
namespace {

constexpr std::size_t kMostStateBytes = 1 << 20;
/// More is no number that a sender can mean.
constexpr double kMostValue = 1e15;
/// 2.5 Gbit/s at an RTT of 200 ms; a larger window has no effect but packets in memory.
constexpr Bytes kMostWindow = 64 << 20;

/// The controller of one flow. Once a decision is not valid, it keeps a window of one packet, and says why.
class FileController final : public Controller {
 public:
  FileController(std::shared_ptr<const ControllerFile> file, const Connection& connection,
                 std::vector<double> parameters)
      : file_(std::move(file)),
        packet_bytes_(connection.packet_bytes),
        parameters_(std::move(parameters)),
        // At least one element, so that there is a pointer.
        state_(file_->callbacks().state_bytes / sizeof(std::max_align_t) + 1) {
    // Also the padding between the members of max_align_t, which a vector leaves as it is.
    std::memset(state_.data(), 0, state_.size() * sizeof(std::max_align_t));
    const bbrgym_connection given{.packet_bytes = connection.packet_bytes,
                                  .initial_window = connection.initial_cwnd,
                                  .rtt_ns = connection.initial_rtt,
                                  .seed = connection.seed,
                                  .parameters = parameters_.data()};
    file_->callbacks().create(state_.data(), &given);
    Decide(0);
  }

  ~FileController() override {
    if (file_->callbacks().destroy) file_->callbacks().destroy(state_.data());
  }

  FileController(const FileController&) = delete;
  FileController& operator=(const FileController&) = delete;

  void OnAck(const AckEvent& ack) override {
    if (fault_) return;
    now_ = ack.now;
    in_flight_ = ack.in_flight;
    const bbrgym_ack given{.now_ns = ack.now,
                           .rtt_ns = ack.rtt,
                           .bytes_acked = ack.bytes_acked,
                           .bytes_lost = ack.bytes_lost,
                           .bytes_marked = ack.bytes_marked,
                           .prior_in_flight = ack.prior_in_flight,
                           .in_flight = ack.in_flight,
                           .delivered = ack.delivered,
                           .sent = ack.sent,
                           .delivery_rate = ack.sample.is_valid ? ack.sample.delivery_rate : 0,
                           .prior_delivered = ack.sample.is_valid ? ack.sample.prior_delivered : 0,
                           .is_app_limited = ack.sample.is_valid && ack.sample.is_app_limited,
                           .is_window_limited = ack.is_cwnd_limited};
    file_->callbacks().on_ack(state_.data(), &given);
    Decide(now_);
  }

  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override {
    switch (state) {
      case Recovery::kRecovery:
        return OnLoss(BBRGYM_LOSS, now, in_flight);
      case Recovery::kLoss:
        return OnLoss(BBRGYM_TIMEOUT, now, in_flight);
      case Recovery::kOpen:
        return OnLoss(BBRGYM_RECOVERED, now, in_flight);
    }
  }

  /// Who takes a reduction back must learn of the next loss, however soon it comes.
  bool OnSpuriousRecovery() override {
    const Bytes reduced = decision_.cwnd;
    OnLoss(BBRGYM_SPURIOUS, now_, in_flight_);
    return decision_.cwnd > reduced;
  }

  void OnRestart(Nanoseconds now) override { now_ = now; }
  Decision decision() const override { return decision_; }
  Metrics metrics() const override { return {}; }
  const std::string* Fault() const override { return fault_ ? &*fault_ : nullptr; }

 private:
  void OnLoss(bbrgym_loss_kind kind, Nanoseconds now, Bytes in_flight) {
    if (fault_) return;
    now_ = now;
    in_flight_ = in_flight;
    if (!file_->callbacks().on_loss) return;
    const bbrgym_loss given{.now_ns = now, .in_flight = in_flight, .kind = kind};
    file_->callbacks().on_loss(state_.data(), &given);
    Decide(now);
  }

  void Decide(Nanoseconds now) {
    bbrgym_decision chosen{.window = 0.0, .pacing_rate = 0.0};
    file_->callbacks().decision(state_.data(), &chosen);
    if (!IsValid("window", chosen.window, now) || !IsValid("pacing_rate", chosen.pacing_rate, now)) {
      decision_ = {.cwnd = packet_bytes_, .send_quantum = packet_bytes_};
      return;
    }
    const double window =
        std::clamp(chosen.window, static_cast<double>(packet_bytes_), static_cast<double>(kMostWindow));
    decision_ = {.cwnd = static_cast<Bytes>(window),
                 .pacing_rate = static_cast<BitsPerSecond>(chosen.pacing_rate),
                 .send_quantum = packet_bytes_,
                 .is_paced = chosen.pacing_rate > 0.0};
  }

  bool IsValid(const char* what, double value, Nanoseconds now) {
    if (value >= 0.0 && value <= kMostValue) return true;  // in this form it refuses NaN too
    std::ostringstream text;
    text << "controller '" << file_->name() << "' chose " << what << " " << value << " at "
         << static_cast<double>(now) / 1e9 << " s: it must be in [0, " << kMostValue << "]";
    fault_ = text.str();
    return false;
  }

  std::shared_ptr<const ControllerFile> file_;
  Bytes packet_bytes_;
  std::vector<double> parameters_;
  std::vector<std::max_align_t> state_;
  Decision decision_;
  std::optional<std::string> fault_;
  Nanoseconds now_ = 0;
  Bytes in_flight_ = 0;
};

std::string NameOf(const std::string& path) {
  const std::size_t begin = path.find_last_of('/') + 1;  // npos + 1 is 0
  return path.substr(begin, path.find_last_of('.') - begin);
}

}  // namespace

std::shared_ptr<const ControllerFile> ControllerFile::Load(const std::string& path) {
  const std::shared_ptr<ControllerFile> file(new ControllerFile);
  file->name_ = NameOf(path);
  const auto refuse = [&file](const std::string& why) {
    throw ParameterError("controller '" + file->name_ + "' " + why);
  };
  file->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!file->library_) refuse(std::string("cannot be loaded: ") + dlerror());
  file->callbacks_ = static_cast<const struct bbrgym_controller*>(dlsym(file->library_, "bbrgym_controller"));
  if (!file->callbacks_) refuse("defines no `bbrgym_controller`");
  const struct bbrgym_controller& callbacks = *file->callbacks_;
  if (callbacks.version != BBRGYM_CONTROLLER_VERSION) {
    refuse("has version " + std::to_string(callbacks.version) + " of the header, must be " +
           std::to_string(BBRGYM_CONTROLLER_VERSION));
  }
  if (!callbacks.create || !callbacks.on_ack || !callbacks.decision) refuse("must have create, on_ack and decision");
  if (callbacks.state_bytes > kMostStateBytes) {
    refuse("has a state of " + std::to_string(callbacks.state_bytes) + " bytes, must be at most " +
           std::to_string(kMostStateBytes));
  }
  return file;
}

ControllerFile::~ControllerFile() {
  if (library_) dlclose(library_);
}

std::unique_ptr<Controller> ControllerFile::Make(const Connection& connection,
                                                 const ParameterValues& parameters) const {
  return std::make_unique<FileController>(shared_from_this(), connection, Read(parameters));
}

std::vector<double> ControllerFile::Read(const ParameterValues& parameters) const {
  ParameterReader reader(name_, parameters);
  std::vector<double> values;
  for (const bbrgym_parameter* entry = callbacks_->parameters; entry && entry->name; ++entry) {
    double value = entry->value;
    reader.Field(entry->name, value, entry->low, entry->high);
    values.push_back(value);
  }
  reader.Finish();
  return values;
}

}  // namespace bbrgym
